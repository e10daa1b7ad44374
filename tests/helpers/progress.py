"""Progress: steps an engine, and fails where nothing comes of its steps."""

from __future__ import annotations

from ramet.runtime.engine import Engine


class Progress:
    """Steps without a token, a score or an end of a call, counted; `limit` in a row are a stall."""

    def __init__(self, engine: Engine, limit: int) -> None:
        self.engine = engine
        self.limit = limit
        self.quiet = 0
        self.longest = 0
        """The most steps in a row of which nothing came."""

    def step(self) -> None:
        """One step of the engine."""
        before, idle = self._done(), self.engine.idle
        self.engine.step()
        self.quiet = 0 if idle or self._done() != before else self.quiet + 1
        self.longest = max(self.longest, self.quiet)
        assert self.quiet < self.limit, f"nothing came of {self.quiet} steps"

    def _done(self) -> tuple[int, int]:
        calls = len(self.engine._calls) + len(self.engine._queued)
        return self.engine.room.counters.head_rows, calls
