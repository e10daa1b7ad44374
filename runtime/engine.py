"""Engine: the one composition root, and the loop body of the runtime.

It takes operations on contexts, plans, launches and collects steps, and emits events. It is
synchronous and deterministic: threads, processes and clocks are the business of `worker`.
A step is `plan` (pure Python), `launch` (the model), `collect` (tokens, results, next operations).
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from ramet.runtime.ahead import NOBODY, Ahead, Flight
from ramet.runtime.cache.eviction import EvictionQueue
from ramet.runtime.cache.page_pool import PagePool
from ramet.runtime.cache.radix_tree import RadixTree
from ramet.runtime.config import RuntimeConfig
from ramet.runtime.contexts import Contexts
from ramet.runtime.counters import Counters
from ramet.runtime.deadlines import Deadlines
from ramet.runtime.errors import BackendError, Cancelled, RametError, from_wire, to_wire
from ramet.runtime.generation import Generations
from ramet.runtime.room import DrawingRunner, EngineRoom, Runner
from ramet.runtime.sampling.arithmetic import Arithmetic, torch_arithmetic
from ramet.runtime.sampling.rows import Sampled
from ramet.runtime.schedule.batch import Batch
from ramet.runtime.schedule.call import GenerateCall, ScoreCall
from ramet.runtime.schedule.context import CALLS, Context
from ramet.runtime.schedule.policy import OVERTAKING_POOLS, make_policy
from ramet.runtime.schedule.scheduler import Scheduler
from ramet.runtime.schedule.sequence import Branch, Generation
from ramet.runtime.schedule.step_budget import StepBudget
from ramet.runtime.schedule.switches import ALL_ON, Switches
from ramet.runtime.selection import Selections
from ramet.runtime.tokenizer import Tokenizer

Call = GenerateCall | ScoreCall


class Engine:
    """Operations in, events out; one `step` at a time."""

    def __init__(
        self,
        runner: Runner,
        tokenizer: Tokenizer,
        *,
        pool_tokens: int,
        page_size: int = 16,
        chunk_tokens: int = 512,
        target_step_ms: float | None = None,
        max_running: int = 256,
        policy: str = "program",
        max_overtakes: int | None = None,
        max_context: int = 8192,
        info: dict[str, Any] | None = None,
        switches: Switches = ALL_ON,
        arithmetic: Arithmetic | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        tree = RadixTree(
            PagePool(pool_tokens // page_size, page_size),
            queue=EvictionQueue(clock, foresight=switches.foresight),
        )
        if max_overtakes is None:
            max_overtakes = OVERTAKING_POOLS * pool_tokens
        scheduler = Scheduler(
            tree,
            make_policy(policy, max_overtakes),
            chunk_tokens=chunk_tokens,
            max_running=max_running,
            budget=StepBudget(target_step_ms / 1e3, chunk_tokens) if target_step_ms else None,
            switches=switches,
            clock=clock,
        )
        self.info = info or {}
        self.room = EngineRoom(
            runner,
            tokenizer,
            tree,
            scheduler,
            Counters(),
            max_context,
            self._emit,
            arithmetic=arithmetic or torch_arithmetic(),
            clock=clock,
        )
        self._events: list[dict[str, Any]] = []
        self._generations = Generations(self.room)
        self._selections = Selections(self.room)
        self._contexts = Contexts(self.room)
        self._calls: dict[int, Call] = {}
        self._queued: dict[int, dict[str, Any]] = {}
        """Operations of calls that wait for their context, by call."""
        self._deadlines = Deadlines()
        self._planned = self._collected = 0.0
        """When the step in hand was planned, and the one before collected."""
        self._ahead = Ahead(self.room, runner) if isinstance(runner, DrawingRunner) else None
        self._flight: Flight | None = None

    @classmethod
    def build(cls, config: RuntimeConfig) -> Engine:
        """Load the model that `config` names and size the pool; raises RametError."""
        from ramet.runtime.build import build_engine

        return build_engine(config)

    # The rim

    def submit(self, ops: Sequence[dict[str, Any]]) -> None:
        """Take operations, in order; each starts at once if its context is free."""
        self._settle()
        for op in ops:
            self._handle(op)

    def take_events(self) -> list[dict[str, Any]]:
        """The events since the last time, in order."""
        events, self._events = self._events, []
        return events

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing runs."""
        scheduler = self.room.scheduler
        return not (self._flight or scheduler.running or scheduler.num_waiting)

    def step(self) -> None:
        """End what is late, then plan, launch and collect one step; does nothing when idle.

        If the model or the sampler breaks, the calls in flight fail with its words and the engine
        serves the next ones.
        """
        late = self._deadlines.expired(self.room.clock())
        if late:
            self._settle()
        for number, seconds in late:
            error = Cancelled(f"the call was not done by its deadline of {seconds:g} s")
            self._end_call(number, error)
        try:
            if self._ahead is None:
                batch = self.plan()
                self.launch(batch)
                self.collect(batch)
            else:
                self._fly(self._ahead)
        except Exception:
            self._flight = None
            self._fail_all()

    def _fly(self, ahead: Ahead) -> None:
        """Launch the next step before the last one's tokens are known, if that can be."""
        flight = self._flight
        batch = ahead.plan(flight) if flight is not None else None
        if flight is not None:
            following = ahead.launch(batch, flight) if batch is not None else None
            self._land(ahead, flight, batch)
            self._flight = following
        if batch is not None:
            return
        batch = self.plan()
        if batch:
            self._flight = ahead.launch(batch)
            self.room.scheduler.commit(batch)
        else:
            self.collect(batch)

    def _land(self, ahead: Ahead, flight: Flight, following: Batch | None) -> None:
        """Take a flight's tokens, and count the batch that was planned on them as computed."""
        drawn = ahead.settle(flight, following)
        if following is not None:
            self.room.scheduler.commit(following)
        self._collect(flight.batch, drawn, flight.expected)

    def _settle(self) -> None:
        """Leave nothing in the air."""
        flight, self._flight = self._flight, None
        if flight is None or self._ahead is None:
            return
        try:
            self._land(self._ahead, flight, None)
        except Exception:
            self._fail_all()

    # The three parts of a step

    def plan(self) -> Batch:
        """Choose the next batch and reserve its slots."""
        self._planned = self.room.clock()
        return self.room.scheduler.plan()

    def launch(self, batch: Batch) -> None:
        """Compute the batch's rows. If the model fails, the rows' slots are given back."""
        if not batch.ranges:
            return
        try:
            self.room.runner.forward(batch)
        except Exception:
            self.room.scheduler.rollback(batch)
            raise

    def collect(self, batch: Batch) -> None:
        """Account for the batch, sample, report, and start what was waiting for it."""
        self.room.scheduler.commit(batch)
        self._collect(batch, None, NOBODY)

    def _collect(
        self, batch: Batch, drawn: list[Sampled] | None, expected: frozenset[Generation]
    ) -> None:
        """What `collect` does but for the tree; tokens may have been `drawn` for all already."""
        room = self.room
        if batch:
            room.counters.steps += 1
            room.counters.peak_running = max(
                room.counters.peak_running, len(room.scheduler.running)
            )
        generations = [s for s in batch.ready if isinstance(s, Generation)]
        whole = len(generations) == len(batch.ready)
        ended: list[Call] = []
        if drawn is not None:
            ended += self._generations.take(generations, drawn, expected)
        else:
            last_slots = batch.last_slots if whole else None
            ended += self._generations.collect(generations, last_slots, idle=not batch.ranges)
        if not whole:
            ended += self._selections.collect([s for s in batch.ready if isinstance(s, Branch)])
        outgrown, room.scheduler.outgrown = room.scheduler.outgrown, []
        for sequence in outgrown:
            if isinstance(sequence, Generation):
                ended += self._generations.outgrown(sequence)
        for call in ended:
            self._finish(call)
        now = room.clock()
        room.scheduler.took(batch, now - max(self._planned, self._collected))
        self._collected = now

    def stats(self) -> dict[str, Any]:
        """Cumulative counts and present sizes, flat; sizes are slots of whole pages.

        And two tables, "call_sites" and "programs": name → `counters.Tally` as a dict.
        """
        return {**self.room.books(), "contexts": len(self._contexts.live)}

    # Operations

    def _emit(self, event: dict[str, Any]) -> None:
        self._events.append(event)

    def _handle(self, op: dict[str, Any]) -> None:
        kind = op["op"]
        if kind == "open":
            self._contexts.open(op)
        elif kind == "stats":
            self._emit({"ev": "value", "call": op["call"], "value": self.stats()})
        elif kind == "flush":
            self.room.tree.flush()
            self._emit({"ev": "value", "call": op["call"], "value": self.stats()})
        elif kind == "abort":
            self._abort(op)
        elif (context := self._contexts.live.get(op["ctx"])) is not None and not context.closing:
            if kind == "fork":
                self._contexts.announce(context, op["children"])
            elif kind in CALLS:
                self._queued[op["call"]] = op
                if (seconds := op.get("params", {}).get("deadline")) is not None:
                    self._deadlines.add(op["call"], self.room.clock(), seconds)
            self.room.come_back(context, closes=kind == "close")
            context.push(op)
            self._advance(context)
        elif kind in CALLS:
            self._refuse(op["call"], Cancelled("the context was closed"))

    def _advance(self, context: Context) -> None:
        """Run a context's operations until it must wait."""
        pending = [context]
        while pending:
            here = pending.pop()
            while here.queue and here.ready:
                op = here.pop()
                if op["op"] == "fork":
                    pending += self._contexts.fork(here, op["children"])
                elif op["op"] == "join":
                    self._contexts.join(op["children"])
                elif op["op"] == "close":
                    self._contexts.close(here)
                    break
                else:
                    self._run(here, op)
            here.report()

    def _run(self, context: Context, op: dict[str, Any]) -> None:
        tree = self.room.tree
        if op["op"] == "append":
            if context.node is not None and not context.failed:
                context.node = tree.extend(context.node, op["ids"])
            return
        aborted = self._queued.pop(op["call"], None) is None  # and its caller has been told
        if aborted or context.failed is not None:
            context.failed = context.failed or op["error"]
            if not aborted:
                self._refuse(op["call"], context.failed)
            return
        try:
            starter = self._generations if op["op"] == "generate" else self._selections
            context.busy = starter.start(context, op)
        except Exception as error:  # The caller hears of it; the engine goes on.
            context.failed = from_wire(*to_wire(error))
            self._refuse(op["call"], context.failed)
            return
        self._calls[op["call"]] = context.busy
        if isinstance(context.busy, ScoreCall) and not context.busy.left:
            self._finish(context.busy)

    # Ends of calls

    def _finish(self, call: Call) -> None:
        """Report a call that is over, and let its context go on."""
        self._calls.pop(call.id, None)
        self._deadlines.discard(call.id)
        context = call.context
        context.busy = None
        settled = self.room.settle(call)
        if call.error is None:
            try:
                if isinstance(call, GenerateCall):
                    event = self._generations.result(call)
                else:
                    event = self._selections.result(call)
                event["meta"].update(settled)
                self._emit(event)
            except Exception as error:  # The caller hears of it; the engine goes on.
                call.error = from_wire(*to_wire(error))
        if call.error is not None:
            context.failed = call.error
            self._refuse(call.id, call.error)
        self._advance(context)
        self.room.leave(context, call.place.origin.site)

    def _refuse(self, call: int, error: RametError) -> None:
        self._deadlines.discard(call)
        kind, message = to_wire(error)
        self._emit({"ev": "error", "call": call, "kind": kind, "message": message})

    def _abort(self, op: dict[str, Any]) -> None:
        """Abort one call, or everything that a program still has; unknown ids are no errors."""
        error = Cancelled("the call was aborted")
        if "program" in op:
            contexts = self._contexts.of_program(op["program"])
            calls = [c.busy for c in contexts if c.busy is not None]
            for context in contexts:
                context.failed = error
            for call in calls:
                self._abandon(call, error)
            for context in contexts:
                self._advance(context)
        else:
            self._end_call(op["call"], error)

    def _end_call(self, number: int, error: RametError) -> None:
        """End one call with an error, running or queued; an unknown number is none."""
        if number in self._calls:
            self._abandon(self._calls[number], error)
        elif (op := self._queued.pop(number, None)) is not None:
            op["error"] = error  # of what is queued behind it, when its turn comes
            self._refuse(number, error)

    def _abandon(self, call: Call, error: RametError) -> None:
        if isinstance(call, GenerateCall):
            self._generations.abort(call, error)
        else:
            self._selections.abort(call, error)
        self._finish(call)

    def _fail_all(self) -> None:
        """A step has raised: fail every call in flight, and what is queued behind them."""
        error = BackendError(f"a step failed:\n{traceback.format_exc().rstrip()}")
        self.room.scheduler.outgrown.clear()
        for call in self._calls.values():
            call.context.failed = error
        for call in list(self._calls.values()):
            self._abandon(call, error)
