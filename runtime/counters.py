"""Counters: what the engine did, cumulative, settled before a caller wakes."""

from __future__ import annotations

import dataclasses
from typing import Any

MAX_NAMES = 4096
"""Most call sites, and most program names, that are counted apart."""
OTHER = "other"
"""Under which name the rest is counted."""


@dataclasses.dataclass(slots=True)
class Tally:
    """What some calls asked for and cost.

    `prompt_tokens` and `cached_tokens` are per sample: the length of its path at the start of its
    call, and how much of that was not charged to it.
    """

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    computed_tokens: int = 0
    """Rows that the model ran for tokens that these calls were the first to ask for. A token that
    was evicted or retracted and run again counts again, for whoever asked for it last."""
    generated_tokens: int = 0
    queue_seconds: float = 0.0
    run_seconds: float = 0.0


class TallyTable:
    """Tallies by name, at most `limit` of them; further names share one."""

    def __init__(self, limit: int = MAX_NAMES) -> None:
        self._limit = limit
        self._tallies: dict[str, Tally] = {}

    def of(self, name: str) -> Tally:
        """The tally of that name."""
        tally = self._tallies.get(name)
        if tally is None:
            if len(self._tallies) >= self._limit:
                name = OTHER
            tally = self._tallies.setdefault(name, Tally())
        return tally

    def to_dict(self) -> dict[str, dict[str, float]]:
        """By name, as plain data."""
        return {name: dataclasses.asdict(tally) for name, tally in self._tallies.items()}


@dataclasses.dataclass(slots=True)
class Counters:
    """Counts over the engine's life, in total, by call site and by program name.

    The sums over the sites, and over the programs, are the totals whenever no call runs.
    """

    total: Tally = dataclasses.field(default_factory=Tally)
    sites: TallyTable = dataclasses.field(default_factory=TallyTable)
    programs: TallyTable = dataclasses.field(default_factory=TallyTable)
    steps: int = 0
    head_rows: int = 0
    """Rows of logits made from stored hidden states."""
    peak_running: int = 0

    def tallies(self, site: str, program: str) -> tuple[Tally, ...]:
        """The accounts of a call site in a program."""
        return self.total, self.sites.of(site), self.programs.of(program)

    def to_dict(self) -> dict[str, Any]:
        """The totals that calls are booked on, flat, and both tables, as plain data."""
        return {
            **dataclasses.asdict(self.total),
            "steps": self.steps,
            "head_rows": self.head_rows,
            "peak_running": self.peak_running,
            "call_sites": self.sites.to_dict(),
            "programs": self.programs.to_dict(),
        }
