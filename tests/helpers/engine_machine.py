"""A machine for random operations on an engine, beside the naive model that says what must come
of them.

Most of it is what happens to a call besides being served: it is aborted while it is queued,
prefills or decodes, its pages are evicted, it is retracted, a step breaks under it.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from flying_runner import FlyingRunner
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from letters import END, prompts, script
from naive_engine import NaiveCall, NaiveEngine
from progress import Progress
from scripted_engine import Bench, ScriptedRunner

from ramet.runtime.cache.audit import audit, audit_idle
from ramet.runtime.request import SamplingParams
from ramet.runtime.sampling.streams import stream_key
from ramet.runtime.schedule.sequence import Generation

MAX_CONTEXT = 40
MAX_CONTEXTS = 14
CODES = 8 * 5 * 3 * 4 * 4 * 12 * 4
"""Of generations, see `EngineMachine.ask`."""
STALL = 80
"""Steps in a row without a token, a score or an error that still count as progress."""


class EngineMachine(RuleBasedStateMachine):
    """One engine, whose steps overlap if `flying`, and its naive twin. `tally`: what happened."""

    def __init__(self, hostile: bool, flying: bool, tally: Counter[str]) -> None:
        super().__init__()
        self.hostile = hostile
        self.flying = flying
        self.tally = tally
        self.calm = 8
        """Steps since something was last disturbed."""

    @initialize(
        policy=st.sampled_from(["program", "dfs", "lpm", "fcfs"]),
        page_size=st.sampled_from([1, 2, 4, 16]),
        size=st.integers(0, 63),
        overtakes=st.sampled_from([1, 10, 16384]),
    )
    def start(self, policy: str, page_size: int, size: int, overtakes: int) -> None:
        if self.hostile:
            pages = max(2 + size % 7, -(-10 // page_size))
            chunk, running = 1 + size % 7, 4
        else:
            pages = (40 + size) // page_size
            chunk, running = (5, 64)[size % 2], (3, 32)[size // 2 % 2]
        self.bench = Bench(
            script,
            FlyingRunner if self.flying else ScriptedRunner,
            pool_tokens=pages * page_size,
            page_size=page_size,
            chunk_tokens=chunk,
            max_running=running,
            max_context=MAX_CONTEXT,
            policy=policy,
            max_overtakes=overtakes,
        )
        self.engine = self.bench.engine
        self.progress = Progress(self.engine, STALL)
        self.tree, self.scheduler = self.engine.room.tree, self.engine.room.scheduler
        self.naive = NaiveEngine(script, pages * page_size, MAX_CONTEXT)
        self.longest = min(pages * page_size + 2, 28)

    # Programs

    @property
    def open(self) -> list[int]:
        return [number for number, here in self.naive.contexts.items() if not here.closed]

    def pick(self, index: int) -> int:
        """One of the open contexts, rather a late one."""
        return self.open[-1 - index % len(self.open)]

    def ask(self, context: int, code: int) -> None:
        """Submit a generation; `code` says which."""
        code, sharing = divmod(code, 8)
        code, priority = divmod(code, 5)
        code, temperature = divmod(code, 3)
        code, penalty = divmod(code, 4)
        code, n = divmod(code, 4)
        seed, limit = divmod(code, 12)
        fields: dict[str, Any] = {
            "max_new_tokens": 1 + limit,
            "n": max(n, 1),
            "temperature": (0.0, 0.8, 1.3)[temperature],
            "ignore_eos": True,
            "stop_token_ids": [END] if seed % 2 else [],
            "priority": (None, None, -1, 0, 2)[priority],
            "cache": False if sharing in (1, 3) else None,
            "cache_salt": "call" if sharing == 2 else None,
            "frequency_penalty": 0.7 if penalty == 1 else 0.0,
            "repetition_penalty": 1.3 if penalty == 2 else 1.0,
        }
        params = SamplingParams.build(fields)
        keys = [stream_key(seed, "", 0, i) for i in range(params.n)]
        call = self.bench.number()
        self.naive.generate(context, call, params, keys)
        op = {"op": "generate", "ctx": context, "call": call, "stream": False, "site": str(n)}
        self.submit({**op, "params": params.to_wire(), "keys": keys})
        self.tally["generate"] += 1

    def go_on(self, code: int) -> None:
        """No steps, or a few: what is submitted meets what runs in any state."""
        self.step((0, 0, 1, 4)[code // 1000 % 4])

    def submit(self, *ops: dict[str, Any]) -> None:
        self.engine.submit(ops)
        self.take_events()

    def take_events(self) -> None:
        """Have the naive model check what the engine says."""
        events = [e for e in self.engine.take_events() if e["ev"] in ("done", "error")]
        for event in events:
            self.naive.answer(event)
            self.tally[event.get("kind", "done")] += 1
            self.tally["pool_exhausted"] += any(
                "pool_exhausted" in result for result in event.get("results", ())
            )

    @precondition(lambda self: len(self.open) < MAX_CONTEXTS)
    @rule(data=st.data(), kind=st.integers(0, 29), code=st.integers(0, CODES - 1))
    def submit_program(self, data: st.DataObject, kind: int, code: int) -> None:
        """A new program, which mostly asks for something at once."""
        kind, salt = divmod(kind, 3)
        ids = data.draw(prompts(self.longest))
        context = self.bench.number()
        fields = {"salt": (None, None, "a")[salt], "cache": kind % 5 != 1, "priority": kind % 3}
        op = {"op": "open", "ctx": context, "program": context, **fields}
        self.naive.open(context, context, ids, fields["salt"], fields["cache"])
        self.submit(op, {"op": "append", "ctx": context, "ids": ids})
        for turn in range((0, 1, 1, 2)[kind % 4]):
            self.ask(context, code + turn)
        self.go_on(code)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), index=st.integers(0, MAX_CONTEXTS - 1))
    def append(self, data: st.DataObject, index: int) -> None:
        context = self.pick(index)
        ids = data.draw(prompts(6))
        self.naive.append(context, ids)
        self.submit({"op": "append", "ctx": context, "ids": ids})

    @precondition(lambda self: self.open)
    @rule(index=st.integers(0, MAX_CONTEXTS - 1), code=st.integers(0, CODES - 1))
    def generate(self, index: int, code: int) -> None:
        self.ask(self.pick(index), code)
        self.go_on(code)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), index=st.integers(0, MAX_CONTEXTS - 1), plain=st.booleans())
    def score(self, data: st.DataObject, index: int, plain: bool) -> None:
        context, call = self.pick(index), self.bench.number()
        lists = data.draw(st.lists(prompts(5), min_size=1, max_size=3, unique_by=tuple))
        method = "token_length_normalized" if plain else "unconditional_likelihood_normalized"
        if not self.naive.score(context, call, lists, method):
            return
        op = {"op": "score", "ctx": context, "call": call, "method": method, "temperature": 0.0}
        choices = [{"ids": ids, "first": 0, "append": ids} for ids in lists]
        self.submit({**op, "key": 1, "choices": choices, "rest": [], "prefix": []})
        self.tally["score"] += 1

    @precondition(lambda self: 0 < len(self.open) < MAX_CONTEXTS)
    @rule(
        index=st.integers(0, MAX_CONTEXTS - 1),
        n=st.integers(1, 3),
        joined=st.booleans(),
        code=st.integers(0, CODES - 1),
    )
    def fork(self, index: int, n: int, joined: bool, code: int) -> None:
        parent = self.pick(index)
        children = [self.bench.number() for _ in range(n)]
        self.naive.fork(parent, children)
        self.submit({"op": "fork", "ctx": parent, "children": children})
        for number, child in enumerate(children):
            self.ask(child, code + number)
        if joined:
            self.submit({"op": "join", "ctx": parent, "children": children})
        self.tally["fork"] += 1
        self.go_on(code)

    @precondition(lambda self: self.open)
    @rule(index=st.integers(0, MAX_CONTEXTS - 1))
    def close(self, index: int) -> None:
        context = self.pick(index)
        self.naive.close(context)
        self.submit({"op": "close", "ctx": context})
        self.tally["close"] += 1

    # What goes wrong

    def phase(self, call: int) -> str:
        """Where a call is in its life."""
        if call in self.engine._queued:
            return "queued"
        alive = [s for s in self.engine._calls[call].sequences if s.alive]
        if any(isinstance(s, Generation) and s.output_ids for s in alive):
            return "decoding" if any(s.running for s in alive) else "retracted"
        if any(s.running and not s.node.complete and s.node.last_slot() >= 0 for s in alive):
            return "prefilling"
        return "running" if any(s.running for s in alive) else "waiting"

    def calls_in(self, *phases: str) -> list[int]:
        return [call for call in self.naive.calls if self.phase(call) in phases]

    def abort(self, calls: list[int], index: int) -> None:
        call = calls[index % len(calls)]
        self.calm = 0
        self.tally[f"abort {self.phase(call)}"] += 1
        self.naive.fail(call, "Cancelled")
        self.submit({"op": "abort", "call": call})
        assert call not in self.naive.calls, "its caller hears at once"

    @precondition(lambda self: self.calm >= 1 and self.calls_in("queued"))
    @rule(index=st.integers(0, 31))
    def abort_queued(self, index: int) -> None:
        self.abort(self.calls_in("queued"), index)

    @precondition(lambda self: self.calm >= 3 and self.calls_in("waiting"))
    @rule(index=st.integers(0, 31))
    def abort_waiting(self, index: int) -> None:
        self.abort(self.calls_in("waiting"), index)

    @precondition(lambda self: self.calls_in("retracted"))
    @rule(index=st.integers(0, 31))
    def abort_retracted(self, index: int) -> None:
        self.abort(self.calls_in("retracted"), index)

    @precondition(lambda self: self.calls_in("prefilling"))
    @rule(index=st.integers(0, 31))
    def abort_prefilling(self, index: int) -> None:
        self.abort(self.calls_in("prefilling"), index)

    @precondition(lambda self: self.calm >= 1 and self.calls_in("decoding", "running"))
    @rule(index=st.integers(0, 31))
    def abort_decoding(self, index: int) -> None:
        self.abort(self.calls_in("decoding", "running"), index)

    @precondition(lambda self: self.calm >= 6 and self.open)
    @rule(index=st.integers(0, MAX_CONTEXTS - 1))
    def abort_program(self, index: int) -> None:
        program = self.naive.contexts[self.pick(index)].program
        self.naive.abort_program(program)
        self.submit({"op": "abort", "program": program})
        here = [c for c in self.naive.contexts.values() if c.program == program]
        assert not any(
            isinstance(call, NaiveCall) and call.number in self.naive.calls
            for context in here
            for call in context.history
        )
        self.calm = 0
        self.tally["abort program"] += 1

    @precondition(lambda self: self.calm)
    @rule(pages=st.integers(1, 16))
    def evict(self, pages: int) -> None:
        before = self.tree.evicted_tokens
        wanted = self.tree.pool.free_pages + pages
        done = self.tree.evict(wanted)
        assert self.tree.pool.free_pages == wanted if done else self.tree.pool.free_pages < wanted
        assert done or not self.tree.pool.cached_pages
        self.calm = 0
        self.tally["evict"] += self.tree.evicted_tokens > before

    @precondition(lambda self: self.scheduler.running)
    @rule(index=st.integers(0, 31))
    def retract(self, index: int) -> None:
        running = self.scheduler.running
        self.scheduler._retract(running[index % len(running)])
        self.tally["retract"] += 1

    @precondition(lambda self: self.calm >= 8)
    @rule()
    def flush(self) -> None:
        self.submit({"op": "flush", "call": self.bench.number()})
        assert not self.tree.pool.cached_pages
        self.calm = 0
        self.tally["flush"] += 1

    @precondition(lambda self: self.calm >= 4 and self.engine._calls)
    @rule()
    def break_a_step(self) -> None:
        """The model fails: all calls in flight do."""
        if self.flying:
            self.advance()  # and leave that step in the air
        calls, forward = list(self.engine._calls), self.bench.runner.forward
        broke: list[bool] = []

        def broken(_batch: object) -> None:
            broke.append(True)
            for call in self.engine._calls:  # some have just ended, and others begun
                self.naive.fail(call, "BackendError")
            raise FloatingPointError

        self.bench.runner.forward = broken  # type: ignore[method-assign]
        self.advance()
        self.bench.runner.forward = forward  # type: ignore[method-assign]
        assert not broke or not self.naive.calls.keys() & set(calls)
        self.calm = 0
        self.tally["broken step"] += bool(broke)

    # Time

    def advance(self) -> None:
        """One step."""
        retractions, batches = self.scheduler.retractions, self.bench.runner.batches
        idle = self.engine.idle
        self.progress.step()
        self.take_events()
        self.tally["step"] += not idle
        self.calm += not idle
        self.tally["forced out"] += self.scheduler.retractions - retractions
        assert not batches or len(batches[-1].token_ids) <= self.scheduler.chunk_tokens

    def step(self, count: int) -> None:
        for _ in range(count):
            self.advance()
            self.books_add_up()
        self.submit()  # and so nothing is in the air

    @rule(count=st.integers(1, 3))
    def few_steps(self, count: int) -> None:
        self.step(count)

    @rule(count=st.integers(2, 12))
    def many_steps(self, count: int) -> None:
        self.step(count)

    @precondition(lambda self: len(self.naive.calls) > 4)
    @rule(left=st.integers(0, 4))
    def settle(self, left: int) -> None:
        """Until few calls are left."""
        while len(self.naive.calls) > left:
            assert not self.engine.idle, "a call was never answered"
            self.step(1)

    @invariant()
    def after_each_operation(self) -> None:
        self.tally["operation"] += 1
        self.books_add_up()

    def books_add_up(self) -> None:
        audit(self.tree)
        stats, pool = self.tree, self.tree.pool
        assert pool.free_pages + pool.cached_pages + pool.held_pages == pool.num_pages
        computed = stats.edge_tokens + stats.decode_tokens + stats.recomputed_tokens
        assert computed == len(self.bench.runner.rows)
        assert len(self.scheduler.running) <= self.scheduler.max_running
        alive = {s for call in self.engine._calls.values() for s in call.sequences if s.alive}
        assert alive == {*self.scheduler.running, *self.scheduler._waiting}

    def namespaces_are_apart(self) -> None:
        """What is computed below a salt was asked for with that salt."""
        for salt, root in self.tree._roots.items():
            asked = self.naive.asked.get(salt, set())
            stack = list(root.children.values())
            while stack:
                node = stack.pop()
                stack += node.children.values()
                path = tuple(node.path_ids()[: node.start + node.computed])
                assert not node.computed or path in asked, (salt, path)

    def teardown(self) -> None:
        if sys.exc_info()[0] is not None or not hasattr(self, "bench"):
            return  # it has failed already
        while not self.engine.idle:
            self.advance()
            audit(self.tree)
        if isinstance(self.bench.runner, FlyingRunner):
            self.tally["ahead"] += self.bench.runner.num_ahead
        assert not self.naive.calls, "a call was never answered"
        for number, here in self.naive.contexts.items():
            assert here.closed == (number not in self.engine._contexts.live)
            if not here.closed and here.error is None:
                assert tuple(self.engine._contexts.live[number].node.path_ids()) == here.path
        self.namespaces_are_apart()
        self.submit(*({"op": "close", "ctx": context} for context in self.open))
        audit_idle(self.tree)
        engine = self.engine
        left = (engine._contexts.live, engine._contexts.programs, engine._calls, engine._queued)
        assert not any(left), left
        assert not self.tree._private
        assert not any(node.refs or node.held or node.waits for node in self.tree.nodes())
