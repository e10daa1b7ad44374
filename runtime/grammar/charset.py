"""Sets of characters, exactly as Python's own regex engine has them.

A set is a tuple of (first, last) code points, ascending, neither overlapping nor adjacent, and
without surrogates, which no text contains. What `\\w`, `\\d` and `\\s` mean, and which letters are
equal under `(?i)`, is asked of `re` itself, so no Unicode table of another version can disagree.
"""

from __future__ import annotations

import array
import functools
import re
import sys
from collections.abc import Iterable, Iterator

from ramet.runtime.grammar.patience import check

Ranges = tuple[tuple[int, int], ...]

EVERYTHING: Ranges = ((0, 0xD7FF), (0xE000, 0x10FFFF))
"""All characters that a text can contain."""

NOTHING: Ranges = ()


def union(*sets: Iterable[tuple[int, int]]) -> Ranges:
    """The characters of any of the sets, which need not be in order."""
    check()
    merged: list[tuple[int, int]] = []
    for first, last in sorted(pair for some in sets for pair in some):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(_without_surrogates(merged))


def complement(ranges: Ranges) -> Ranges:
    """All other characters."""
    gaps: list[tuple[int, int]] = []
    start = 0
    for first, last in ranges:
        if start < first:
            gaps.append((start, first - 1))
        start = last + 1
    if start <= 0x10FFFF:
        gaps.append((start, 0x10FFFF))
    return tuple(_without_surrogates(gaps))


def difference(ranges: Ranges, taken: Ranges) -> Ranges:
    """The characters of `ranges` that are not in `taken`."""
    return complement(union(complement(ranges), taken))


@functools.lru_cache(maxsize=32)
def category(escape: str, flags: int) -> Ranges:
    """What a class escape (`\\d`, `\\W`, …) matches under `re` flags."""
    runs = re.finditer(f"{escape}+", _every_character(), flags)
    return union((_at(run.start()), _at(run.end() - 1)) for run in runs)


@functools.lru_cache(maxsize=4096)
def folded(pattern: str, flags: int) -> Ranges:
    """The characters with upper or lower case that a class matches under `(?i)` flags."""
    found = re.findall(pattern, _cased(), flags | re.IGNORECASE)
    return union((ord(character), ord(character)) for character in found)


@functools.lru_cache(maxsize=1)
def cased() -> Ranges:
    """The characters that `(?i)` may treat differently; all others match only themselves."""
    return union((ord(character), ord(character)) for character in _cased())


def _without_surrogates(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The same ranges, cut where surrogates would be."""
    for first, last in ranges:
        if last < 0xD800 or first > 0xDFFF:
            yield first, last
            continue
        if first < 0xD800:
            yield first, 0xD7FF
        if last > 0xDFFF:
            yield 0xE000, last


def _at(index: int) -> int:
    """The code point at an index of `_every_character`."""
    return index if index < 0xD800 else index + 0x800


def _every_character() -> str:
    points = array.array("I", range(0xD800))
    points.extend(range(0xE000, 0x110000))
    return points.tobytes().decode(f"utf-32-{sys.byteorder[0]}e")


@functools.lru_cache(maxsize=1)
def _cased() -> str:
    """All characters that change with case, and all that these change to."""
    text = _every_character()
    found: set[str] = set()
    for start in range(0, len(text), 256):
        block = text[start : start + 256]
        if block.lower() == block == block.upper():
            continue
        for character in block:
            low, high = character.lower(), character.upper()
            if low != character or high != character:
                found.update(character, low, high, low.upper(), high.lower())
    return "".join(sorted(found))
