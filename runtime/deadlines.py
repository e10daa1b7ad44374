"""Deadlines: the calls that must be over by a certain time. The engine asks once per step."""

from __future__ import annotations

import heapq


class Deadlines:
    """Calls by the time at which they are ended; those that end before are discarded."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._calls: dict[int, tuple[float, float]] = {}
        """Call → (when it ends, seconds given)."""

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: int, now: float, seconds: float) -> None:
        """End `call`, which has none yet, `seconds` after `now`."""
        self._calls[call] = (now + seconds, seconds)
        heapq.heappush(self._heap, (now + seconds, call))

    def discard(self, call: int) -> None:
        """The call is over, or never had a deadline."""
        if self._calls.pop(call, None) and len(self._heap) > 2 * len(self._calls) + 64:
            self._heap = [(time, call) for call, (time, _) in self._calls.items()]
            heapq.heapify(self._heap)

    def expired(self, now: float) -> list[tuple[int, float]]:
        """The calls whose time has come, earliest first, with the seconds that each was given.

        They are forgotten.
        """
        ended: list[tuple[int, float]] = []
        while self._heap and self._heap[0][0] <= now:
            _, call = heapq.heappop(self._heap)
            if (entry := self._calls.pop(call, None)) is not None:
                ended.append((call, entry[1]))
        return ended
