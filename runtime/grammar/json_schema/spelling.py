"""Spelling: languages as terminals of the mask engine, as plain text or as JSON writes it.

In a JSON string a character may stand for itself, or be escaped in one or two ways. All spellings
of a text are one to every rule here, so that a complement is a complement; only words that a schema
names itself (keys, `const`, `enum`) are asked for in one spelling, with no escape that JSON doesn't
need.
Lone surrogates are no text, and no spelling has them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ramet.runtime.grammar import charset
from ramet.runtime.grammar.charset import EVERYTHING, Ranges
from ramet.runtime.grammar.json_schema.language import (
    All,
    Any,
    Cat,
    Chars,
    Language,
    Not,
    Repeat,
    Words,
)
from ramet.runtime.grammar.lark_text import character_set, count, literal, point
from ramet.runtime.grammar.patience import check

_SHORT: Final = {'"': '"', "\\": "\\", "/": "/", "\b": "b", "\f": "f"}
_SHORT.update({"\n": "n", "\r": "r", "\t": "t"})
_RAW: Final = charset.complement(charset.union(((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C))))
_ANY_ESCAPE: Final = (
    r'/\\(["\\\/bfnrt]|u([0-9A-CE-Fa-ce-f][0-9A-Fa-f]{3}|[Dd][0-7][0-9A-Fa-f]{2}'
    r"|[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}))/"
)


class Terminals:
    """The terminals of one grammar: each language once, by its name."""

    def __init__(self) -> None:
        self.lines: dict[str, str] = {}
        """What a terminal is, by its name, in the order in which they were made."""
        self._names: dict[str, str] = {}
        self._known: dict[tuple[Language, bool, bool], str] = {}

    def text(self, language: Language) -> str:
        """A terminal for a language as it is."""
        return self.named(self._write(language, False, True))

    def string(self, language: Language) -> str:
        """A terminal for a language as JSON strings, quotes included."""
        return self.named(f'"\\"" {self._write(language, True, True)} "\\""')

    def _write(self, language: Language, quoted: bool, wanted: bool) -> str:
        """A name or a literal that binds as one; `wanted` unless under a complement."""
        key = (language, quoted, wanted)
        if key not in self._known:
            self._known[key] = self._new(language, quoted, wanted)
        return self._known[key]

    def _new(self, language: Language, quoted: bool, wanted: bool) -> str:
        check()

        def write(inner: Language) -> str:
            return self._write(inner, quoted, wanted)

        match language:
            case Chars():
                return self.named(_quoted_set(language.ranges) if quoted else _set(language.ranges))
            case Words():
                return self._words(language.texts, quoted, wanted, write)
            case Cat():
                return self.named(" ".join(map(write, language.parts)))
            case Any():
                return self.named(" | ".join(map(write, language.options)))
            case Repeat():
                return self.named(write(language.body) + count(language.low, language.high))
            case All() | Not():
                # A bare complement would have what is no UTF-8, or no spelling.
                parts = language.parts if isinstance(language, All) else (language,)
                base = write(Repeat(Chars(EVERYTHING), 0, None))
                found = [part for part in parts if not isinstance(part, Not)]
                written = [*map(write, found)] or [base]
                written += [
                    f"~{self._write(part.body, quoted, not wanted)}"
                    for part in parts
                    if isinstance(part, Not)
                ]
                return self.named(" & ".join(written))

    def _words(
        self,
        texts: tuple[str, ...],
        quoted: bool,
        wanted: bool,
        write: Callable[[Language], str],
    ) -> str:
        if not texts:
            return self.named('"a" & "b"')
        written = []
        for text in texts:
            if not quoted or wanted:
                # What is asked for has one spelling: it can then be forced.
                written.append(literal(canonical(text) if quoted else text))
                continue
            chars = [Chars(((ord(character), ord(character)),)) for character in text]
            written.append(" ".join(map(write, chars)) or '""')
        return self.named(" | ".join(written))

    def named(self, text: str) -> str:
        """The name of a terminal, by its right side."""
        if text not in self._names:
            self._names[text] = f"T{len(self._names)}"
            self.lines[self._names[text]] = text
        return self._names[text]


def canonical(text: str) -> str:
    """A text within a JSON string, with the escapes that it needs and no others."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _set(ranges: Ranges) -> str:
    return character_set(ranges) if ranges else '"a" & "b"'


def _quoted_set(ranges: Ranges) -> str:
    """One character of a set, in all its spellings."""
    if ranges == EVERYTHING:
        return f"{_set(_RAW)} | {_ANY_ESCAPE}"
    found = []
    raw = charset.difference(ranges, charset.complement(_RAW))
    if raw:
        found.append(_set(raw))
    short = "".join(
        point(ord(letter))
        for character, letter in _SHORT.items()
        if any(first <= ord(character) <= last for first, last in ranges)
    )
    if short:
        found.append(f"/\\\\[{short}]/")
    codes = "|".join(_codes(ranges))
    if codes:
        found.append(f"/\\\\u({codes})/")
    return " | ".join(found) or '"a" & "b"'


def _codes(ranges: Ranges) -> Iterator[str]:
    """What may follow `\\u`, as regular expressions; ranges are never within surrogates."""
    yield from _hex_of([(first, min(last, 0xFFFF)) for first, last in ranges if first <= 0xFFFF], 4)
    pairs: dict[int, list[tuple[int, int]]] = {}
    whole: list[tuple[int, int]] = []
    for first, last in ranges:
        first, last = max(first, 0x10000) - 0x10000, last - 0x10000
        while first <= last:
            high = first >> 10
            end = min(last, (high << 10) + 0x3FF)
            if first == high << 10 and end - first == 0x3FF:
                tops = ((last + 1) >> 10) - 1
                whole.append((0xD800 + high, 0xD800 + tops))
                first = (tops + 1) << 10
            else:
                pairs.setdefault(high, []).append(
                    (0xDC00 + (first & 0x3FF), 0xDC00 + (end & 0x3FF))
                )
                first = end + 1
    if whole:
        yield f"({'|'.join(_hex_of(whole, 4))})\\\\u[Dd][C-Fc-f][0-9A-Fa-f]{{2}}"
    for high, lows in pairs.items():
        (top,) = _hex_of([(0xD800 + high,) * 2], 4)
        yield f"{top}\\\\u({'|'.join(_hex_of(lows, 4))})"


def _hex_of(ranges: Iterable[tuple[int, int]], width: int) -> list[str]:
    """Regular expressions for the numbers of some ranges, in so many hexadecimal digits.

    Numbers with a common first digit share it, and first digits with the same rest share that.
    """
    if width == 0:
        return [""]
    check()
    size = 16 ** (width - 1)
    rests: dict[int, list[tuple[int, int]]] = {}
    for first, last in ranges:
        for digit in range(first // size, last // size + 1):
            low, high = max(first - digit * size, 0), min(last - digit * size, size - 1)
            rests.setdefault(digit, []).append((low, high))
    digits: dict[str, list[int]] = {}
    for digit, rest in rests.items():
        full = rest == [(0, size - 1)]
        tail = f"[0-9A-Fa-f]{{{width - 1}}}" if full and width > 1 else None
        if tail is None:
            options = _hex_of(rest, width - 1)
            tail = options[0] if len(options) == 1 else f"({'|'.join(options)})"
        digits.setdefault(tail, []).append(digit)
    return [_digit_class(found) + tail for tail, found in digits.items()]


def _digit_class(digits: list[int]) -> str:
    letters = "".join(f"{digit:x}" if digit < 10 else f"{digit:x}{digit:X}" for digit in digits)
    return letters if len(letters) == 1 else f"[{letters}]"
