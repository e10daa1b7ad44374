"""Comparing terminals: can a text of one be the beginning of another's?

Where that would take too long the answer is yes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ramet.runtime.grammar.patience import check
from ramet.runtime.grammar.rules.automaton import Alphabet, Automaton
from ramet.runtime.grammar.rules.nodes import Alt, Cat, Chars, Nodes, Repeat

MAX_PAIRS = 12_000
"""Pairs of states that one comparison may visit before it gives up."""
MAX_ALL_PAIRS = 60_000
"""Those that all comparisons of a grammar may visit."""

ANY_BYTE = (1 << 256) - 1


class Comparisons:
    """What is known of terminals, by their nodes, and of pairs of them."""

    def __init__(self, nodes: Nodes, roots: Sequence[int]) -> None:
        """Of the roots and all their parts."""
        inner = (nodes[node] for node in nodes.within(roots))
        self._nodes = nodes
        self.alphabet = Alphabet(node.ranges for node in inner if isinstance(node, Chars))
        self.first, self._empty = beginnings(nodes, roots, self.alphabet)
        self._left = MAX_ALL_PAIRS
        self._automata: dict[int, Automaton] = {}
        self._known: dict[tuple[int, int], tuple[bool, int, int]] = {}

    def learn(self, roots: Sequence[int]) -> None:
        """Take in nodes more, whose sets of characters tell no more characters apart."""
        first, empty = beginnings(self._nodes, roots, self.alphabet)
        self.first |= first
        self._empty |= empty

    def is_empty(self, node: int) -> bool:
        """Whether the empty text is one of a node."""
        return node in self._empty

    def onward(self, one: int, other: int) -> tuple[bool, int]:
        """Whether they have a text in common, and the bytes with which a text of `one` goes on as
        the beginning of one of `other`."""
        low, high = min(one, other), max(one, other)
        found = self._known.get((low, high))
        if found is None:
            if self.first[one] & self.first[other]:
                limit = min(MAX_PAIRS, self._left)
                first, second = self.automaton(low), self.automaton(high)
                visited, common, ours, theirs = compared(first, second, self.alphabet, limit)
                self._left -= visited
                found = common, ours, theirs
            else:
                found = False, 0, 0
            self._known[low, high] = found
        if isinstance(self._nodes[other], Chars):
            return found[0], 0
        return found[0], found[1] if one == low else found[2]

    def automaton(self, node: int) -> Automaton:
        """A node's automaton."""
        if node not in self._automata:
            made = Automaton(self._nodes, node, self.alphabet, self.first[node])
            self._automata[node] = made
        return self._automata[node]


def beginnings(
    nodes: Nodes, roots: Iterable[int], alphabet: Alphabet
) -> tuple[dict[int, int], set[int]]:
    """The classes that texts of regular nodes and of their parts begin with; and those of them that
    can be empty."""
    first: dict[int, int] = {}
    empty: set[int] = set()
    for node in nodes.within(roots):
        first[node] = 0
        match nodes[node]:
            case Chars(ranges):
                first[node] = alphabet.mask(ranges)
            case Cat(parts):
                for part in parts:
                    first[node] |= first[part]
                    if part not in empty:
                        break
                else:
                    empty.add(node)
            case Alt(parts):
                for part in parts:
                    first[node] |= first[part]
                if not empty.isdisjoint(parts):
                    empty.add(node)
            case Repeat(body, low, _):
                first[node] = first[body]
                if low == 0 or body in empty:
                    empty.add(node)
    return first, empty


def compared(
    one: Automaton, other: Automaton, alphabet: Alphabet, limit: int
) -> tuple[int, bool, int, int]:
    """How many pairs of states were visited, at most a few more than `limit`; whether two terminals
    have a text in common; and the bytes with which one's text goes on as a beginning of the
    other's, and the other's of the one's."""
    if not (one.is_known and other.is_known):
        return 0, True, ANY_BYTE, ANY_BYTE
    common = False
    onward = [0, 0]
    seen = {(0, 0)}
    waiting = [(0, 0)]
    while waiting:
        check()
        here, there = waiting.pop()
        ours, theirs = one.moves(here), other.moves(there)
        ends = bool(here) and one.accepts(here), bool(there) and other.accepts(there)
        common = common or all(ends)
        if ends[0]:
            onward[0] |= _union(theirs)
        if ends[1]:
            onward[1] |= _union(ours)
        for mask, state in ours:
            for mask2, state2 in theirs:
                if mask & mask2 and (state, state2) not in seen:
                    seen.add((state, state2))
                    waiting.append((state, state2))
        if len(seen) > limit or not (one.is_known and other.is_known):
            return len(seen), True, ANY_BYTE, ANY_BYTE
    ours_on, theirs_on = (alphabet.lead_bytes(mask) for mask in onward)
    return len(seen), common, ours_on, theirs_on


def _union(moves: list[tuple[int, int]]) -> int:
    found = 0
    for mask, _ in moves:
        found |= mask
    return found
