"""Absences: how long contexts stay away between two calls, learnt per call site.

A context whose call is over comes back when its program has read the output, a tool has answered,
a person has typed. What comes back soon should stay in the pool, and what comes back late should
give way (Belady 1966, with an expectation in place of the future). Abhyankar et al. 2024
(InferCept) measured tools from a millisecond to half a minute: which of them a call waits for is
seen from its site.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections import deque

_SAMPLES = 64
"""Absences that are kept per site, the newest ones."""
_MAX_SITES = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class Away:
    """A context that waits for its user."""

    site: str
    """Of the call after which it went."""
    since: float
    """In seconds of the engine's clock."""


class Absences:
    """The latest absences of each call site, in seconds."""

    def __init__(self) -> None:
        self._sites: dict[str, _Sample] = {}

    def record(self, site: str, seconds: float) -> None:
        """A context came back to `site` after so long."""
        sample = self._sites.pop(site, None) or _Sample()
        # Put back last: the oldest site is the first to be forgotten.
        self._sites[site] = sample
        sample.add(seconds)
        if len(self._sites) > _MAX_SITES:
            del self._sites[next(iter(self._sites))]

    def expected(self, away: Away, now: float) -> float:
        """Seconds until a context is expected back: the mean of what is left of the absences that
        were longer than its own so far. Of one that has been away for longer than any, as long
        again; so what is known least falls back on the least recently used."""
        gone = now - away.since
        sample = self._sites.get(away.site)
        return gone if sample is None else sample.remaining(gone)


class _Sample:
    """Some durations, and the mean excess over a threshold."""

    def __init__(self) -> None:
        self._latest: deque[float] = deque(maxlen=_SAMPLES)
        self._sorted: list[float] = []
        self._sums: list[float] = []
        """Sum of the sorted durations from each index on; empty when it must be made anew."""

    def add(self, seconds: float) -> None:
        """One more duration, in place of the oldest one."""
        if len(self._latest) == _SAMPLES:
            del self._sorted[bisect.bisect_left(self._sorted, self._latest[0])]
        self._latest.append(seconds)
        bisect.insort(self._sorted, seconds)
        self._sums.clear()

    def remaining(self, gone: float) -> float:
        """The mean of (duration - gone) over the longer ones; `gone` if there is none."""
        low = bisect.bisect_right(self._sorted, gone)
        count = len(self._sorted) - low
        if not count:
            return gone
        if not self._sums:
            self._sums = list(itertools.accumulate(reversed(self._sorted)))[::-1]
        return self._sums[low] / count - gone
