"""Characters as JSON strings write them: which are cheapest, and how a begun one can go on."""

from __future__ import annotations

import functools
import json
import re
from bisect import bisect_right
from collections.abc import Iterator

from ramet.runtime.grammar.charset import Ranges

_PLAIN = "a0A_-. " + "".join(map(chr, range(0x21, 0x7F)))
_PREFERRED = [code for code in map(ord, dict.fromkeys(_PLAIN)) if chr(code) not in '"\\']
"""What is written as itself, in one byte; in order of preference."""
_ESCAPES = {"n": 10, "t": 9, '"': 34, "\\": 92, "r": 13, "b": 8, "f": 12, "/": 47}
_CONTROLS: Ranges = ((0, 0x1F), (0x7F, 0x7F))
"""What has to be written as an escape, or may."""


def written(code: int) -> bytes:
    """A character inside a JSON string."""
    if code == 0x7F or 0xD800 <= code <= 0xDFFF:
        return b"\\u%04x" % code
    return json.dumps(chr(code), ensure_ascii=False)[1:-1].encode()


def holds(ranges: Ranges, code: int) -> bool:
    """Whether a set has a character."""
    at = bisect_right(ranges, (code, 0x110000)) - 1
    return at >= 0 and ranges[at][0] <= code <= ranges[at][1]


def common(one: Ranges, other: Ranges) -> Ranges:
    """The characters of both sets."""
    found = []
    i = j = 0
    while i < len(one) and j < len(other):
        first, last = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if first <= last:
            found.append((first, last))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


@functools.lru_cache(maxsize=4096)
def cheapest(ranges: Ranges) -> tuple[int, int, bytes]:
    """(bytes, character, text) of a set's shortest character; of the empty set, far too many."""
    if not ranges:
        return 1 << 60, 0, b""
    for code in _PREFERRED:
        if holds(ranges, code):
            return 1, code, bytes([code])
    firsts = [first for first, _ in ranges] + [
        max(first, 32) for first, last in ranges if last > 31
    ]
    firsts += [code for code in sorted(_ESCAPES.values()) if holds(ranges, code)]
    code = min(firsts[:64] + firsts[-64:], key=lambda first: (len(written(first)), first))
    return len(written(code)), code, written(code)


def unfinished(data: bytes) -> bytes:
    """The begun character at the end of UTF-8."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            size = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[-back:] if back < size else b""
        if byte < 0x80:
            break
    return b""


def continuations(part: bytes, high: int, sets: list[Ranges]) -> Iterator[tuple[bytes, int]]:
    """(what completes it, the character) of a begun escape or UTF-8 sequence, likely ones first.

    `high`: the high surrogate that an escape before it wrote, or 0. `sets`: characters that would
    do; where there are none, any would.
    """
    if not part:
        yield b"\\udc00", _pair(high, 0xDC00)
    elif part[:1] != b"\\":
        first, last = _utf8_range(part)
        for code in _picks(first, last, sets):
            yield chr(code).encode()[len(part) :], code
    elif part == b"\\":
        if high:
            yield b"udc00", _pair(high, 0xDC00)
        for letter, code in _ESCAPES.items():
            yield letter.encode(), code
        for code in _picks(0, 0xFFFF, sets):
            yield b"u%04x" % code, code
    else:
        yield from _hex_continuations(part[2:], high, sets)


def _hex_continuations(digits: bytes, high: int, sets: list[Ranges]) -> Iterator[tuple[bytes, int]]:
    missing = 4 - len(digits)
    first = int(digits or b"0", 16) << 4 * missing
    last = first + (1 << 4 * missing) - 1

    def rest(code: int) -> bytes:
        return (b"%04x" % code)[len(digits) :]

    if high and last >= 0xDC00 and first <= 0xDFFF:
        low = max(first, 0xDC00)
        yield rest(low), _pair(high, low)
    for code in _picks(first, last, sets):
        yield rest(code), code
    if first >= 0xD800 and last <= 0xDBFF:
        yield rest(first) + b"\\udc00", _pair(first, 0xDC00)
    if first >= 0xD800 and last <= 0xDFFF:
        yield rest(first), first


def _pair(high: int, low: int) -> int:
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)


def _picks(first: int, last: int, sets: list[Ranges]) -> Iterator[int]:
    """A few characters between two: what has to be escaped first, then what the sets have."""
    whole = common(((first, last),), ((0, 0xD7FF), (0xE000, 0x10FFFF)))
    picked: dict[int, None] = {}
    mine = [both for chars in (sets or [whole])[:8] if (both := common(chars, whole))]
    for chars in [*(common(chars, _CONTROLS) for chars in mine), *mine]:
        if chars:
            picked[chars[-1][1] if chars[-1][1] < 0x80 else chars[0][0]] = None
            picked[chars[0][0]] = None
    yield from picked


def _utf8_range(part: bytes) -> tuple[int, int]:
    """The characters whose UTF-8 begins with `part`, which is not a whole one."""
    lead = part[0]
    size, bits, floor = (
        (2, lead & 0x1F, 0x80)
        if lead < 0xE0
        else (3, lead & 0x0F, 0x800)
        if lead < 0xF0
        else (4, lead & 0x07, 0x10000)
    )
    for byte in part[1:]:
        bits = bits << 6 | byte & 0x3F
    missing = 6 * (size - len(part))
    return max(bits << missing, floor), min(((bits + 1) << missing) - 1, 0x10FFFF)


HEX = re.compile(rb"[0-9a-fA-F]*")
"""Digits of an escape."""
