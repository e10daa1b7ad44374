"""The engine's counters equal an account that is kept from outside: a plain trie of what was asked.

Σ edges is counted over prompts, choices without their last token, and nothing else, minus the
positions that a sample reached first; the engine's tree is never read.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from oracle import ModelBench, Trie, score
from scripted_engine import Bench, Script, hashed

from ramet.runtime.cache.audit import audit, audit_idle
from ramet.runtime.engine import Engine
from ramet.runtime.sampling.scoring import METHODS

LETTERS = (97, 98, 99)  # what the models here mostly write, so that samples and prompts meet


@dataclasses.dataclass
class _Line:
    """A context as the ledger sees it."""

    trie: Trie
    prefixed: Callable[[], Trie]
    """The trie of what is scored without the context."""
    path: list[int] | None = None
    queue: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    busy: int | None = None


class Ledger:
    """Stands in for an engine, and keeps its own account of what had to be computed, and why.

    It follows contexts through operations, sampled tokens and results, without the engine's tree.
    Calls that fail or are aborted aren't followed.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._shared: dict[str | None, Trie] = {}
        self._private: list[Trie] = []
        self._lines: dict[int, _Line] = {}
        self._calls: dict[int, tuple[_Line, dict[str, Any]]] = {}
        self._events: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @property
    def edges(self) -> int:
        return sum(trie.edges for trie in self._tries())

    @property
    def decodes(self) -> int:
        return sum(trie.decodes for trie in self._tries())

    def _tries(self) -> Iterator[Trie]:
        yield from self._shared.values()
        yield from self._private

    def check(self, fits: bool = True) -> None:
        """Assert the counters at idle; `fits`: the pool was large enough for everything."""
        stats = self._engine.stats()
        assert self._engine.idle
        assert stats["edge_tokens"] == self.edges
        assert stats["decode_tokens"] == self.decodes
        assert stats["computed_tokens"] == (
            stats["edge_tokens"] + stats["decode_tokens"] + stats["recomputed_tokens"]
        )
        if fits:
            assert stats["recomputed_tokens"] == 0

    def submit(self, ops: Sequence[dict[str, Any]]) -> None:
        for op in ops:
            self._engine.submit([op])
            self._enter(op)
            self._follow()

    def step(self) -> None:
        self._engine.step()
        self._follow()

    def take_events(self) -> list[dict[str, Any]]:
        events, self._events = self._events, []
        return events

    def _enter(self, op: dict[str, Any]) -> None:
        if op["op"] == "open":
            if op.get("cache", True):
                trie = self._shared.setdefault(op.get("salt"), Trie())
                self._lines[op["ctx"]] = _Line(trie, lambda: trie, [])
            else:
                self._lines[op["ctx"]] = _Line(self._alone(), self._alone, [])
        elif "ctx" in op:
            line = self._lines[op["ctx"]]
            for child in op.get("children", ()):
                self._lines[child] = _Line(line.trie, line.prefixed)
            line.queue.append(op)
            self._advance(line)

    def _alone(self) -> Trie:
        self._private.append(Trie())
        return self._private[-1]

    def _advance(self, line: _Line) -> None:
        while line.queue and line.busy is None and line.path is not None:
            op = line.queue.pop(0)
            if op["op"] == "append":
                line.path = [*line.path, *op["ids"]]
            elif op["op"] == "fork":
                for child in op["children"]:
                    self._lines[child].path = line.path
                    self._advance(self._lines[child])
            elif op["op"] in ("generate", "score"):
                line.busy = op["call"]
                self._calls[op["call"]] = (line, op)
                line.trie.demand(line.path)
                self._demand_choices(line, op)

    @staticmethod
    def _demand_choices(line: _Line, op: dict[str, Any]) -> None:
        assert line.path is not None
        for choice in op.get("choices", ()):
            line.trie.demand([*line.path, *choice["ids"][:-1]])
        if op.get("method") == "unconditional_likelihood_normalized":
            trie = line.prefixed()
            for choice in op["choices"]:
                if len(alone := choice["ids"][choice["first"] :]) > 1:
                    trie.demand([*op["prefix"], *alone[:-1]])

    def _follow(self) -> None:
        """Tokens were sampled before the calls that they ended let others begin."""
        events = self._engine.take_events()
        self._events += events
        done = [event for event in events if event["ev"] == "done"]
        for event in done:
            line, op = self._calls[event["call"]]
            if op["op"] == "generate":
                for result in event["results"]:
                    self._sampled(line, result["output_token_ids"][:-1])
        for call, (line, op) in self._calls.items():
            live = self._engine._calls.get(call)
            if live is not None and op["op"] == "generate":
                for sample in live.samples:
                    ended = sample.output.finished is not None
                    self._sampled(line, sample.output_ids[: len(sample.output_ids) - ended])
        for event in done:
            line, op = self._calls.pop(event["call"])
            result = event["results"][0]
            kept = result.get("output_token_ids", [])[: result.get("kept")]
            line.path = [*line.path, *kept, *result.get("tail", ()), *result.get("append", ())]
            line.busy = None
            self._advance(line)

    @staticmethod
    def _sampled(line: _Line, ids: Sequence[int]) -> None:
        assert line.path is not None
        line.trie.demand([*line.path, *ids], sampled=True)


SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 20))]


def _few_letters() -> Script:
    base = hashed(259)

    def script(path: tuple[int, ...]) -> torch.Tensor:
        logits = base(path)
        logits[list(LETTERS)] += 60
        return logits

    return script


Make = Callable[..., Bench]


@pytest.fixture(params=["scripted", "tiny"])
def make(request: pytest.FixtureRequest, bench: Callable[..., ModelBench], tiny: Any) -> Iterator:
    """Builds benches whose engine is behind a `Ledger`, over a scripted and over a real model."""
    made: list[Bench] = []

    def build(**options: Any) -> Bench:
        if request.param == "tiny":
            one: Bench = bench(tiny, **options)
        else:
            one = Bench(_few_letters(), **options)
            made.append(one)
        one.engine = Ledger(one.engine)  # type: ignore[assignment]
        return one

    yield build
    for one in made:
        audit_idle(one.engine.room.tree)
        assert len(one.runner.rows) == one.engine.stats()["computed_tokens"]


BIAS = dict.fromkeys(LETTERS, 60.0)


def generate(bench: Bench, context: int, **params: Any) -> int:
    return bench.generate(context, logit_bias=BIAS, **params)


def choice(ids: Sequence[int], first: int = 0) -> dict[str, Any]:
    return {"ids": list(ids), "first": first, "append": list(ids)}


def wire(choices: Sequence[Sequence[int]], prefix: Sequence[int] = ()) -> dict[str, Any]:
    return {"choices": [choice(ids) for ids in choices], "rest": [], "prefix": list(prefix)}


def test_forty_requests_with_one_prefix_at_once(make: Make) -> None:
    bench = make()
    prefix = [random.Random(1).randrange(256) for _ in range(70)]
    for i in range(40):
        bench.generate(bench.open([*prefix, i]), max_tokens=4)
    bench.run()
    bench.engine.check()
    assert bench.engine.edges == 70 + 40


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_sixteen_forks(make: Make, temperature: float) -> None:
    bench = make(pool_tokens=2048)
    parent = bench.open(range(50))
    first = generate(bench, parent, max_tokens=5)
    children = bench.fork(parent, 16)
    for i, child in enumerate(children):
        generate(bench, child, max_tokens=12, temperature=temperature, seed=i)
        bench.append(child, [i, 7])
        generate(bench, child, max_tokens=3)
    bench.run()
    bench.engine.check()
    assert len(bench.ids(first)) == 5
    if temperature == 0:  # a call's last token belongs to the next one's prompt
        assert bench.engine.edges == 50 + 1 + 1 + 16 * 2


@pytest.mark.parametrize("method", METHODS)
def test_a_hundred_choices(make: Make, method: str) -> None:
    bench = make(pool_tokens=8192)
    choices = [[48 + i // 10, 48 + i % 10, 46, 48] for i in range(100)]
    for _ in range(2):
        context = bench.open([81, 58, 32])
        score(bench, context, wire(choices, prefix=[1]), method)
        generate(bench, context, max_tokens=3)
        bench.run()
        bench.close(context)
    bench.engine.check()
    below = 10 + 100 + 100
    alone = 1 + below if method == "unconditional_likelihood_normalized" else 0
    # The winner's last token is computed when the next call needs it.
    assert bench.engine.edges == 3 + below + alone + 1


def test_a_conversation(make: Make) -> None:
    bench = make(pool_tokens=2048)
    context = bench.open(b"system. ")
    for turn in range(6):
        bench.append(context, b"user asks %d. " % turn)
        call = generate(bench, context, max_tokens=9, temperature=1.0, seed=turn, stop="cb")
        if turn % 2:
            score(bench, context, wire([b"yes", b"no", b"not sure"]), METHODS[0])
        bench.run()
        kept = bench.done[call]["results"][0]
        assert kept["kept"] == len(kept["output_token_ids"]) - 2 * (kept["matched"] == "cb")
    bench.engine.check()


def test_four_samples_of_one_prompt(make: Make) -> None:
    bench = make(pool_tokens=2048)
    for temperature in (1.0, 0.0, 0.7):
        context = bench.open(b"once upon a time")
        generate(bench, context, max_tokens=10, n=4, temperature=temperature)
        generate(bench, context, max_tokens=10, n=4, temperature=1.0, seed=9)
        bench.run()
        bench.close(context)
    bench.engine.check()
    stats = bench.engine.stats()
    assert stats["prompt_tokens"] == 3 * 4 * (16 + 26)
    assert stats["generated_tokens"] == 3 * 4 * 20


def soup(bench: Bench, source: random.Random, actions: int, limit: int, short: float) -> None:
    """Random programs over few letters, with random steps between their operations.

    Texts and calls are shorter than `limit`; each action ends a context with chance `short`.
    """
    live: list[int] = []

    def letters(low: int, high: int) -> list[int]:
        return [source.choice(LETTERS) for _ in range(source.randrange(low, high))]

    for _ in range(actions):
        dice = source.random()
        if dice < 0.2 or not live:
            if source.random() < 0.2:
                context = bench.open(letters(1, 8), cache=False)
                generate(bench, context, max_tokens=source.randrange(1, 8))
                bench.close(context)
            live.append(bench.open(letters(1, 8), salt=source.choice([None, None, "salt"])))
            continue
        context = source.choice(live)
        if source.random() < short:
            bench.close(context)
            live.remove(context)
        elif dice < 0.3:
            bench.append(context, letters(1, limit))
        elif dice < 0.55:
            generate(
                bench,
                context,
                max_tokens=source.randrange(1, limit),
                n=source.choice([1, 1, 1, 2, 3]),
                temperature=source.choice([0.0, 1.0]),
                stop=source.choice([(), (), "ab", ("c", "aaa")]),
                seed=source.randrange(100),
            )
        elif dice < 0.65:
            choices = {tuple(letters(1, 5)): None for _ in range(source.randrange(1, 9))}
            fields = wire(list(choices), prefix=source.choice([[], [1], [1, 97]]))
            for one in fields["choices"]:
                one["first"] = source.randrange(len(one["ids"]))
            score(bench, context, fields, source.choice(METHODS))
        elif dice < 0.72:
            live += bench.fork(context, source.randrange(1, 4))
        else:
            for _ in range(source.randrange(1, 6)):
                bench.step()
                audit(bench.engine.room.tree)
    bench.run()
    bench.close(*live)
    assert not bench.errors


@pytest.mark.parametrize("seed", SEEDS)
def test_a_soup_of_programs_that_fits(make: Make, seed: int) -> None:
    source = random.Random(seed)
    bench = make(
        pool_tokens=8192, page_size=source.choice([1, 4, 16]), chunk_tokens=source.choice([7, 64])
    )
    soup(bench, source, 100, 9, short=0.1)
    bench.engine.check()
    assert bench.engine.edges
    assert bench.engine.decodes


@pytest.mark.parametrize("seed", SEEDS)
def test_a_soup_of_programs_in_a_small_pool(make: Make, seed: int) -> None:
    source = random.Random(100 + seed)
    size = source.choice([1, 4])
    bench = make(pool_tokens=48, page_size=size, chunk_tokens=source.choice([7, 64]))
    soup(bench, source, 150, 8, short=0.4)
    bench.engine.check(fits=False)
    assert bench.engine.stats()["recomputed_tokens"]


def test_retracted_samples_go_on_where_they_were(make: Make) -> None:
    source, bench = random.Random(2), make(pool_tokens=96, page_size=4, chunk_tokens=8)
    bench.engine.room.scheduler.lengths.remaining = lambda *_: 0  # nobody is expected to grow
    for i in range(12):
        prompt = bench.open([source.choice(LETTERS) for _ in range(source.randrange(1, 12))])
        generate(bench, prompt, max_tokens=20, n=2, temperature=1.0, seed=i)
    bench.run()
    bench.engine.check(fits=False)
    assert bench.engine.stats()["retractions"]


def test_another_namespace_computes_for_itself(make: Make) -> None:
    """What was evicted under one salt was never computed under another, nor without a cache."""
    bench = make(pool_tokens=32, page_size=4)
    for fields in ({}, {"salt": "salt"}, {"cache": False}):
        for ids in (range(20), range(100, 120)):  # the second evicts the first
            context = bench.open(ids, **fields)
            generate(bench, context, max_tokens=2)
            bench.run()
            bench.close(context)
    bench.engine.check()


def test_a_sampled_token_stays_one_where_a_literal_is_already_known(make: Make) -> None:
    """A literal that no call waits behind costs nothing; a sample that comes to it pays for it."""
    bench = make()
    call = generate(bench, bench.open([1, 2, 3]), max_tokens=1)
    bench.run()
    literal = bench.open([1, 2, 3, *bench.ids(call)])
    generate(bench, bench.open([1, 2, 3]), max_tokens=3)
    bench.step()  # the token is sampled; its row is what the sample needs next
    generate(bench, literal, max_tokens=1)
    bench.run()
    bench.engine.check()
    assert bench.engine.edges == 3
