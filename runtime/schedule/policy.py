"""Policies: who of the waiting sequences is admitted next.

A policy is asked for one sequence of a lane (all of one priority) at a time, given the node whose
sequence was admitted last. It sees data only: the tree, and each sequence's place in its program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ramet.runtime.cache.node import Node
from ramet.runtime.cache.waits import nearest_waiting
from ramet.runtime.errors import InvalidArgument
from ramet.runtime.schedule.sequence import Sequence
from ramet.runtime.schedule.waiting import Key, Lane, cached_tokens, uncached_tokens

OVERTAKING_POOLS = 4
"""How often the pool may be filled anew past somebody who waits, if nothing else is said. Under
overload, fewer make contexts come back to a cache that has lost them (simulated agents on a pool
for a quarter of their tokens: computed once 43 % at one pool, 59 % at four)."""
QUANTUM_TOKENS = 4096
"""Computed tokens after which a program gives way to those that have had less."""


class Policy(Protocol):
    """An order of admission."""

    def key(self, sequence: Sequence) -> Key:
        """What orders sequences where the policy goes by keys; smaller goes first. It may change
        while the sequence waits: that it has grown is seen in time, that it has shrunk is not."""

    def choose(self, lane: Lane, cursor: Node | None) -> Sequence:
        """The next one of a lane that isn't empty; `cursor` is where the last one was admitted."""


class Fcfs:
    """First come, first served."""

    def key(self, sequence: Sequence) -> Key:
        """Its arrival."""
        return (sequence.arrival,)

    def choose(self, lane: Lane, _cursor: Node | None) -> Sequence:
        """The oldest one."""
        return lane.oldest()


class LongestPrefix:
    """The longest cached prefix first (SGLang's `lpm`). Hits well, and starves whoever has none.

    Every choice looks at all that wait: it is here to compare with.
    """

    def key(self, sequence: Sequence) -> Key:
        """Its arrival, for those with equally long prefixes."""
        return (sequence.arrival,)

    def choose(self, lane: Lane, _cursor: Node | None) -> Sequence:
        """The one with the most computed tokens on its path."""
        return max(lane, key=lambda s: (cached_tokens(s.node), -s.arrival))


class DepthFirst:
    """Depth-first over the tree of waiting work, the subtree with the most waiting first (Zheng et
    al. 2024, theorem 3.1: the optimum of a batch that is known, in a cache that holds its longest
    request). Starves the rest while a subtree keeps growing."""

    def key(self, sequence: Sequence) -> Key:
        """Its arrival."""
        return (sequence.arrival,)

    def choose(self, lane: Lane, cursor: Node | None) -> Sequence:
        """The next one below the node that the last one shares with somebody."""
        node = _start(lane, cursor)
        while not (waits := node.waits[lane.priority]).here:
            children = (node.children[token] for token in waits.below)
            node = max(children, key=lambda child: child.waits[lane.priority].count)
        chosen: Sequence = next(iter(waits.here))
        return chosen


class ProgramAware:
    """The default: whoever has most tokens in the cache, so that they are used while they are
    there; among equals whoever comes next depth-first, so that what shares a prefix is computed
    together; then the program that has had least, the oldest one, and the longest chain of calls
    still to come.

    At most `max_overtakes` prefill tokens of later arrivals pass a waiting request of equal
    priority: when the next choice would exceed that for the oldest one, the oldest one is next.
    Since whatever has passed a request came after it, what has passed the oldest one is an upper
    bound for all. What was queued before the same step came together and passes nobody of its
    wave: a batch that is known at once is ordered freely, as the theorem wants.
    """

    def __init__(self, max_overtakes: int) -> None:
        self.max_overtakes = max_overtakes

    def key(self, sequence: Sequence) -> Key:
        """(minus its cached tokens; how much its program has had, on a logarithmic scale; the
        program; minus the known calls after it). After program-level attained service (Luo et al.
        2025, Autellix)."""
        place = sequence.place
        cached = cached_tokens(sequence.node)
        if place is None:
            return (-cached, 0, sequence.program, 0)
        attained = (place.context.program.attained_tokens // QUANTUM_TOKENS).bit_length()
        return (-cached, attained, sequence.program, -place.remaining)

    def choose(self, lane: Lane, cursor: Node | None) -> Sequence:
        """The next one in depth-first order, or the oldest one if too much has passed it."""
        chosen = self._next(lane, cursor)
        oldest = lane.oldest()
        if chosen.wave == oldest.wave:
            return chosen
        passing = lane.passed_tokens + max(uncached_tokens(chosen.node), 1)
        return oldest if passing > self.max_overtakes else chosen

    def _next(self, lane: Lane, cursor: Node | None) -> Sequence:
        node = None if cursor is None else nearest_waiting(cursor, lane.priority)
        best = self._first(lane)
        if node is None or not node.tokens:  # Nothing shared but the root.
            return best
        waits = node.waits[lane.priority]
        while not waits.here:
            node = node.children[next(iter(waits.below))]
            waits = node.waits[lane.priority]
        near: Sequence = next(iter(waits.here))
        return near if cached_tokens(near.node) >= cached_tokens(best.node) else best

    def _first(self, lane: Lane) -> Sequence:
        while True:
            best = lane.first()
            key = self.key(best)
            if key <= lane.members[best]:
                return best
            lane.rekey(best, key)


def _start(lane: Lane, cursor: Node | None) -> Node:
    """The nearest node with waiting on the cursor's path, else the oldest one's root."""
    node = None if cursor is None else nearest_waiting(cursor, lane.priority)
    if node is None:
        *_, node = lane.oldest().node.ancestors()
    return node


_POLICIES: dict[str, Callable[[int], Policy]] = {
    "dfs": lambda _: DepthFirst(),
    "fcfs": lambda _: Fcfs(),
    "lpm": lambda _: LongestPrefix(),
    "program": ProgramAware,
}


def make_policy(name: str, max_overtakes: int) -> Policy:
    """The policy of that name, of which only "program" looks at `max_overtakes`.

    Raises InvalidArgument naming those that exist.
    """
    if name not in _POLICIES:
        raise InvalidArgument(f"policy={name!r}: must be one of {', '.join(sorted(_POLICIES))}")
    return _POLICIES[name](max_overtakes)
