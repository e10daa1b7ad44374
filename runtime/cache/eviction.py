"""Eviction: the order in which computed tokens are given up.

A candidate is a node that nothing runs on and below which nothing is computed. Among candidates
the smallest `eviction_key` goes first, from its tail, until the shortfall is met and not further.
"""

from __future__ import annotations

import heapq
import itertools

from ramet.runtime.cache.node import Node

Key = tuple[int, int]


FINISHED, CACHE, LIVE, WAITED_FOR = range(4)
"""What is known of a path's future, in the order in which paths are given up: it is the end of a
fork that is over; anybody may come back to it; a live context stands on it; a call waits at it or
below it."""


def future_of(node: Node) -> int:
    """Which of the four a node is."""
    if node.waits:
        return WAITED_FOR
    if node.refs:
        return LIVE
    return FINISHED if node.finished else CACHE


def eviction_key(node: Node) -> Key:
    """What is known of its future, then least recently used."""
    return (future_of(node), node.last_used)


def evictable(node: Node) -> bool:
    """Whether the node's tail may be given up now."""
    return bool(node.segments) and not node.held and not node.kv_children


class EvictionQueue:
    """Candidates in order.

    Entries are checked when they come up, so nobody must remove one: a key that grew is put back.
    Whoever makes a key smaller offers the node again. Stale entries are swept when they outnumber
    the others.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Key, int, Node]] = []
        self._tie = itertools.count()
        self._sweep_at = 1024

    def offer(self, node: Node) -> None:
        """Add a node if it is a candidate now."""
        if not evictable(node):
            return
        heapq.heappush(self._heap, (eviction_key(node), next(self._tie), node))
        if len(self._heap) > self._sweep_at:
            fresh = {id(node): node for _, _, node in self._heap if evictable(node)}
            self._heap = [(eviction_key(n), next(self._tie), n) for n in fresh.values()]
            heapq.heapify(self._heap)
            self._sweep_at = max(1024, 2 * len(self._heap))

    def pop(self) -> Node | None:
        """The next node to shrink, or None if nothing can be given up."""
        while self._heap:
            key, _, node = heapq.heappop(self._heap)
            if not evictable(node):
                continue
            if (now := eviction_key(node)) != key:
                heapq.heappush(self._heap, (now, next(self._tie), node))
                continue
            return node
        return None

    def clear(self) -> None:
        """Forget all candidates."""
        self._heap.clear()
