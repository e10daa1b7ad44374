"""Requests beside others that are aborted at any moment, in a small pool, write what they write
alone; in float64, exactly."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
from oracle import ModelBench

from ramet.runtime.cache.audit import audit

POOL = 512


@dataclasses.dataclass
class Program:
    """Turns of one context: what is appended, and how it then generates."""

    turns: list[tuple[list[int], dict[str, Any]]]
    context: int = 0
    calls: list[int] = dataclasses.field(default_factory=list)

    def start(self, bench: ModelBench) -> None:
        self.context = bench.open()
        self.calls = []
        for ids, params in self.turns:
            bench.append(self.context, ids)
            self.calls.append(bench.generate(self.context, **params))

    def results(self, bench: ModelBench) -> list[list[dict[str, Any]] | None]:
        return [bench.done[call]["results"] if call in bench.done else None for call in self.calls]


def make_program(source: random.Random, shared: list[list[int]]) -> Program:
    turns = []
    for turn in range(source.choice([1, 1, 1, 2, 3])):
        ids = [source.randrange(256) for _ in range(source.randrange(1, 30))]
        if not turn:
            ids = source.choice(shared)[: source.randrange(0, 80)] + ids
        params = {
            "max_tokens": source.choice([1, 4, 7, 40]),
            "n": source.choice([1, 1, 1, 2]),
            "temperature": source.choice([0.0, 0.8, 1.2]),
            "top_p": source.choice([1.0, 0.9]),
            "seed": source.randrange(1000),
            "stop": source.choice([(), "e", ("a", "th")]),
            "ignore_eos": False,
        }
        turns.append((ids, params))
    return Program(turns)


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(i, marks=pytest.mark.full) for i in (2, 3, 4, 5, 6))]
)
def test_two_hundred_requests_with_aborts(bench: Any, tiny: Any, seed: int) -> None:
    source = random.Random(seed)
    shared = [[source.randrange(256) for _ in range(80)] for _ in range(4)]
    one = bench(tiny, pool_tokens=POOL, page_size=source.choice([1, 4, 16]), chunk_tokens=48)
    programs = [make_program(source, shared) for _ in range(200)]
    live: list[Program] = []
    for program in programs:
        program.start(one)
        live.append(program)
        for _ in range(source.choice([0] * 9 + [15])):
            one.step()
        dice = source.random()
        if dice < 0.15:
            one.abort(call=source.choice(source.choice(live).calls))
        elif dice < 0.3:
            one.abort(program=source.choice(live).context)
        elif dice < 0.4:
            audit(one.engine.room.tree)
    one.run()
    one.close(*(program.context for program in programs))
    assert not [node for node in one.engine.room.tree.nodes() if node.refs]
    assert {event["kind"] for event in one.errors.values()} == {"Cancelled"}
    assert one.engine.stats()["evicted_tokens"] > 0
    found = [program.results(one) for program in programs]

    alone = bench(tiny, pool_tokens=POOL)
    compared = 0
    for program, results in zip(programs, found, strict=True):
        if results[0] is None:
            continue
        program.start(alone)
        alone.run()
        alone.close(program.context)
        alone.engine.submit([{"op": "flush", "call": alone.number()}])
        for got, want in zip(results, program.results(alone), strict=True):
            if got is not None:
                assert got == want
                compared += 1
    assert compared > 150
