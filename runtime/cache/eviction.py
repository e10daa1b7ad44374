"""Eviction: the order in which computed tokens are given up.

A candidate is a node that nothing runs on and below which nothing is computed. Among candidates
what is needed last, as far as that can be known, goes first (Belady 1966): from its tail, until the
shortfall is met and not further.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable

from ramet.runtime.cache.absence import Absences
from ramet.runtime.cache.node import Node

Place = tuple[int, int]
_Entry = tuple[Place, int, Node]

FINISHED, CACHE, AWAY, LIVE, WAITED_FOR = range(5)
"""What is known of a path's future: it is the end of a fork that is over; anybody may come back to
it; a context stands on it that waits for its user; a context stands on it that doesn't; a call
waits at it or below it."""

_QUIET = (CACHE, AWAY, LIVE, WAITED_FOR)
_CROWDED = (CACHE, WAITED_FOR, AWAY, LIVE)
"""The queues, in the order in which they are emptied; finished paths share one with the cache."""

_SWEEP = 1024
LOOK = 16
"""Candidates that are compared where each comparison depends on the time: the best of so many,
which is among the best few of any number (Blankstein et al. 2017, hyperbolic caching)."""


def future_of(node: Node) -> int:
    """Which of the five a node is."""
    if node.waits:
        return WAITED_FOR
    if node.refs:
        return LIVE if node.away is None else AWAY
    return FINISHED if node.finished else CACHE


def eviction_key(node: Node) -> tuple[int, Place]:
    """(which queue, place in it). Among what is only cache, finished paths go first, and then the
    least recently used; among those waited for, the shortest, as those with most to lose run
    first."""
    future = future_of(node)
    if future == WAITED_FOR:
        return WAITED_FOR, (0, node.start + node.computed)
    if future <= CACHE:
        return CACHE, (future, node.last_used)
    return future, (0, node.last_used)


def _recency(node: Node) -> tuple[int, Place]:
    return CACHE, (0, node.last_used)


def evictable(node: Node) -> bool:
    """Whether the node's tail may be given up now."""
    return bool(node.segments) and not node.held and not node.kv_children


class EvictionQueue:
    """Candidates in order: what is only cache; then contexts that are away, by how late they are
    expected back; then other live ones; then what is waited for.

    While it is `crowded`, a path's next use is not when its user comes back but when its turn
    comes, and the longest paths have theirs first. Then the shortest ones go first, of those that
    wait and then of those that are away, so that some programs stay whole and get done, instead of
    all losing their paths before each turn.

    Entries are checked when they come up, so nobody must remove one: a key that grew is put back.
    Whoever makes a key smaller offers the node again. Stale entries are swept when they outnumber
    the others.
    """

    def __init__(
        self, now: Callable[[], float] = time.monotonic, *, foresight: bool = True
    ) -> None:
        """`foresight` off: all candidates are by their last use, whatever is known of them."""
        self.absences = Absences()
        """How long contexts stay away."""
        self.crowded = False
        """Whether calls wait that found no room."""
        self._key = eviction_key if foresight else _recency
        self._now = now
        self._heaps: dict[int, list[_Entry]] = {which: [] for which in (CACHE, LIVE, WAITED_FOR)}
        self._tie = itertools.count()
        self._sweep_at = dict.fromkeys((CACHE, AWAY, LIVE, WAITED_FOR), _SWEEP)
        """How long each queue may get before stale entries are looked for."""
        self._away: deque[Node] = deque()
        """Those that are `AWAY`, in turns; some may have become something else."""
        self._listed: set[Node] = set()
        """Those in `_away`."""

    def offer(self, node: Node) -> None:
        """Add a node if it is a candidate now."""
        if not evictable(node):
            return
        which, place = self._key(node)
        if which == AWAY:
            if node not in self._listed:
                self._listed.add(node)
                self._away.append(node)
                if len(self._away) > self._sweep_at[AWAY]:
                    self._sweep(AWAY)
            return
        heap = self._heaps[which]
        heapq.heappush(heap, (place, next(self._tie), node))
        if len(heap) > self._sweep_at[which]:
            self._sweep(which)

    def pop(self) -> Node | None:
        """The next node to shrink, or None if nothing can be given up."""
        order = _CROWDED if self.crowded else _QUIET
        while self._away or any(self._heaps.values()):  # A stale entry may move to an earlier one.
            for which in order:
                node = self._pop_away() if which == AWAY else self._pop_heap(which)
                if node is not None:
                    return node
        return None

    def _pop_heap(self, which: int) -> Node | None:
        heap = self._heaps[which]
        while heap:
            place, _, node = heapq.heappop(heap)
            if not evictable(node):
                continue
            if self._key(node) == (which, place):
                return node
            self.offer(node)
        return None

    def _pop_away(self) -> Node | None:
        """Of the next few that are away, the one that will be needed last; it stays in the list."""
        now, away, expected = self._now(), self._away, self.absences.expected
        best: Node | None = None
        latest = -float("inf")
        looked = 0
        for _ in range(len(away)):
            node = away.popleft()
            context = node.away
            if context is None or not evictable(node) or self._key(node)[0] != AWAY:
                self._listed.discard(node)
                self.offer(node)
                continue
            away.append(node)
            late = -(node.start + node.computed) if self.crowded else expected(context, now)
            if late > latest:
                best, latest = node, late
            looked += 1
            if looked == LOOK:
                break
        return best

    def _sweep(self, which: int) -> None:
        """Let go of what is no candidate any more, and put the rest in its place."""
        if which == AWAY:
            listed = list(self._away)
            self._away.clear()
            self._listed.clear()
        else:
            listed = [node for _, _, node in self._heaps[which]]
            self._heaps[which].clear()
        fresh = dict.fromkeys(node for node in listed if evictable(node))
        self._sweep_at[which] = max(_SWEEP, 2 * len(fresh))
        for node in fresh:
            self.offer(node)
