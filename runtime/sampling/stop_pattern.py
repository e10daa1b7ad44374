"""Stop patterns: where a growing text first contains a match of a regex.

The regex is one of `grammar.dialect`, as Glushkov's automaton (Glushkov 1961), and all its ways
through the text are followed at once, each with where it began (Pike's machine; Cox 2009). So a
character costs at most the automaton's transitions, whatever the text is, and never a way back.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar import dialect
from ramet.runtime.grammar.charset import Ranges
from ramet.runtime.grammar.pattern import Alt, Cat, Chars, Pattern, Repeat, num_positions

MAX_POSITIONS: Final = 500
"""Characters of a pattern with its counts written out."""
MAX_TRANSITIONS: Final = 20_000


class StopPattern:
    """One regex, compiled; immutable, and shared between the samples of a call.

    Raises GrammarError for a regex outside of the dialect, one that is too large, one that matches
    the empty text, and one with an anchor at its beginning: it is looked for everywhere.
    """

    def __init__(self, text: str) -> None:
        try:
            pattern = dialect.parse(text)
        except GrammarError as error:
            raise GrammarError(f"stop_{error}".split(": a constraint is")[0]) from None
        if dialect.begins_anchored(text):
            raise GrammarError(
                f"stop_regex={text!r:.200}: an anchor at the beginning: a stop is looked for "
                "everywhere in the text"
            )
        size = num_positions(pattern)
        if size > MAX_POSITIONS:
            raise GrammarError(
                f"stop_regex={text!r:.200}: too large: with its counts written out it has {size:,} "
                f"characters, and at most {MAX_POSITIONS} are supported"
            )
        self._ranges: list[Ranges] = []
        self.following: list[set[int]] = []
        """For each position of the pattern, those that may come next."""
        self._text = text
        self._left = MAX_TRANSITIONS
        whole = self._build(pattern)
        if whole.nullable:
            raise GrammarError(f"stop_regex={text!r:.200}: it matches the empty text")
        self.first = whole.first
        """The positions that may come first."""
        self.last = frozenset(whole.last)
        """The positions that a match may end with."""
        self.matching = functools.lru_cache(maxsize=4096)(self._matching)
        """The positions that a character can stand at."""

    def _matching(self, character: str) -> frozenset[int]:
        code = ord(character)
        return frozenset(
            position
            for position, ranges in enumerate(self._ranges)
            if any(low <= code <= high for low, high in ranges)
        )

    def _build(self, pattern: Pattern) -> _Part:
        match pattern:
            case Chars(ranges):
                self._ranges.append(ranges)
                self.following.append(set())
                position = len(self._ranges) - 1
                return _Part(False, [position], [position])
            case Alt(options):
                parts = [self._build(option) for option in options]
                return _Part(
                    any(part.nullable for part in parts),
                    [position for part in parts for position in part.first],
                    [position for part in parts for position in part.last],
                )
            case Cat(parts):
                return self._chain(self._build(part) for part in parts)
            case Repeat(body, low, high):
                return self._chain(self._copies(body, low, high))

    def _copies(self, body: Pattern, low: int, high: int | None) -> Iterator[_Part]:
        for index in range(max(low, 1) if high is None else high):
            part = self._build(body)
            if high is None and index >= low - 1:
                self._link(part.last, part.first)
            yield part._replace(nullable=part.nullable or index >= low)

    def _chain(self, parts: Iterable[_Part]) -> _Part:
        nullable, first, last = True, list[int](), list[int]()
        for part in parts:
            self._link(last, part.first)
            first += part.first if nullable else []
            last = (last if part.nullable else []) + part.last
            nullable = nullable and part.nullable
        return _Part(nullable, first, last)

    def _link(self, last: list[int], first: list[int]) -> None:
        self._left -= len(last) * len(first)
        if self._left < 0:
            raise GrammarError(
                f"stop_regex={self._text!r:.200}: too complex: its automaton has more than "
                f"{MAX_TRANSITIONS:,} transitions"
            )
        for position in last:
            self.following[position].update(first)


@functools.lru_cache(maxsize=64)
def compile_stop(text: str) -> StopPattern:
    """The pattern of a regex, kept; raises GrammarError."""
    return StopPattern(text)


class StopSearch:
    """One growing text under one pattern."""

    def __init__(
        self, pattern: StopPattern, may_begin: Callable[[int], bool] | None = None
    ) -> None:
        """`may_begin`: whether a match that begins at an offset in bytes counts, asked where one
        does; by default each counts."""
        self._pattern = pattern
        self._may_begin = may_begin
        self._begun: dict[int, int] = {}
        """For each position that a match under way stands at: where the earliest such began."""
        self._character = bytearray()
        self._length = 0

    def push(self, byte: int) -> int | None:
        """Take the next byte of the text; where the earliest match that ends with it begins, as an
        offset in bytes, or None."""
        self._length += 1
        character = self._character
        if byte & 0xC0 != 0x80 and character:
            self._begun.clear()  # A character that broke off matches nothing.
            character.clear()
        character.append(byte)
        if byte >= 0x80 and len(character) < _size(character[0]):
            return None
        text = character.decode(errors="replace")
        start = self._length - len(character)
        character.clear()
        if len(text) != 1:  # Several signs for what is no character.
            self._begun.clear()
            return None
        return self._step(text, start)

    @property
    def held(self) -> int:
        """How many bytes at the end of the text may belong to a match yet to come."""
        earliest = min(self._begun.values(), default=self._length - len(self._character))
        return self._length - earliest

    def _step(self, character: str, start: int) -> int | None:
        pattern, begun = self._pattern, self._begun
        allowed = pattern.matching(character)
        if not allowed:
            begun.clear()
            return None
        now: dict[int, int] = {}
        for position, began in begun.items():
            for following in pattern.following[position] & allowed:
                if now.get(following, began) >= began:
                    now[following] = began
        fresh = [at for at in pattern.first if at in allowed and at not in now]
        if fresh and (self._may_begin is None or self._may_begin(start)):
            now.update(dict.fromkeys(fresh, start))
        self._begun = now
        return min((began for at, began in now.items() if at in pattern.last), default=None)


class _Part(NamedTuple):
    """A piece of a pattern: whether it matches the empty text, where it begins and ends."""

    nullable: bool
    first: list[int]
    last: list[int]


def _size(lead: int) -> int:
    """Bytes of the character that begins with a byte."""
    return 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
