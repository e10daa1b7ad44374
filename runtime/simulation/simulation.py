"""Simulation: programs that come and go on one simulated engine; and what came of it."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import heapq
import itertools
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ramet.runtime.engine import Engine
from ramet.runtime.schedule.batch import Batch
from ramet.runtime.schedule.trace_log import TraceLog
from ramet.runtime.simulation.cost_model import CostModel, Work
from ramet.runtime.simulation.machine import Clock, SampleTimes, simulated_engine
from ramet.runtime.simulation.memory import MemoryMeter
from ramet.runtime.simulation.tokens import Tokens
from ramet.runtime.simulation.walker import Arrival, Manner, ProgramRun, World

UNLIMITED = 1 << 40
"""Tokens that a simulation's trace may have: the optimum is to be that of all calls."""

Watch = Callable[[Batch, Work, float], float | None]
"""(batch, its work, seconds that the step really took) → simulated seconds, or None for the cost
model's."""


@dataclasses.dataclass(slots=True)
class Outcome:
    """What came of a simulation. Times are in simulated seconds."""

    first_token: array[float] = dataclasses.field(default_factory=lambda: array("d"))
    """Of each call: from when its context came to it to its first token."""
    gaps: array[float] = dataclasses.field(default_factory=lambda: array("d"))
    """Between the tokens of a sample."""
    programs: array[float] = dataclasses.field(default_factory=lambda: array("d"))
    """From each program's arrival to its end."""
    makespan: float = 0.0
    errors: int = 0
    stats: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The engine's own."""
    kv_utilisation: float = 0.0
    """Reserved slots that hold a token, on average over the steps; 0 if it wasn't measured."""


class Simulation:
    """One engine, its clock, and the programs on it."""

    def __init__(
        self,
        cost: CostModel,
        *,
        manner: Manner | None = None,
        tokens: Tokens | None = None,
        measure_memory: bool = False,
        engine: Engine | None = None,
        watch: Watch | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are the engine's, unless it is there already.

        `watch` sees each step's batch, and says how long it took; without it, `cost` does.
        """
        self.clock = Clock()
        tokens = tokens or Tokens()
        self._times = SampleTimes(self.clock)
        self.engine = engine or simulated_engine(self.clock, self._times, tokens, **settings)
        if engine is None:
            self.engine.room.trace = TraceLog(max_tokens=UNLIMITED)
        self._watch = watch
        self.meter = MemoryMeter(self.engine.room.scheduler) if measure_memory else None
        self._cost = cost
        self._world = World(tokens, manner or Manner())
        self._due: list[tuple[float, int, ProgramRun | Arrival, int]] = []
        """(when, tie, whom, the node of a pause)."""
        self._tie = itertools.count()
        self._calls: dict[int, ProgramRun] = {}
        self._keys: dict[int, list[int]] = {}
        self.outcome = Outcome(gaps=self._times.gaps)

    @property
    def load(self) -> int:
        """Calls that aren't over."""
        return len(self._calls)

    @property
    def expected(self) -> int:
        """Programs and results of tools that are still to come."""
        return len(self._due)

    def add(self, arrival: Arrival) -> None:
        """A program that will come."""
        heapq.heappush(self._due, (arrival.at, next(self._tie), arrival, -1))

    def run(self, until: float = float("inf")) -> None:
        """Let time pass until that second, or until nothing is left to do."""
        engine, clock = self.engine, self.clock
        while True:
            while self._due and self._due[0][0] <= clock.now:
                _, _, who, node = heapq.heappop(self._due)
                self._wake(who, node)
            self._take_events()
            if engine.idle:
                if not self._due or self._due[0][0] > until:
                    return
                clock.now = self._due[0][0]
            elif clock.now >= until:
                return
            else:
                self.step()

    def step(self) -> None:
        """One step of the engine."""
        engine, clock = self.engine, self.clock
        started = time.perf_counter()
        batch = engine.plan()
        engine.launch(batch)
        if self.meter is not None:
            self.meter.sample()
        work = Work.of(batch)
        if self._watch is None:
            clock.now += self._cost.seconds(work)
            engine.collect(batch)
        else:
            engine.collect(batch)
            seconds = self._watch(batch, work, time.perf_counter() - started)
            clock.now += self._cost.seconds(work) if seconds is None else seconds
        self._take_events()

    def finish(self) -> Outcome:
        """Run to the end; what came of it."""
        self.run()
        outcome = self.outcome
        outcome.stats = self.engine.stats()
        if self.meter is not None:
            outcome.kv_utilisation = self.meter.utilisation
        return outcome

    # Inside

    def _wake(self, who: ProgramRun | Arrival, node: int) -> None:
        if isinstance(who, Arrival):
            who = ProgramRun(who, self._world)
            who.start()
        else:
            who.finish(node)
        self._submit(who)

    def _submit(self, run: ProgramRun) -> None:
        now = self.clock.now
        for seconds, node in run.pauses:
            heapq.heappush(self._due, (now + seconds, next(self._tie), run, node))
        run.pauses.clear()
        for op in run.ops:
            if op["op"] == "generate":
                self._keys[op["call"]] = op["keys"]
        for call in run.calls:
            self._calls[call] = run
        run.calls.clear()
        ops, run.ops = run.ops, []
        if ops:
            self.engine.submit(ops)
        if run.over:
            self.outcome.programs.append(now - run.arrival.at)

    def _take_events(self) -> None:
        while events := self.engine.take_events():  # What follows on one may be over at once.
            for event in events:
                self._take(event)

    def _take(self, event: dict[str, Any]) -> None:
        if event["ev"] not in ("done", "error"):
            return
        outcome, now = self.outcome, self.clock.now
        outcome.makespan = now
        call = event["call"]
        keys = self._keys.pop(call, ())
        if event["ev"] == "error":
            outcome.errors += 1
        else:
            meta = event["meta"]
            asked = now - meta["queue_s"] - meta["run_s"]
            first = self._times.first
            for key in keys:
                outcome.first_token.append(first.pop(key, now) - asked)
        run = self._calls.pop(call)
        run.take(event)
        self._submit(run)


def simulate(arrivals: Iterable[Arrival], cost: CostModel, **settings: Any) -> Outcome:
    """Run programs to their end on one engine."""
    simulation = Simulation(cost, **settings)
    for arrival in arrivals:
        simulation.add(arrival)
    with few_collections():
        return simulation.finish()


@contextlib.contextmanager
def few_collections() -> Iterator[None]:
    """Look for garbage in cycles seldom: with a million live objects, looking often takes a third
    of a simulation's time."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
