"""Pace: how much white space and how many digits in a row a JSON document may have.

A policy of generation, not of the language: a finished text is accepted with more. Without it, a
model that likes newlines or digits pads until its budget is gone. The text of strings is free.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ramet.runtime.grammar.bits import bits_of

MAX_WHITESPACE = 16
"""White space in a row, outside of strings: enough for a line's end and an indent of 15."""
MAX_DIGITS = 32
"""Digits in a row, outside of strings: more than a double (17) or a 64-bit integer (20) needs."""

_SPACE = b" \t\n\r"
_DIGITS = b"0123456789"
_TOO_LONG = re.compile(rb"[ \t\n\r]{%d}|[0-9]{%d}" % (MAX_WHITESPACE + 1, MAX_DIGITS + 1))
_INSIDE = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\\?\Z)', re.DOTALL)


class Barred:
    """The tokens of a vocabulary that would make a run too long, by the run before them.

    Built once for a vocabulary; memory is a set for each length of a run that tokens can exceed.
    """

    def __init__(self, tokens: Iterable[tuple[bytes, int]]) -> None:
        """`tokens`: (bytes, id) of all tokens with text."""
        space: dict[int, list[int]] = {}
        digits: dict[int, list[int]] = {}
        outside: list[int] = []
        inside: list[int] = []
        for text, token in tokens:
            space_run = len(text) - len(text.lstrip(_SPACE))
            digit_run = len(text) - len(text.lstrip(_DIGITS))
            if space_run:
                space.setdefault(min(space_run, MAX_WHITESPACE + 1), []).append(token)
            elif digit_run:
                digits.setdefault(min(digit_run, MAX_DIGITS + 1), []).append(token)
            before, _, behind = text[space_run or digit_run :].partition(b'"')
            if _TOO_LONG.search(before):
                outside.append(token)
            if _TOO_LONG.search(behind):
                inside.append(token)
        always = bits_of(outside)
        spaces, numbers = _by_run(space, MAX_WHITESPACE), _by_run(digits, MAX_DIGITS)
        self._space = [bits | numbers[0] | always for bits in spaces]
        self._digits = [bits | spaces[0] | always for bits in numbers]
        self.inside = bits_of(inside)
        """The tokens barred within strings: those that might end one and go on too long."""

    def after(self, whitespace: int, digits: int) -> int:
        """The tokens barred outside of strings after a run of white space, or of digits."""
        if whitespace:
            return self._space[min(whitespace, MAX_WHITESPACE)]
        return self._digits[min(digits, MAX_DIGITS)]


class Pace:
    """The run at the end of one document."""

    __slots__ = ("_barred", "_digits", "_open", "_whitespace")

    def __init__(self, barred: Barred) -> None:
        self._barred = barred
        self._open = b""
        """Within a string: its quote, and the backslash if one is the last byte."""
        self._whitespace = 0
        self._digits = 0

    def copy(self) -> Pace:
        """The same, on its own from here."""
        twin = Pace(self._barred)
        twin._open = self._open
        twin._whitespace = self._whitespace
        twin._digits = self._digits
        return twin

    def push(self, data: bytes) -> None:
        """Read on."""
        if not data:
            return
        if not self._open and b'"' not in data:
            self._whitespace = _run(data, _SPACE, self._whitespace)
            self._digits = _run(data, _DIGITS, self._digits)
            return
        if self._open == b'"' and b'"' not in data and b"\\" not in data:
            return
        whole = self._open + data
        strings = _INSIDE.findall(whole)
        self._open = b""
        if strings and whole.endswith(strings[-1]) and not _is_closed(strings[-1]):
            self._open = b'"\\' if _ends_in_escape(strings[-1]) else b'"'
            self._whitespace = self._digits = 0
            return
        self._whitespace = _run(data, _SPACE, self._whitespace)
        self._digits = _run(data, _DIGITS, self._digits)

    @property
    def barred(self) -> int:
        """The tokens that should not come next, as bits.

        Where a constraint allows nothing else (a `const` of 40 digits), the caller has to give way.
        """
        if self._open:
            return self._barred.inside
        return self._barred.after(self._whitespace, self._digits)


def _run(data: bytes, kind: bytes, before: int) -> int:
    """The length of the run of some bytes at the end."""
    rest = len(data.rstrip(kind))
    return len(data) - rest if rest else before + len(data)


def _is_closed(text: bytes) -> bool:
    """Whether a string that reaches to the end has its closing quote."""
    return len(text) > 1 and text.endswith(b'"') and not _ends_in_escape(text[:-1])


def _ends_in_escape(text: bytes) -> bool:
    """Whether the last byte of a begun string is a backslash that escapes what follows."""
    return (len(text) - len(text.rstrip(b"\\"))) % 2 == 1


def _by_run(tokens: dict[int, list[int]], limit: int) -> list[int]:
    """By the length of the run before, the tokens whose own run makes it too long."""
    sets = []
    for before in range(limit + 1):
        sets.append(
            bits_of(t for run, some in tokens.items() if before + run > limit for t in some)
        )
    return sets
