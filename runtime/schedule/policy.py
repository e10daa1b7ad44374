"""Policies: the order in which waiting sequences are admitted, smallest key first.

The reverse of the same order says who is retracted first when the pool runs out.
"""

from __future__ import annotations

from collections.abc import Callable

from ramet.runtime.errors import InvalidArgument
from ramet.runtime.schedule.sequence import Sequence

Policy = Callable[[Sequence], tuple[int, ...]]


def fcfs(sequence: Sequence) -> tuple[int, ...]:
    """First come, first served, within a priority."""
    return (-sequence.priority, sequence.arrival)


def program(sequence: Sequence) -> tuple[int, ...]:
    """Oldest program first: its later calls go before the first calls of newer programs.

    Programs in flight finish soonest, so the fewest prefixes compete for the pool, and nobody is
    overtaken by more than the programs that came before.
    """
    return (-sequence.priority, sequence.program, sequence.arrival)


_POLICIES: dict[str, Policy] = {"fcfs": fcfs, "program": program}


def make_policy(name: str) -> Policy:
    """The policy of that name; raises InvalidArgument naming those that exist."""
    if name not in _POLICIES:
        raise InvalidArgument(f"policy={name!r}: must be one of {', '.join(sorted(_POLICIES))}")
    return _POLICIES[name]
