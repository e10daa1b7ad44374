"""FinishLengths: how long generations turn out to be, learnt per call site.

Admission must guess how much a sequence will still grow. The limit is nearly always far too much,
so the guess follows what calls from the same line of the program came to.
"""

from __future__ import annotations

_WEIGHT = 0.2
"""Of the newest length in the running mean."""
_MAX_SITES = 4096
_MAX_EXPECTED = 4096
"""Answers that are kept."""
_FIRST_GUESS = 64.0
"""Tokens, for a call site that is not known yet."""


class FinishLengths:
    """Running mean and spread of finished lengths in tokens, by call site."""

    def __init__(self) -> None:
        self._sites: dict[str, tuple[float, float]] = {}
        self._expected: dict[tuple[str, int, int], int] = {}
        """Answers of `remaining` since the last `record`: admission asks for all that run."""

    def record(self, site: str, length: int) -> None:
        """Note how many tokens a generation came to."""
        self._expected.clear()
        mean, spread = self._sites.pop(site, (float(length), 0.0))
        gap = length - mean
        # Put back last: the oldest site is the first to be forgotten.
        self._sites[site] = mean + _WEIGHT * gap, spread + _WEIGHT * (abs(gap) - spread)
        if len(self._sites) > _MAX_SITES:
            del self._sites[next(iter(self._sites))]

    def remaining(self, site: str, done: int, limit: int) -> int:
        """Tokens that a generation of `done` tokens, at most `limit`, is expected to add.

        The mean and one mean deviation; one that has outlived that is expected to go on for half
        of what it has, as lengths have long tails.
        """
        key = (site, done, limit)
        expected = self._expected.get(key)
        if expected is None:
            if len(self._expected) >= _MAX_EXPECTED:
                self._expected.clear()
            mean, spread = self._sites.get(site, (_FIRST_GUESS, _FIRST_GUESS))
            ahead = mean + spread - done
            if ahead < 1.0:
                ahead = done / 2.0
            expected = self._expected[key] = max(min(round(ahead), limit - done), 0)
        return expected
