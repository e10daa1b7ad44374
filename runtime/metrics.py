"""The closing report: what a run computed, what it was spared, and the best it could have been."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """A run's totals; all but `calls` and `seconds` count tokens. As text, it is the report."""

    calls: int
    computed: int
    """Rows that the model ran."""
    cached: int
    """Prompt tokens that were there already."""
    generated: int
    prompt: int
    """Prompt tokens that the calls asked for, shared ones each time."""
    edges: int
    """Prompt tokens that had to be computed once (Zheng et al. 2024, theorem 3.1)."""
    seconds: float

    @classmethod
    def of(cls, stats: Mapping[str, Any], seconds: float) -> Report:
        """From a Runtime's `stats()`."""
        return cls(
            calls=int(stats["calls"]),
            computed=int(stats["computed_tokens"]),
            cached=int(stats["cached_tokens"]),
            generated=int(stats["generated_tokens"]),
            prompt=int(stats["prompt_tokens"]),
            edges=int(stats["edge_tokens"]),
            seconds=seconds,
        )

    @property
    def hit_rate(self) -> float:
        """Cached prompt tokens over prompt tokens; 0 without a prompt."""
        return self.cached / self.prompt if self.prompt else 0.0

    @property
    def best_hit_rate(self) -> float:
        """The hit rate if every edge were computed once and nothing were ever evicted."""
        return max(1.0 - self.edges / self.prompt, 0.0) if self.prompt else 0.0

    def __str__(self) -> str:
        calls = "1 call" if self.calls == 1 else f"{self.calls:,} calls"
        return (
            f"{calls} in {self.seconds:.1f} s: {self.computed:,} tokens computed, "
            f"{self.cached:,} cached, {self.generated:,} generated; "
            f"hit rate {self.hit_rate:.1%} (best possible {self.best_hit_rate:.1%})"
        )
