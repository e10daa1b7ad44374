"""Stop patterns against Python's `re`, which looks at every beginning of the text anew."""

from __future__ import annotations

import random
import re

import pytest

from ramet.runtime.errors import GrammarError
from ramet.runtime.sampling.stop_pattern import StopPattern, StopSearch

PATTERNS = [
    "ab", "a+b", "a|bb", "(ab|ba)+c", "[^a]b?c", "a{2,4}", "(a?){3}b", "a(b|c)*d", r"\n\n",
    "(?i)AB", "a.b", "(a*)*b", "b(a?b){2,}", "是|a是b", "c$", "(a+)+$", "a*b*c", "(ab?)+c|bb",
]  # fmt: skip


def first_match(pattern: str, text: str) -> tuple[int, int] | None:
    """(end, start): the earliest end of a match, and the earliest start of those, in characters."""
    bare = re.compile(pattern.removesuffix("$"))
    for end in range(1, len(text) + 1):
        for start in range(end):
            if bare.fullmatch(text, start, end):
                return end, start
    return None


def searched(pattern: str, data: bytes) -> tuple[int, int] | None:
    search = StopSearch(StopPattern(pattern))
    for end, byte in enumerate(data, 1):
        start = search.push(byte)
        if start is not None:
            return end, start
    return None


@pytest.mark.parametrize("pattern", PATTERNS)
def test_it_finds_the_first_end_and_its_first_start(pattern: str) -> None:
    draw = random.Random(pattern)
    for _ in range(300):
        text = "".join(draw.choices("abcdAB是\n", k=draw.randrange(12)))
        found = first_match(pattern, text)
        expected = found and (len(text[: found[0]].encode()), len(text[: found[1]].encode()))
        assert searched(pattern, text.encode()) == expected, text


@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_is_held_is_what_may_become_a_match(pattern: str) -> None:
    """Whatever precedes the held bytes can't be part of any match, in any continuation tried."""
    draw = random.Random(pattern)
    for _ in range(300):
        text = "".join(draw.choices("abcdAB是\n", k=draw.randrange(1, 12)))
        search = StopSearch(StopPattern(pattern))
        settled = 0
        for end in range(1, len(text) + 1):
            found = [search.push(byte) for byte in text[end - 1].encode()][-1]
            if found is not None:
                assert found >= settled
                break
            settled = len(text[:end].encode()) - search.held


def test_broken_characters_match_nothing_and_end_what_had_begun() -> None:
    assert searched("ab", b"a\xe6b ab") == (6, 4)
    assert searched("a.b", b"a\xe6\x98b") is None
    assert searched("是", "x是".encode()) == (4, 1)
    assert searched("[^x]", b"\x80") == (1, 0)


@pytest.mark.parametrize(
    ("regex", "match"),
    [
        ("a*", "the empty text"),
        ("^a", "anchor at the beginning"),
        (r"(?:\Aa|b)", "anchor at the beginning"),
        ("a{501}", "501"),
        ("(a?){200}b", "transitions"),
        (r"\bx", "word boundary"),
        ("(", "missing"),
        ("(?=a)b", "look-around"),
    ],
)
def test_what_is_no_stop(regex: str, match: str) -> None:
    with pytest.raises(GrammarError, match=match):
        StopPattern(regex)


def test_work_is_linear_in_the_text() -> None:
    search = StopSearch(StopPattern("(a+)+b"))
    steps = 0
    for _ in range(10_000):
        assert search.push(ord("a")) is None
        steps += len(search._begun)
    assert steps == 10_000
    assert search.held == 10_000
    assert search.push(ord("b")) == 0


def test_matches_count_where_they_may_begin() -> None:
    for text, allowed, expected in (
        ("37)", {1, 2}, (3, 1)),
        ("37)", {2}, (3, 2)),
        ("37)", {0, 3}, None),
        ("77)", {0, 1, 2}, (3, 1)),
        ("7)7)", {3}, (4, 3)),
    ):
        asked: list[int] = []

        def may_begin(offset: int, allowed: set[int] = allowed, asked: list[int] = asked) -> bool:
            asked.append(offset)
            return offset in allowed

        search = StopSearch(StopPattern(r"7?\)"), may_begin)
        found = None
        for end, byte in enumerate(text.encode(), 1):
            start = search.push(byte)
            if start is not None and found is None:
                found = end, start
        assert found == expected, text
        assert asked == sorted(set(asked))


def test_errors_name_the_argument() -> None:
    for text in ("(?<=a)b", "a(", r"a\b"):
        with pytest.raises(GrammarError, match=r"^stop_regex="):
            StopPattern(text)
