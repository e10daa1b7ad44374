"""MemoryMeter: how much of the KV memory that running sequences have reserved holds a token."""

from __future__ import annotations

from ramet.runtime.schedule.scheduler import Scheduler

EVERY = 8


class MemoryMeter:
    """Looks at a scheduler's pool after each planned step."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._held_tokens = 0
        self._reserved_slots = 0
        self._steps = 0

    def sample(self) -> None:
        """Look, at every `EVERY`-th step. Costs a walk over the pool's pages."""
        self._steps += 1
        if self._steps % EVERY:
            return
        pool = self._scheduler.pool
        held = sum(pool.fill_of(page) for page in range(pool.num_pages) if pool.holds_of(page))
        pages = pool.held_pages + self._scheduler.reserved_pages
        self._held_tokens += held
        self._reserved_slots += pages * pool.page_size

    @property
    def utilisation(self) -> float:
        """Slots with a token over reserved slots, summed over all looks."""
        return self._held_tokens / self._reserved_slots if self._reserved_slots else 0.0
