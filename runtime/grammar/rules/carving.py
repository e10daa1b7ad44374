"""Carving: a terminal without the texts that go on where another terminal ends.

Beside the keyword `return`, after which a name may follow without a blank, the name `returned` can
also be read as `return ed`. So there names are those that don't go on after `return`, or `return`
and then the rest of a name: the same texts, and still read with few terminals.
"""

from __future__ import annotations

from ramet.runtime.grammar import charset
from ramet.runtime.grammar.charset import Ranges
from ramet.runtime.grammar.patience import check
from ramet.runtime.grammar.rules.automaton import Alphabet, Automaton, bits
from ramet.runtime.grammar.rules.nodes import Alt, Cat, Chars, Nodes, Repeat

MAX_WORDS = 100
"""Words at which one terminal is carved."""
MAX_LETTERS = 40
"""Of one word."""
MAX_PAIRS = 500
"""States that the search for the words may visit."""

_State = tuple[int, int]


def words_within(
    one: Automaton, other: Automaton, alphabet: Alphabet, after: int
) -> set[str] | None:
    """The shortest texts of `one` that are beginnings of `other` and go on with one of the bytes
    `after`; None if there are too many."""
    if not (one.is_known and other.is_known):
        return None
    ways: dict[_State, list[tuple[int, _State]]] = {}
    before: dict[_State, list[_State]] = {}
    ends: set[_State] = set()
    waiting: list[_State] = [(0, 0)]
    ways[0, 0] = []
    while waiting:
        check()
        pair = here, there = waiting.pop()
        moves = other.moves(there)
        if not (one.is_known and other.is_known):
            return None
        if here and one.accepts(here):
            onward = 0
            for mask, _ in moves:
                onward |= mask
            if alphabet.lead_bytes(onward) & after:
                ends.add(pair)
                continue
        for mask, state in one.moves(here):
            for mask2, state2 in moves:
                if both := mask & mask2:
                    reached = state, state2
                    ways[pair].append((both, reached))
                    before.setdefault(reached, []).append(pair)
                    if reached not in ways:
                        ways[reached] = []
                        waiting.append(reached)
        if len(ways) > MAX_PAIRS:
            return None
    return _spelled(ways, _leading(ends, before), ends, alphabet)


def _leading(ends: set[_State], before: dict[_State, list[_State]]) -> set[_State]:
    """The states from which an end is reached."""
    found = set(ends)
    waiting = list(ends)
    while waiting:
        for pair in before.get(waiting.pop(), ()):
            if pair not in found:
                found.add(pair)
                waiting.append(pair)
    return found


def _spelled(
    ways: dict[_State, list[tuple[int, _State]]],
    leading: set[_State],
    ends: set[_State],
    alphabet: Alphabet,
) -> set[str] | None:
    words: set[str] = set()
    paths: list[tuple[str, _State]] = [("", (0, 0))]
    while paths:
        word, pair = paths.pop()
        if pair in ends:
            words.add(word)
            continue
        for mask, reached in ways[pair]:
            if reached in leading:
                ranges = alphabet.ranges(mask)
                if len(ranges) != 1 or ranges[0][1] - ranges[0][0] > 3 or len(word) >= MAX_LETTERS:
                    return None
                first, last = ranges[0]
                paths.extend((word + chr(code), reached) for code in range(first, last + 1))
        if len(words) + len(paths) > MAX_WORDS:
            return None
    return words


def carved(
    nodes: Nodes, node: int, words: set[str], after: int
) -> tuple[int, list[tuple[str, int]]]:
    """A node without the texts that go on after one of the words with one of the bytes `after`; and
    for each word what they go on with. No word begins another."""
    return _Carver(nodes, _beginning_with(after)).carved(node, sorted(words), "")


def _beginning_with(lead_bytes: int) -> Ranges:
    """The characters that begin with one of the bytes in UTF-8."""
    found: list[tuple[int, int]] = []
    for byte in bits(lead_bytes):
        if byte < 0x80:
            found.append((byte, byte))
        elif 0xC2 <= byte < 0xE0:
            found.append(((byte & 0x1F) << 6, (byte & 0x1F) << 6 | 0x3F))
        elif 0xE0 <= byte < 0xF0:
            found.append((max(0x800, (byte & 0xF) << 12), (byte & 0xF) << 12 | 0xFFF))
        elif 0xF0 <= byte < 0xF5:
            last = min(0x10FFFF, (byte & 7) << 18 | 0x3FFFF)
            found.append((max(0x10000, (byte & 7) << 18), last))
    return charset.union(found)


class _Carver:
    def __init__(self, nodes: Nodes, after: Ranges) -> None:
        self._nodes = nodes
        self._after = after
        self._empty: dict[int, bool] = {}

    def carved(self, node: int, words: list[str], begun: str) -> tuple[int, list[tuple[str, int]]]:
        nodes = self._nodes
        heads = self._heads(node)
        groups: dict[str, list[str]] = {}
        for word in words:
            groups.setdefault(word[0], []).append(word[1:])
        taken = charset.union([(ord(letter), ord(letter)) for letter in groups])
        kept = [nodes.empty] if self._is_empty(node) else []
        for ranges, tail in heads:
            kept.append(nodes.cat([nodes.chars(charset.difference(ranges, taken)), tail]))
        rests: list[tuple[str, int]] = []
        for letter, suffixes in groups.items():
            code = ord(letter)
            tails = [t for ranges, t in heads if any(a <= code <= b for a, b in ranges)]
            tail = nodes.alt(tails)
            if "" in suffixes:
                inner, rest = self._parted(tail)
                rests.append((begun + letter, rest))
            else:
                inner, more = self.carved(tail, suffixes, begun + letter)
                rests.extend(more)
            kept.append(nodes.cat([nodes.text(letter), inner]))
        return nodes.alt(kept), [(word, rest) for word, rest in rests if rest != nodes.nowhere]

    def _parted(self, node: int) -> tuple[int, int]:
        """The texts that don't go on, or not with what may follow the word; and the others."""
        nodes = self._nodes
        kept = [nodes.empty] if self._is_empty(node) else []
        rest: list[int] = []
        for ranges, tail in self._heads(node):
            others = charset.difference(ranges, self._after)
            kept.append(nodes.cat([nodes.chars(others), tail]))
            rest.append(nodes.cat([nodes.chars(charset.difference(ranges, others)), tail]))
        return nodes.alt(kept), nodes.alt(rest)

    def _heads(self, node: int) -> list[tuple[Ranges, int]]:
        """The first characters of a node's texts, each set with what follows it."""
        nodes = self._nodes
        match nodes[node]:
            case Chars(ranges):
                return [(ranges, nodes.empty)] if ranges else []
            case Cat(parts):
                found: list[tuple[Ranges, int]] = []
                for at, part in enumerate(parts):
                    rest = parts[at + 1 :]
                    found += [(r, nodes.cat([t, *rest])) for r, t in self._heads(part)]
                    if not self._is_empty(part):
                        break
                return found
            case Alt(parts):
                return [head for part in parts for head in self._heads(part)]
            case Repeat(body, low, high):
                left = None if high is None else high - 1
                again = nodes.repeat(body, max(low - 1, 0), left)
                return [(r, nodes.cat([t, again])) for r, t in self._heads(body)]
            case item:
                raise ValueError(f"{item} in a terminal")

    def _is_empty(self, node: int) -> bool:
        for part in self._nodes.within([node]) if node not in self._empty else ():
            match self._nodes[part]:
                case Cat(parts):
                    self._empty[part] = all(self._empty[inner] for inner in parts)
                case Alt(parts):
                    self._empty[part] = any(self._empty[inner] for inner in parts)
                case Repeat(body, low, _):
                    self._empty[part] = low == 0 or self._empty[body]
                case _:
                    self._empty[part] = False
        return self._empty[node]
