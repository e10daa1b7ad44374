"""Steps that are launched before the last one's tokens are known: the same texts, no row lost."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flying_runner import FlyingRunner
from scripted_engine import Bench, ScriptedRunner

from ramet.runtime.cache.audit import audit, audit_idle

Make = Callable[..., Bench]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Bench] = []

    def build(runner: type[ScriptedRunner] = FlyingRunner, **options: Any) -> Bench:
        made.append(Bench(None, runner, **options))
        return made[-1]

    yield build
    for bench in made:
        bench.run()
        bench.close(*bench.engine._contexts.live)
        audit_idle(bench.engine.room.tree)
        stats = bench.engine.stats()
        assert stats["computed_tokens"] == len(bench.runner.rows)
        assert stats["held_tokens"] == stats["running"] == stats["waiting"] == 0


def ahead(bench: Bench) -> int:
    assert isinstance(bench.runner, FlyingRunner)
    return bench.runner.num_ahead


def test_decodes_go_ahead_from_the_first_token_on(make):
    bench = make()
    call = bench.generate(bench.open([1, 2, 3]), max_tokens=10)
    bench.run()
    assert bench.ids(call) == bench.greedy([1, 2, 3], 10)
    # The prompt's own edge is its context's, too; the last token has no step after it.
    assert ahead(bench) == 8
    assert len(bench.runner.rows) == 3 + 9
    assert bench.engine.stats()["steps"] == 10


def test_nobody_sees_a_token_before_the_next_step_is_under_way(make):
    bench = make()
    bench.generate(bench.open([1, 2, 3]), stream=True, max_tokens=6)
    for _ in range(5):
        bench.step()
    tokens = [token for chunk in bench.chunks for token in chunk["ids"]]
    assert len(bench.runner.rows) == 3 + len(tokens)


def test_what_a_stop_ends_has_a_row_too_many_which_is_cache(make):
    bench = make()
    path = [1, 2, 3]
    written = bench.greedy(path, 6)
    context = bench.open(path)
    call = bench.generate(context, max_tokens=20, stop_token_ids=[written[4]])
    bench.run()
    assert bench.ids(call) == written[:5]
    assert len(bench.runner.rows) == 3 + 5
    meta = bench.done[call]["meta"]
    assert meta["computed_tokens"] == 3 + 5
    assert bench.engine.stats()["recomputed_tokens"] == 0
    again = bench.generate(bench.open([*path, *written[:5]]), max_tokens=1)
    bench.run()
    assert bench.ids(again) == written[5:6]
    assert len(bench.runner.rows) == 3 + 5


PARAMS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0},
    {"temperature": 0.7, "top_k": 5, "top_p": 0.9},
    {"temperature": 1.2, "n": 3},
    {"temperature": 1.0, "min_p": 0.2, "stop": ["e", "zz"]},
    {"regex": "[ab]{3,9}"},
    {"min_new_tokens": 4, "ignore_eos": False},
    {"frequency_penalty": 0.5},
    {"return_logprob": True, "top_logprobs_num": 2},
    {"logit_bias": {7: 5.0}},
]


@pytest.mark.parametrize("pool_tokens", [160, 1024])
@pytest.mark.parametrize("seed", range(4))
def test_texts_are_what_they_are_without(make, seed, pool_tokens):
    def run(bench: Bench) -> tuple[list[Any], dict[str, Any]]:
        source = random.Random(seed)
        calls = []
        for number in range(40):
            ids = [source.randrange(3) for _ in range(source.choice([1, 5, 30]))]
            contexts = [bench.open(ids)]
            if source.random() < 0.3:
                contexts += bench.fork(contexts[0], 2)
            params = source.choice(PARAMS[: 5 if source.random() < 0.9 else None])
            count = source.choice([4, 9, 20])
            calls += [bench.generate(c, seed=number, max_tokens=count, **params) for c in contexts]
            for _ in range(source.choice([0, 1, 6])):
                bench.step()
                audit(bench.engine.room.tree)
            bench.close(*contexts)
        bench.run()
        assert not bench.errors
        keys = ("text", "output_token_ids", "finish_reason", "output_token_logprobs")
        results = [
            [{key: result.get(key) for key in keys} for result in bench.done[call]["results"]]
            for call in calls
        ]
        return results, bench.engine.stats()

    options = {"pool_tokens": pool_tokens, "chunk_tokens": 24, "max_running": 12}
    flying = make(**options)
    texts, stats = run(flying)
    plain, usual = run(make(ScriptedRunner, **options))
    assert texts == plain
    assert ahead(flying) > 5
    assert stats["generated_tokens"] == usual["generated_tokens"]
    if pool_tokens == 160:
        assert stats["evicted_tokens"]


def test_prompts_go_on_beside_decodes(make):
    bench = make(chunk_tokens=8)
    short = bench.generate(bench.open([1]), max_tokens=30)
    bench.step()
    long = bench.generate(bench.open(list(range(3, 83))), max_tokens=4)
    before = ahead(bench)
    for _ in range(10):
        bench.step()
    assert ahead(bench) - before >= 9
    bench.run()
    assert bench.ids(short) == bench.greedy([1], 30)
    assert bench.ids(long) == bench.greedy(range(3, 83), 4)


def test_a_launch_that_fails_fails_all_and_the_next_are_served(make):
    bench = make()
    call = bench.generate(bench.open([1, 2, 3]), max_tokens=9)
    for _ in range(3):
        bench.step()
    launch = bench.runner.launch

    def broken(*_):
        raise FloatingPointError("the device broke")

    bench.runner.launch = broken
    bench.step()
    assert bench.errors[call]["kind"] == "BackendError"
    assert "the device broke" in bench.errors[call]["message"]
    assert bench.engine.idle
    bench.runner.launch = launch
    audit(bench.engine.room.tree)
    again = bench.generate(bench.open([1, 2, 3]), max_tokens=9)
    bench.run()
    assert bench.ids(again) == bench.greedy([1, 2, 3], 9)


@pytest.mark.parametrize("by", ["step", "submit"])
def test_tokens_that_never_come_fail_all_and_the_next_are_served(make, by):
    bench = make()
    calls = [bench.generate(bench.open([1, 2, i]), max_tokens=9) for i in range(3)]
    for _ in range(3):
        bench.step()

    def lost():
        raise RuntimeError("the device is lost")

    bench.engine._flight.drawn.wait = lost
    if by == "submit":
        bench.settle()
    else:
        bench.step()
    for call in calls:
        assert "the device is lost" in bench.errors[call]["message"]
    assert bench.engine.idle
    audit(bench.engine.room.tree)
    del bench.runner.rows[bench.engine.stats()["computed_tokens"] :]  # those that were given back
    again = bench.generate(bench.open([1, 2, 3]), max_tokens=9)
    bench.run()
    assert bench.ids(again) == bench.greedy([1, 2, 3], 9)


def test_a_nan_ends_its_own_call_only(make):
    bench = make()
    bad = bench.generate(bench.open([9, 9]), max_tokens=9)
    good = bench.generate(bench.open([1, 2, 3]), max_tokens=9)
    script = bench.runner.script
    bench.runner.script = lambda path: (
        script(path) * (float("nan") if path[:2] == (9, 9) and len(path) > 4 else 1)
    )
    bench.run()
    assert "not finite" in bench.errors[bad]["message"]
    assert len(bench.ids(good)) == 9


def test_an_operation_or_a_deadline_finds_nothing_in_the_air(make):
    now = [0.0]
    bench = make(clock=lambda: now[0])
    context = bench.open([1, 2, 3])
    call = bench.generate(context, max_tokens=30, deadline=5.0)
    for _ in range(4):
        bench.step()
    assert bench.engine._flight is not None
    bench.abort(call=call + 999)
    assert bench.engine._flight is None
    for _ in range(4):
        bench.step()
    now[0] = 6.0
    bench.step()
    assert bench.errors[call]["kind"] == "Cancelled"
    bench.run()
    assert bench.engine.idle


def test_a_constraint_keeps_its_step_from_going_ahead(make):
    bench = make()
    bound = [bench.generate(bench.open([1, i]), max_tokens=8, regex="[ab]{6}") for i in range(2)]
    free = bench.generate(bench.open([1, 2, 3]), max_tokens=8)
    bench.run()
    assert ahead(bench) <= 2  # after the constrained ones have ended
    assert bench.ids(free) == bench.greedy([1, 2, 3], 8)
    for call in bound:
        assert set(bench.done[call]["results"][0]["text"]) <= set("ab")
