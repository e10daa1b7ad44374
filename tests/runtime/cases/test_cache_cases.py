"""Reported cases of the prefix cache: B88, B91, B92, B94, B95 and B96."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from scripted_engine import Bench
from scripted_runtime import writes

import ramet.lang as rm
from ramet.runtime.cache.audit import audit_idle
from ramet.runtime.errors import InvalidArgument
from ramet.runtime.request import SamplingParams
from ramet.runtime.runtime import Runtime

Make = Callable[..., Bench]
Start = Callable[..., Runtime]


def asked(runtime: Runtime, prompt: list[int], **params: Any) -> dict[str, Any]:
    """The meta of one call that reports all log-probabilities."""
    fields = {"max_tokens": 8, "temperature": 0, "return_logprob": True, "logprob_start_len": 0}
    output = runtime.generate(prompt, {**fields, **params})
    assert isinstance(output, dict)
    meta: dict[str, Any] = output["meta"]
    return meta


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one["output_token_ids"] == other["output_token_ids"]
    assert one["finish_reason"] == other["finish_reason"]
    for name in ("output_token_logprobs", "input_token_logprobs"):
        for (mine, *token), (theirs, *expected) in zip(one[name], other[name], strict=True):
            assert token == expected
            assert mine == pytest.approx(theirs, abs=1e-4)


@pytest.mark.parametrize(
    ("count", "params"), [(20, {}), (5, {"temperature": 0.9, "seed": 4})], ids=["greedy", "sampled"]
)
def test_what_is_cached_does_not_change_the_answer(tiny: Runtime, count: int, params: Any) -> None:
    """B88: the first run and later ones, whose prompt was cached, wrote different texts."""
    source = random.Random(88)
    for _ in range(count):
        prompt = [source.randrange(256) for _ in range(source.randrange(10, 301))]
        longer = prompt + [source.randrange(256) for _ in range(source.randrange(1, 40))]
        runs = []
        for flushed in (True, True, False):
            if flushed:
                tiny.flush_cache()
            runs.append(asked(tiny, prompt, **params))
        warm = asked(tiny, longer, **params)
        runs.append(asked(tiny, prompt, **params))
        assert [run["cached_tokens"] for run in runs] == [0, 0, len(prompt), len(prompt)]
        assert warm["cached_tokens"] >= len(prompt)
        for run in runs[1:]:
            same(runs[0], run)
        tiny.flush_cache()
        same(asked(tiny, longer, **params), warm)


@pytest.mark.parametrize(("page_size", "rounds"), [(4, 10), (1, 2), (16, 2)])
def test_pages_do_not_leak_under_aborts_and_preemption(
    make: Make, page_size: int, rounds: int
) -> None:
    """B91: what aborts at every moment left behind filled the pool within hours."""
    source = random.Random(page_size)
    shared = [[source.randrange(256) for _ in range(48)] for _ in range(4)]
    bench = make(pool_tokens=256, page_size=page_size, chunk_tokens=16, max_running=8)
    for _ in range(rounds):
        calls = []
        for _ in range(50):
            prompt = [*source.choice(shared)[: source.randrange(49)], source.randrange(9)]
            params: dict[str, Any] = {"max_tokens": source.choice([1, 3, 12])}
            params["n"] = source.choice([1, 1, 3])
            params["cache"] = source.choice([None, None, False])
            if source.random() < 0.2:
                params["regex"] = source.choice(["[ab]{2,9}", "x(yz)*", "[0-9]+"])
            contexts = [bench.open(prompt)]
            contexts += bench.fork(contexts[0], 2) if source.random() < 0.2 else []
            calls += [bench.generate(c, stream=source.random() < 0.5, **params) for c in contexts]
            if source.random() < 0.4:
                bench.abort(call=source.choice(calls))
            for _ in range(source.choice([0, 0, 1, 5])):
                bench.step()
            if source.random() < 0.1:
                bench.abort(program=source.choice(contexts))
            scheduler = bench.engine.room.scheduler
            if source.random() < 0.2 and len(scheduler.running) > 1:
                scheduler._retract(scheduler.running[-1])
        bench.run()
        assert {*calls} <= {*bench.done, *bench.errors}
        bench.close(*bench.engine._contexts.live)
        audit_idle(bench.engine.room.tree)
        stats = bench.engine.stats()
        assert stats["held_tokens"] == stats["running"] == stats["contexts"] == 0
        assert stats["free_tokens"] + stats["cached_pool_tokens"] == 256
    assert {error["kind"] for error in bench.errors.values()} == {"Cancelled"}
    assert stats["retractions"] > 0
    bench.engine.submit([{"op": "flush", "call": bench.number()}])
    assert bench.engine.stats()["free_tokens"] == 256


@pytest.mark.parametrize("phase", ["queued", "grammar", "prefill", "decoding", "last step"])
@pytest.mark.parametrize("cache", [None, False])
def test_an_abort_in_any_phase_frees_everything(make: Make, phase: str, cache: Any) -> None:
    """B91: also phase by phase, with a neighbour that goes on."""
    bench = make(pool_tokens=128, chunk_tokens=8, max_running=1 if phase == "queued" else 8)
    neighbour = bench.generate(bench.open([1, 2, 3]), max_tokens=20)
    for _ in range(3):
        bench.step()
    params: dict[str, Any] = {"max_tokens": 6, "n": 2, "cache": cache}
    if phase == "grammar":
        params["regex"] = "(ab|cd){4}"
    context = bench.open([1, 2, 3, *range(20)])
    call = bench.generate(context, **params)
    samples: Any = bench.engine._calls[call].sequences
    written = {"decoding": 3, "last step": 5}.get(phase, 0)
    for _ in range(phase == "prefill"):
        bench.step()
    while len(samples[0].output_ids) < written:
        bench.step()
    bench.abort(call=call)
    bench.close(context)
    bench.run()
    assert bench.errors[call]["kind"] == "Cancelled"
    assert bench.ids(neighbour) == bench.greedy([1, 2, 3], 20)


def test_a_number_is_free_again_after_an_abort_in_the_queue(make: Make) -> None:
    """B92: a call that was aborted while it waited could not be submitted again."""
    bench = make(max_running=1)
    running = bench.generate(bench.open([1]), max_tokens=6)
    bench.step()
    context = bench.open([2])
    call = bench.generate(context, max_tokens=3)
    op = {"op": "generate", "call": call, "params": {"max_new_tokens": 3}, "keys": [1]}
    for again in (False, True):
        if again:
            bench.engine.submit([{**op, "ctx": bench.open([2])}])
        assert bench.engine.stats()["waiting"] == 1
        bench.abort(call=call)
        bench.collect()
        assert bench.errors.pop(call)["kind"] == "Cancelled"
        assert bench.engine.stats()["waiting"] == 0
    bench.close(context)
    bench.engine.submit([{"op": "open", "ctx": context, "program": context}])
    bench.append(context, [2])
    bench.engine.submit([{**op, "ctx": context, "params": {"ignore_eos": True, "temperature": 0}}])
    bench.run()
    assert not bench.errors
    assert bench.ids(running) == bench.greedy([1], 6)
    assert bench.ids(call)[:3] == bench.greedy([2], 3)


def test_an_abort_of_nobody_ends_nobody(make: Make, tiny: Runtime) -> None:
    """B92: an unknown number is no error, and no number is never taken for all."""
    bench = make(max_running=1)
    calls = [bench.generate(bench.open([i]), max_tokens=3) for i in range(3)]
    bench.step()
    for number in (0, -1, 10**9, None, ""):
        bench.abort(call=number)  # type: ignore[arg-type]
        bench.abort(program=number)  # type: ignore[arg-type]
    bench.run()
    assert not bench.errors
    assert [bench.ids(call) for call in calls] == [bench.greedy([i], 3) for i in range(3)]

    tiny.abort(10**9)
    nobody: list[Any] = ["", None, [], "1", 1.0, True]
    for value in nobody:
        with pytest.raises(InvalidArgument, match="program="):
            tiny.abort(value)
    assert tiny.generate("a", {"max_tokens": 1})


def fill(bench: Bench, *starts: int) -> list[list[int]]:
    """Cached prompts of 20 tokens, one after the other, oldest first."""
    prompts = [[start, *range(100, 119)] for start in starts]
    for prompt in prompts:
        once(bench, prompt)
    return prompts


def once(bench: Bench, prompt: list[int]) -> int:
    """Serve one call of one token; the number of its prompt's tokens that were cached."""
    context = bench.open(prompt)
    call = bench.generate(context, max_tokens=1)
    bench.run()
    bench.close(context)
    cached: int = bench.done[call]["meta"]["cached_tokens"]
    return cached


@pytest.mark.parametrize("page_size", [1, 2, 4])
def test_no_more_is_evicted_than_is_missing(make: Make, page_size: int) -> None:
    """B94: a request evicted as much as it needed, though part of that was free."""
    bench = make(pool_tokens=64, page_size=page_size)
    a, b, c = fill(bench, 1, 2, 3)
    assert bench.engine.stats()["free_tokens"] == 4
    assert once(bench, list(range(200, 208))) == 0
    assert bench.engine.stats()["evicted_tokens"] == 4
    assert (once(bench, b), once(bench, c)) == (20, 20)
    assert once(bench, a) == 16


@pytest.mark.parametrize("page_size", [1, 2, 4])
def test_a_prefix_in_use_is_never_evicted(make: Make, page_size: int) -> None:
    """B94: the oldest prefix stays while somebody runs on it; the next oldest gives way."""
    bench = make(pool_tokens=64, page_size=page_size)
    a, b, c = fill(bench, 1, 2, 3)
    context = bench.open(a)
    running = bench.generate(context, max_tokens=5)
    bench.step()
    other = bench.open(list(range(200, 208)))
    call = bench.generate(other, max_tokens=1)
    while call not in bench.done:
        bench.step()
    assert running not in bench.done
    bench.run()
    bench.close(context, other)
    assert bench.done[running]["meta"]["cached_tokens"] == 20
    assert bench.ids(running) == bench.greedy(a, 5)
    assert 4 <= bench.engine.stats()["evicted_tokens"] <= 8 + page_size
    assert once(bench, a) == once(bench, c) == 20
    assert once(bench, b) < 20


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize(
    ("answer", "params", "reason"),
    [
        (30, {}, "eos"),
        (60, {}, "length"),
        (30, {"stop": "END"}, "stop"),
        (30, {"n": 2}, "eos"),
    ],
)
def test_the_next_turn_reuses_the_answer(
    start: Start, page_size: int, answer: int, params: Any, reason: str
) -> None:
    """B95: only the last prompt was reused, and the long answer was computed again."""
    text = ["x"] * answer + list("END" if "stop" in params else "")
    runtime = start(
        writes({"more<|im_end|>\n<|im_start|>assistant\n": list("yes")}, text), page_size=page_size
    )
    seconds: list[rm.ProgramState] = []

    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += rm.user("The first question, of some length.")
        s += rm.assistant(rm.gen("a", max_tokens=40, **params))
        child = s.fork(1)[0]
        for state in (s, child):
            state += rm.user("more")
            state += rm.assistant(rm.gen("b", max_tokens=4))
            seconds.append(state)

    state = program.run(backend=runtime, temperature=0)
    first = state.meta("a")
    first = first[0] if isinstance(first, list) else first
    assert first["finish_reason"] == reason
    kept = len(state["a"][0] if isinstance(state["a"], list) else state["a"])
    least = (first["prompt_tokens"] + kept - 1) // page_size * page_size
    for second in seconds:
        assert second.meta("b")["cached_tokens"] >= least
        assert second["b"] == "yes"


@pytest.mark.parametrize("way", ["call", "program", "gen"])
def test_one_request_can_opt_out_of_the_cache(start: Start, way: str) -> None:
    """B96: switching the cache off for one request had no effect."""
    runtime = start(writes({}, list("answer")))
    prompt = "The same prompt three times."

    def ask(cache: bool) -> int:
        if way == "call":
            output = runtime.generate(prompt, {"max_tokens": 4, "temperature": 0, "cache": cache})
            meta = output["meta"]  # type: ignore[call-overload]
        elif way == "program":
            handle = runtime.open(cache=cache)
            handle.append([(prompt, "text")])
            meta = handle.generate(SamplingParams(4, temperature=0)).result().meta[0]
            handle.close()
        else:

            @rm.function
            def program(s: rm.ProgramState) -> None:
                s += prompt + rm.gen("a", max_tokens=4, cache=cache)

            meta = program.run(backend=runtime, temperature=0).meta("a")
        cached: int = meta["cached_tokens"]
        return cached

    hits, sizes = [], []
    for cache in (True, False, True):
        hits.append(ask(cache))
        sizes.append(runtime.stats()["cached_pool_tokens"])
    assert hits == [0, 0, len(prompt)]
    assert sizes == [sizes[0]] * 3
    assert runtime.stats()["evicted_tokens"] == 0
