"""A Pattern in llguidance's Lark syntax, as one terminal made of smaller ones.

Whatever contains something else gets a terminal of its own, so that the text is never nested and a
large set of characters stands in it once.
"""

from __future__ import annotations

import re

from ramet.runtime.grammar.charset import Ranges
from ramet.runtime.grammar.patience import check
from ramet.runtime.grammar.pattern import Alt, Cat, Chars, Pattern, Repeat

HEADER = '%llguidance {"no_forcing": true}\n'
"""Masks show every token that may come next, not only the first of a forced text: forcing is a
step of its own."""

_NAMES = re.compile(r'/(?:[^/\\]|\\.)+/[a-z]*|"(?:[^"\\]|\\.)*"[a-z]*|\b([A-Z][A-Z0-9_]*)\b')
"""Regexes and strings, in which names mean nothing, and the names of terminals."""

INLINE_RANGES = 4
"""Larger sets of characters are named."""


def lark_text(pattern: Pattern) -> str:
    """A grammar whose texts are those of `pattern`."""
    return "\n".join((f"{HEADER}start: WHOLE", *terminal(pattern, "WHOLE", "T"), ""))


def terminal(pattern: Pattern, name: str, prefix: str) -> list[str]:
    """The rules of one terminal whose texts are those of `pattern`, with those of its parts, whose
    names are `prefix` and a number."""
    writer = _Writer(prefix)
    body = writer.expression(pattern)
    return [f"{name}: {body}", *(f"{part}: {text}" for text, part in writer.terminals.items())]


def literal(text: str) -> str:
    """A text, as an expression."""
    return f"/{''.join(point(ord(char)) for char in text)}/" if text else '""'


def lone_terminal(lark: str, prefix: str) -> tuple[str, list[str]] | None:
    """The terminal that a whole grammar is, if it is one, and the rules of terminals, whose names
    get a prefix."""
    head, *rules = [line for line in lark.splitlines() if line and not line.startswith(HEADER[:11])]
    start = re.fullmatch(r"start: *([A-Z][A-Z0-9_]*) *", head)
    if start is None or not all(re.match("[A-Z][A-Z0-9_]*:", rule) for rule in rules):
        return None

    def renamed(found: re.Match[str]) -> str:
        return f"{prefix}{found[1]}" if found[1] else found[0]

    return f"{prefix}{start[1]}", [_NAMES.sub(renamed, rule) for rule in rules]


class _Writer:
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.terminals: dict[str, str] = {}
        """Names of terminals, by what they are."""
        self._sets: dict[Ranges, str] = {}

    def expression(self, pattern: Pattern) -> str:
        """The right side of a terminal's rule."""
        check()
        match pattern:
            case Chars():
                return self._chars(pattern.ranges)
            case Cat():
                return self._cat(pattern.parts)
            case Alt():
                return " | ".join(map(self._operand, pattern.options))
            case Repeat():
                return self._operand(pattern.body) + count(pattern.low, pattern.high)

    def _operand(self, pattern: Pattern) -> str:
        """An expression that binds as one: an alternative of literal text, or a terminal."""
        if isinstance(pattern, Chars):
            return self._chars(pattern.ranges)
        text = self.expression(pattern)
        return text if isinstance(pattern, Cat) and " " not in text else self._named(text)

    def _cat(self, parts: tuple[Pattern, ...]) -> str:
        found: list[str] = []
        literal = ""
        for part in parts:
            if isinstance(part, Chars) and is_single(part.ranges):
                literal += point(part.ranges[0][0])
                continue
            if literal:
                found.append(f"/{literal}/")
                literal = ""
            found.append(self._operand(part))
        if literal:
            found.append(f"/{literal}/")
        return " ".join(found) or '""'

    def _chars(self, ranges: Ranges) -> str:
        if (known := self._sets.get(ranges)) is not None:
            return known
        text = character_set(ranges)
        self._sets[ranges] = text if len(ranges) <= INLINE_RANGES else self._named(text)
        return self._sets[ranges]

    def _named(self, text: str) -> str:
        return self.terminals.setdefault(text, f"{self._prefix}{len(self.terminals)}")


def character_set(ranges: Ranges) -> str:
    """One character of a set, which isn't empty."""
    if is_single(ranges):
        return f"/{point(ranges[0][0])}/"
    inner = "".join(
        point(first) if first == last else f"{point(first)}-{point(last)}" for first, last in ranges
    )
    return f"/[{inner}]/"


def is_single(ranges: Ranges) -> bool:
    """Whether a set has one character."""
    return len(ranges) == 1 and ranges[0][0] == ranges[0][1]


def point(code: int) -> str:
    """One character within a regex."""
    return f"\\x{{{code:x}}}"


def count(low: int, high: int | None) -> str:
    """What follows an expression that is repeated; `high` None is without end."""
    if high is None:
        return {0: "*", 1: "+"}.get(low, f"{{{low},}}")
    return "?" if (low, high) == (0, 1) else f"{{{low},{high}}}"
