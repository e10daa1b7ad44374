"""Counters: what the engine did, cumulative, settled before a caller wakes."""

from __future__ import annotations

import dataclasses
from typing import Any

MAX_ACCOUNTS = 4096
"""Most pairs of a call site and a program name that are counted apart."""
OTHER = "other"
"""Under which name, of a site and of a program, the rest is counted."""


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

    def add(self, other: Tally) -> None:
        """What those calls asked for and cost, too."""
        for name in _FIELDS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_FIELDS = [field.name for field in dataclasses.fields(Tally)]


class Counters:
    """Counts over the engine's life, in total, by call site and by program name.

    A call is booked once, on the account of its site in its program; the sums are made when
    somebody asks. Those over the sites, and over the programs, are the totals whenever no call
    runs.
    """

    def __init__(self, max_accounts: int = MAX_ACCOUNTS) -> None:
        self.steps = 0
        self.head_rows = 0
        """Rows of logits made from stored hidden states."""
        self.peak_running = 0
        self._max_accounts = max_accounts
        self._accounts: dict[tuple[str, str], Tally] = {}

    def account(self, site: str, program: str) -> Tally:
        """Where the calls of a site in a program are booked."""
        account = self._accounts.get((site, program))
        if account is None:
            if len(self._accounts) >= self._max_accounts:
                site = program = OTHER
            account = self._accounts.setdefault((site, program), Tally())
        return account

    def to_dict(self) -> dict[str, Any]:
        """The totals of all calls, flat, and both tables, as plain data."""
        total = Tally()
        sites: dict[str, Tally] = {}
        programs: dict[str, Tally] = {}
        for (site, program), account in self._accounts.items():
            for tally in (
                total,
                sites.setdefault(site, Tally()),
                programs.setdefault(program, Tally()),
            ):
                tally.add(account)
        return {
            **dataclasses.asdict(total),
            "steps": self.steps,
            "head_rows": self.head_rows,
            "peak_running": self.peak_running,
            "call_sites": {name: dataclasses.asdict(tally) for name, tally in sites.items()},
            "programs": {name: dataclasses.asdict(tally) for name, tally in programs.items()},
        }
