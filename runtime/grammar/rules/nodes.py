"""Nodes: the expressions of a grammar as one graph, each different one in it once.

A node is a number; equal expressions have equal numbers, so nothing is compared, hashed or walked
by depth, however deep a grammar nests. Parts are always older, and so smaller, than what contains
them: one pass over ascending numbers sees every part before its whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from ramet.runtime.grammar import charset
from ramet.runtime.grammar import pattern as regular
from ramet.runtime.grammar.charset import Ranges
from ramet.runtime.grammar.patience import check

HUGE = 1 << 40
"""Sizes stop growing here."""


@dataclasses.dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    ranges: Ranges


@dataclasses.dataclass(frozen=True, slots=True)
class Cat:
    """One after another; of no parts, the empty text."""

    parts: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Alt:
    """Any of at least two."""

    parts: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Repeat:
    """`low` to `high` times, or any number from `low` on."""

    body: int
    low: int
    high: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Ref:
    """What a rule says, by its number."""

    rule: int


Node = Chars | Cat | Alt | Repeat | Ref

_EMPTY = Cat(())


class Nodes:
    """All expressions of one grammar."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._known: dict[Node, int] = {}
        self._facts: list[tuple[bool, int, int]] = []
        self.nowhere = self.chars(())
        """What no text is."""
        self.empty = self.cat(())
        """The empty text."""

    def __getitem__(self, node: int) -> Node:
        return self._nodes[node]

    def __len__(self) -> int:
        return len(self._nodes)

    def is_regular(self, node: int) -> bool:
        """Whether it mentions no rule."""
        return self._facts[node][0]

    def size(self, node: int) -> int:
        """How many characters and rules it has with its counts written out; at most HUGE."""
        return self._facts[node][1]

    def depth(self, node: int) -> int:
        """How deep it nests."""
        return self._facts[node][2]

    def chars(self, ranges: Ranges) -> int:
        """One character of a set; of none, what no text is."""
        return self._add(Chars(ranges))

    def ref(self, rule: int) -> int:
        """What a rule says."""
        return self._add(Ref(rule))

    def cat(self, parts: Iterable[int]) -> int:
        """A sequence; repetitions of the same, side by side, are one."""
        flat: list[int] = []
        for part in parts:
            if self._nodes[part] == _EMPTY:
                continue
            if part == self.nowhere:
                return self.nowhere
            merged = self._merged(flat[-1], part) if flat else None
            if merged is None:
                flat.append(part)
            else:
                flat[-1] = merged
        return flat[0] if len(flat) == 1 else self._add(Cat(tuple(flat)))

    def text(self, text: str) -> int:
        """A literal text."""
        return self.cat(self.chars(((ord(c), ord(c)),)) for c in text)

    def alt(self, parts: Iterable[int]) -> int:
        """A choice, without what no text is and without duplicates; single characters make one
        set."""
        kept = dict.fromkeys(part for part in parts if part != self.nowhere)
        sets = {part: node for part in kept if isinstance(node := self._nodes[part], Chars)}
        if len(sets) > 1:
            merged = self.chars(charset.union(*(node.ranges for node in sets.values())))
            kept = {merged: None} | {part: None for part in kept if part not in sets}
        if not kept:
            return self.nowhere
        return next(iter(kept)) if len(kept) == 1 else self._add(Alt(tuple(kept)))

    def repeat(self, body: int, low: int, high: int | None) -> int:
        """A repetition; of nothing or of no text it is simpler."""
        if high == 0 or body == self.empty:
            return self.empty
        if body == self.nowhere:
            return self.empty if low == 0 else self.nowhere
        if low == high == 1:
            return body
        inner = self._nodes[body]
        if isinstance(inner, Repeat):
            if (inner.low, inner.high) == (0, None):
                return body
            if (inner.low, inner.high) == (0, 1):
                return self.repeat(inner.body, 0, high)
            if inner.high is None and inner.low == 1 and high is None:
                return self.repeat(inner.body, low, None)
        return self._add(Repeat(body, low, high))

    def pattern(self, pattern: regular.Pattern) -> int:
        """A regular expression, which nests no deeper than its dialect allows."""
        match pattern:
            case regular.Chars():
                return self.chars(pattern.ranges)
            case regular.Cat():
                return self.cat([self.pattern(part) for part in pattern.parts])
            case regular.Alt():
                return self.alt([self.pattern(option) for option in pattern.options])
            case regular.Repeat():
                return self.repeat(self.pattern(pattern.body), pattern.low, pattern.high)

    def parts(self, node: int) -> Sequence[int]:
        """The nodes that it is made of, rules aside."""
        match self._nodes[node]:
            case Cat(parts) | Alt(parts):
                return parts
            case Repeat(body, _, _):
                return (body,)
            case _:
                return ()

    def within(self, roots: Iterable[int]) -> list[int]:
        """The roots and all their parts, parts first."""
        seen: set[int] = set()
        waiting = list(roots)
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                waiting.extend(self.parts(node))
        return sorted(seen)

    def open_within(self, roots: Iterable[int]) -> list[int]:
        """Those of `within` that mention rules."""
        seen: set[int] = set()
        waiting = list(roots)
        while waiting:
            node = waiting.pop()
            if node not in seen and not self.is_regular(node):
                seen.add(node)
                waiting.extend(self.parts(node))
        return sorted(seen)

    def rules(self, node: int) -> list[int]:
        """The rules that it mentions, ascending."""
        inner = (self._nodes[part] for part in self.open_within([node]))
        return sorted(part.rule for part in inner if isinstance(part, Ref))

    def rebuilt(self, roots: Sequence[int], changes: dict[int, int]) -> list[int]:
        """The roots with nodes in the place of others, which mention rules."""
        new: dict[int, int] = {}
        for node in self.open_within(roots):
            if node in changes:
                new[node] = changes[node]
                continue
            match self._nodes[node]:
                case Cat(parts):
                    new[node] = self.cat([new.get(part, part) for part in parts])
                case Alt(parts):
                    new[node] = self.alt([new.get(part, part) for part in parts])
                case Repeat(body, low, high):
                    new[node] = self.repeat(new.get(body, body), low, high)
                case _:
                    new[node] = node
        return [new.get(root, root) for root in roots]

    def _merged(self, one: int, other: int) -> int | None:
        """Two parts of a sequence as one repetition; None if they aren't."""
        first, second = self._nodes[one], self._nodes[other]
        if not isinstance(first, Repeat):
            first = Repeat(one, 1, 1)
            if not isinstance(second, Repeat):
                return None
        if not isinstance(second, Repeat):
            second = Repeat(other, 1, 1)
        if first.body != second.body:
            return None
        high = None if first.high is None or second.high is None else first.high + second.high
        return self.repeat(first.body, first.low + second.low, high)

    def _add(self, node: Node) -> int:
        check()
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = len(self._nodes)
            self._nodes.append(node)
            self._facts.append(self._examine(node))
        return found

    def _examine(self, node: Node) -> tuple[bool, int, int]:
        match node:
            case Chars():
                return True, 1, 0
            case Ref():
                return False, 1, 0
            case Cat(parts) | Alt(parts):
                facts = [self._facts[part] for part in parts]
                size = min(HUGE, sum(fact[1] for fact in facts))
                depth = 1 + max((fact[2] for fact in facts), default=-1)
                return all(fact[0] for fact in facts), size, depth
            case Repeat(body, low, high):
                is_regular, size, depth = self._facts[body]
                times = low + 1 if high is None else high
                return is_regular, min(HUGE, size * times), depth + 1
