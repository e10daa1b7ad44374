"""Waiting: the sequences that wait to run, by priority, with what each order needs to be cheap.

They also stand in the tree (`cache/waits`), so that taking the next one costs what changed and not
how many wait. Within a priority, a *lane* knows who came first, and how much prefill of later
arrivals has passed it.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

from ramet.runtime.cache.node import Node
from ramet.runtime.cache.waits import add_waiting, remove_waiting
from ramet.runtime.schedule.sequence import Sequence

Key = tuple[int, ...]


class Lane:
    """The waiting sequences of one priority."""

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.members: dict[Sequence, Key] = {}
        """Who waits, and the policy's key of each; smaller keys go first where it decides."""
        self.passed_tokens = 0
        """Prefill tokens that later waves have been admitted for, past the oldest one here."""
        self._oldest: list[tuple[int, int, Sequence]] = []
        self._first: list[tuple[Key, int, int, Sequence]] = []
        self._passed: list[tuple[int, int]] = []
        """(wave, tokens) of those admitted that came in a later wave than the oldest one."""
        self._tie = itertools.count()

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self.members)

    def add(self, sequence: Sequence, key: Key) -> None:
        """Take a sequence in."""
        self.members[sequence] = key
        tie = next(self._tie)
        heapq.heappush(self._oldest, (sequence.arrival, tie, sequence))
        heapq.heappush(self._first, (key, sequence.arrival, tie, sequence))
        add_waiting(sequence.node, self.priority, sequence)
        self._settle()

    def remove(self, sequence: Sequence, admitted_tokens: int = 0) -> None:
        """Let a sequence go: it is admitted for that much prefill, or gone."""
        remove_waiting(sequence.node, self.priority, sequence)
        del self.members[sequence]
        if admitted_tokens and self.members and sequence.wave > self.oldest().wave:
            heapq.heappush(self._passed, (sequence.wave, admitted_tokens))
            self.passed_tokens += admitted_tokens
        self._settle()

    def rekey(self, sequence: Sequence, key: Key) -> None:
        """Give a waiting sequence a larger key than it had."""
        self.members[sequence] = key
        heapq.heappush(self._first, (key, sequence.arrival, next(self._tie), sequence))

    def oldest(self) -> Sequence:
        """The one that came first."""
        while self._oldest[0][2] not in self.members:
            heapq.heappop(self._oldest)
        return self._oldest[0][2]

    def first(self) -> Sequence:
        """The one with the smallest key."""
        while True:
            key, _, _, sequence = self._first[0]
            if self.members.get(sequence) == key:
                return sequence
            heapq.heappop(self._first)

    def _settle(self) -> None:
        """Forget what did not pass the one that is the oldest now, and entries of those gone."""
        if not self.members:
            self._oldest.clear()
            self._first.clear()
            self._passed.clear()
            self.passed_tokens = 0
            return
        wave = self.oldest().wave
        while self._passed and self._passed[0][0] <= wave:
            self.passed_tokens -= heapq.heappop(self._passed)[1]
        if len(self._first) > 2 * len(self.members) + 64:
            self._first = [
                (key, sequence.arrival, next(self._tie), sequence)
                for sequence, key in self.members.items()
            ]
            heapq.heapify(self._first)


class Waiting:
    """All lanes; higher priorities go first."""

    def __init__(self) -> None:
        self._lanes: dict[int, Lane] = {}

    def __len__(self) -> int:
        return sum(len(lane) for lane in self._lanes.values())

    def __iter__(self) -> Iterator[Sequence]:
        return (sequence for lane in self._lanes.values() for sequence in lane)

    def lane_of(self, sequence: Sequence) -> Lane:
        """The lane of a sequence's priority; there from the first need to the last."""
        lane = self._lanes.get(sequence.priority)
        if lane is None:
            lane = self._lanes[sequence.priority] = Lane(sequence.priority)
        return lane

    def top(self) -> Lane | None:
        """The lane of the highest priority that somebody waits in."""
        return self._lanes[max(self._lanes)] if self._lanes else None

    def remove(self, sequence: Sequence, admitted_tokens: int = 0) -> None:
        """Let a sequence go: it is admitted for that much prefill, or gone."""
        lane = self._lanes[sequence.priority]
        lane.remove(sequence, admitted_tokens)
        if not lane:
            del self._lanes[sequence.priority]


def uncached_tokens(node: Node) -> int:
    """Tokens of the path to `node` that are not computed yet."""
    return sum(len(step.tokens) - step.computed for step in node.missing())


def cached_tokens(node: Node) -> int:
    """Tokens of the path to `node` that are computed."""
    return node.end - uncached_tokens(node)
