from __future__ import annotations

import re

import pytest

from ramet.runtime.grammar import charset

SAMPLE = [*range(0x3000), *range(0xA600, 0xABFF, 7), 0xD7FF, 0xE000, *range(0x10000, 0x1F700, 5)]


def has(ranges: charset.Ranges, code: int) -> bool:
    return any(first <= code <= last for first, last in ranges)


def test_union_merges_what_touches_and_leaves_surrogates_out() -> None:
    assert charset.union([(5, 9), (1, 2)], [(3, 3), (20, 21)]) == ((1, 3), (5, 9), (20, 21))
    assert charset.union([(0xD000, 0xE001)]) == ((0xD000, 0xD7FF), (0xE000, 0xE001))
    assert charset.union([(0xD800, 0xDFFF)]) == charset.NOTHING
    assert charset.union() == charset.NOTHING


def test_complement_and_difference() -> None:
    assert charset.complement(charset.NOTHING) == charset.EVERYTHING
    assert charset.complement(charset.EVERYTHING) == charset.NOTHING
    some = ((65, 70), (0xE000, 0xE00F))
    assert charset.complement(charset.complement(some)) == some
    assert charset.difference(((60, 80),), some) == ((60, 64), (71, 80))


@pytest.mark.parametrize("escape", [r"\d", r"\D", r"\w", r"\W", r"\s", r"\S"])
@pytest.mark.parametrize("flags", [0, re.ASCII])
def test_a_category_is_what_re_says(escape: str, flags: int) -> None:
    ranges = charset.category(escape, flags)
    one = re.compile(escape, flags)
    assert all(has(ranges, code) == bool(one.fullmatch(chr(code))) for code in SAMPLE)


@pytest.mark.parametrize("pattern", ["[k]", "[sS]", "[^i]", "[a-z]", "[ßẞ]", "[σ]", r"[^\w]"])
def test_case_is_folded_as_re_does(pattern: str) -> None:
    ranges = charset.folded(pattern, 0)
    one = re.compile(pattern, re.IGNORECASE)
    for code in SAMPLE:
        if has(charset.cased(), code):
            assert has(ranges, code) == bool(one.fullmatch(chr(code))), hex(code)
    plain = re.compile(pattern)
    for code in SAMPLE:
        if not has(charset.cased(), code):
            assert bool(one.fullmatch(chr(code))) == bool(plain.fullmatch(chr(code))), hex(code)
