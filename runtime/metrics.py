"""The closing report: what a run computed, what it was spared, and the best it could have been."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """A run's totals; tokens but for `calls`, `seconds` and the rates. As text, it is the report.

    The rates are of the logged trace (`schedule.trace_log`), and the best one comes from its token
    ids alone.
    """

    calls: int
    computed: int
    """Rows that the model ran."""
    cached: int
    """Prompt tokens that were there already."""
    generated: int
    hit_rate: float
    """Cached prompt tokens over prompt tokens; 0 without a prompt."""
    best_hit_rate: float
    """The most that any order and any cache could have reached (Zheng et al. 2024, theorem 3.1)."""
    hit_ratio: float
    """The one over the other."""
    logged_calls: int
    """Calls that the rates are of: all, unless there were too many to log."""
    needed: int
    """Tokens that had to be computed for them."""
    recomputed: int
    """Rows of tokens that had been computed before, and were evicted since. The rates are about
    what was there when a call came, so these are not in them."""
    retractions: int
    """Running samples that gave way to others for a while."""
    seconds: float

    @classmethod
    def of(cls, stats: Mapping[str, Any], seconds: float) -> Report:
        """From a Runtime's `stats()`."""
        return cls(
            calls=int(stats["calls"]),
            computed=int(stats["computed_tokens"]),
            cached=int(stats["cached_tokens"]),
            generated=int(stats["generated_tokens"]),
            hit_rate=float(stats["hit_rate"]),
            best_hit_rate=float(stats["optimum_hit_rate"]),
            hit_ratio=float(stats["hit_ratio"]),
            logged_calls=int(stats["logged_calls"]),
            needed=int(stats["optimum_tokens"]),
            recomputed=int(stats["recomputed_tokens"]),
            retractions=int(stats["retractions"]),
            seconds=seconds,
        )

    def __str__(self) -> str:
        calls = "1 call" if self.calls == 1 else f"{self.calls:,} calls"
        logged, needed = "", f" ({self.needed:,} needed)"
        if self.logged_calls < self.calls:
            logged, needed = f", first {self.logged_calls:,} calls", ""
        if self.recomputed:
            needed = f"{needed[:-1]}, {self.recomputed:,} of them again)" if needed else needed
        if not self.logged_calls:
            return f"{calls} in {self.seconds:.1f} s: {self.computed:,} tokens computed"
        retracted = f", {self.retractions:,} retractions" if self.retractions else ""
        return (
            f"{calls} in {self.seconds:.1f} s: {self.computed:,} tokens computed{needed}, "
            f"{self.cached:,} cached, {self.generated:,} generated{retracted}; "
            f"hit rate {self.hit_rate:.1%} of {self.best_hit_rate:.1%} possible "
            f"({self.hit_ratio:.1%} of the optimum{logged})"
        )
