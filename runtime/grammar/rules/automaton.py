"""Automata of terminals, over classes of characters.

Positions are those of Glushkov (1961), sets of them the bits of an int. Large counts are taken as
any number, which answers the question too often with yes, and never with a wrong no.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from ramet.runtime.grammar.charset import Ranges, union
from ramet.runtime.grammar.patience import check
from ramet.runtime.grammar.rules.nodes import Alt, Cat, Chars, Nodes, Ref, Repeat

MAX_POSITIONS = 10_000
"""Larger terminals are taken to conflict with all that begin alike."""
MAX_WORK = 300_000
"""Steps in telling the characters of states apart."""
MAX_WRITTEN = 100
"""Positions that counts may add up to where they are taken exactly."""


class Alphabet:
    """The characters in classes that no set of a grammar tells apart; a set is bits of classes."""

    def __init__(self, sets: Iterable[Ranges]) -> None:
        known = list(dict.fromkeys(sets))
        events: dict[int, int] = {}
        for number, ranges in enumerate(known):
            for first, last in ranges:
                events[first] = events.get(first, 0) ^ 1 << number
                events[last + 1] = events.get(last + 1, 0) ^ 1 << number
        masks = [0] * len(known)
        classes: dict[int, int] = {}
        self._leads: list[int] = []
        self._spans: list[list[tuple[int, int]]] = []
        members, begin = 0, 0
        for point in sorted(events):
            check()
            if members:
                atom = classes.setdefault(members, len(classes))
                if atom == len(self._leads):
                    self._leads.append(0)
                    self._spans.append([])
                    for number in bits(members):
                        masks[number] |= 1 << atom
                self._leads[atom] |= _lead_bytes(begin, point - 1)
                self._spans[atom].append((begin, point - 1))
            members ^= events[point]
            begin = point
        self._masks = dict(zip(known, masks, strict=True))

    def mask(self, ranges: Ranges) -> int:
        """A set's classes; the set is one of the grammar's, or a union of classes."""
        found = self._masks.get(ranges)
        if found is None:
            found = 0
            for atom, spans in enumerate(self._spans):
                if any(first <= spans[0][0] <= last for first, last in ranges):
                    found |= 1 << atom
            self._masks[ranges] = found
        return found

    def ranges(self, mask: int) -> Ranges:
        """The set of the classes."""
        return union(span for atom in bits(mask) for span in self._spans[atom])

    def lead_bytes(self, mask: int) -> int:
        """The bytes that characters of the classes begin with in UTF-8, as bits."""
        found = 0
        for atom in bits(mask):
            found |= self._leads[atom]
        return found


@dataclasses.dataclass(slots=True)
class _Part:
    """A part's positions: those it begins and ends with; whether it can be empty."""

    first: int
    last: int
    empty: bool


class Automaton:
    """The positions of one terminal; None of them if there are too many."""

    def __init__(self, nodes: Nodes, node: int, alphabet: Alphabet, first: int) -> None:
        """`first`: the classes that its texts begin with."""
        self.first = first
        self._nodes = nodes
        self._alphabet = alphabet
        self._masks: list[int] = []
        self._follow: list[int] = []
        self._moves: dict[int, list[tuple[int, int]]] = {}
        self._work = 0
        whole = self._part(node)
        self.is_known = len(self._masks) <= MAX_POSITIONS
        """Whether it is small enough to ask; that may show when it is asked."""
        self._last = whole.last
        self._moves[0] = self._classes(whole.first)

    def accepts(self, state: int) -> bool:
        """Whether a text may end in a state, other than the beginning."""
        return bool(state & self._last)

    def moves(self, state: int) -> list[tuple[int, int]]:
        """The classes that may follow and the states they lead to; state 0 is the beginning."""
        found = self._moves.get(state)
        if found is None:
            reached = 0
            for position in bits(state):
                reached |= self._follow[position]
            found = self._moves[state] = self._classes(reached)
        return found

    def _classes(self, positions: int) -> list[tuple[int, int]]:
        found: dict[int, int] = {}
        for position in bits(positions):
            check()
            rest = self._masks[position]
            self._work += len(found)
            if self._work > MAX_WORK:
                self.is_known = False
                return []
            for mask, state in list(found.items()):
                both = mask & rest
                if both:
                    del found[mask]
                    found[both] = state | 1 << position
                    if mask != both:
                        found[mask ^ both] = state
                    rest ^= both
                if not rest:
                    break
            if rest:
                found[rest] = 1 << position
        return list(found.items())

    def _part(self, node: int) -> _Part:
        check()
        match self._nodes[node]:
            case _ if len(self._masks) > MAX_POSITIONS:
                return _Part(0, 0, False)
            case Chars(ranges):
                self._masks.append(self._alphabet.mask(ranges))
                self._follow.append(0)
                position = 1 << len(self._masks) - 1
                return _Part(position, position, False)
            case Cat(parts):
                return self._sequence(map(self._part, parts))
            case Alt(parts):
                return self._either(map(self._part, parts))
            case Repeat(body, low, high):
                return self._repeat(body, low, high)
            case Ref(rule):
                raise ValueError(f"rule {rule} in a terminal")

    def _sequence(self, parts: Iterable[_Part]) -> _Part:
        whole = _Part(0, 0, True)
        for part in parts:
            for position in bits(whole.last):
                self._follow[position] |= part.first
            first = whole.first | (part.first if whole.empty else 0)
            last = part.last | (whole.last if part.empty else 0)
            whole = _Part(first, last, whole.empty and part.empty)
        return whole

    def _either(self, parts: Iterable[_Part]) -> _Part:
        whole = _Part(0, 0, False)
        for part in parts:
            whole.first |= part.first
            whole.last |= part.last
            whole.empty |= part.empty
        return whole

    def _repeat(self, body: int, low: int, high: int | None) -> _Part:
        if high is not None and self._nodes.size(body) * high <= MAX_WRITTEN:
            return self._sequence(self._copies(body, low, high))
        if high is None and low > 1 and self._nodes.size(body) * low <= MAX_WRITTEN:
            return self._sequence([*self._copies(body, low, low - 1), self._repeat(body, 1, None)])
        part = self._part(body)
        for position in bits(part.last):
            self._follow[position] |= part.first
        part.empty |= low == 0
        return part

    def _copies(self, body: int, low: int, high: int) -> Iterator[_Part]:
        for turn in range(high):
            part = self._part(body)
            part.empty |= turn >= low
            yield part


def bits(number: int) -> Iterator[int]:
    """The positions of a number's bits, ascending."""
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low


def _lead_bytes(first: int, last: int) -> int:
    """The bytes that characters of a range begin with."""
    low, high = (chr(code).encode()[0] for code in (first, last))
    return (1 << high + 1) - (1 << low)
