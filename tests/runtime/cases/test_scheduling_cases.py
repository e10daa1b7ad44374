"""Reported cases of memory and scheduling: B97, B99, B100, B102 and B103."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from oracle import ModelBench, score
from scripted_engine import Bench
from scripted_runtime import writes

import ramet.lang as rm
from ramet.runtime.errors import ContextOverflow, PoolTooSmall
from ramet.runtime.model.runner import ModelRunner
from ramet.runtime.model.spec import ModelSpec
from ramet.runtime.model.tiny import tiny_config, tiny_weights
from ramet.runtime.runtime import Runtime
from ramet.runtime.tokenizer import Tokenizer

Make = Callable[..., Bench]
Start = Callable[..., Runtime]
SITE = "a line that has always been brief"
CHOICES = {
    "choices": [{"ids": [i, 1], "first": 0, "append": [i, 1]} for i in range(2)],
    "rest": [],
    "prefix": [],
}


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("policy", ["program", "fcfs"])
def test_what_can_never_fit_the_pool_fails_at_once(make: Make, page_size: int, policy: str) -> None:
    """B97: a prompt larger than the pool waited for ever, and all others behind it."""
    bench = make(pool_tokens=64, page_size=page_size, max_context=256, policy=policy)
    prompts = [[i, *range(size - 1)] for i, size in enumerate((100, 64, 63, 65, 300, 5))]
    contexts = [bench.open(prompt) for prompt in prompts]
    calls = [bench.generate(context, max_tokens=20) for context in contexts]
    scored = score(bench, bench.open(prompts[0]), CHOICES, "token_length_normalized")
    bench.collect()
    for index, kind, sizes in (
        (0, "PoolTooSmall", ("100", "64")),
        (3, "PoolTooSmall", ("65", "64")),
        (4, "ContextOverflow", ("300", "256")),
    ):
        error = bench.errors[calls[index]]
        assert error["kind"] == kind
        assert all(size in error["message"] for size in sizes)
    assert bench.errors[scored]["kind"] == "PoolTooSmall"
    bench.run()
    for index, written in ((1, 1), (2, 2)):
        (result,) = bench.done[calls[index]]["results"]
        assert (result["finish_reason"], result["pool_exhausted"]) == ("length", True)
        assert result["output_token_ids"] == bench.greedy(prompts[index], written)
    assert bench.ids(calls[5]) == bench.greedy(prompts[5], 20)


def test_the_error_has_both_numbers_and_the_rest_is_served(start: Start) -> None:
    """B97: the same through the Runtime, a batch, a choice, and a path that grew too long."""
    runtime = start(writes({}, ["y"] * 30), pool_tokens=64, max_context=256)
    for _ in range(2):
        with pytest.raises(PoolTooSmall, match=r"100 .*64"):
            runtime.generate("p" * 100, {"max_tokens": 1})
        assert runtime.generate("small", {"max_tokens": 3, "temperature": 0})["text"] == "yyy"  # type: ignore[call-overload]
    with pytest.raises(ContextOverflow, match=r"300 .*256"):
        runtime.generate("p" * 300, {"max_tokens": 1})
    with pytest.raises(PoolTooSmall, match=r"100 .*64"):
        runtime.generate(["p" * 100, "small"], {"max_tokens": 3})

    @rm.function
    def program(s: rm.ProgramState, prompt: str) -> None:
        s += prompt + rm.gen("a", max_tokens=3)
        if prompt == "grows":
            s += "p" * 60 + rm.gen("b", max_tokens=3)

    prompts = ["p" * 100, "small", "grows", "p" * 63]
    items = [{"prompt": prompt} for prompt in prompts]
    states: Any = program.run_batch(items, backend=runtime, temperature=0, return_exceptions=True)
    assert [type(state) for state in states] == [
        PoolTooSmall,
        rm.ProgramState,
        PoolTooSmall,
        rm.ProgramState,
    ]
    assert "68" in str(states[2])
    assert states[1]["a"] == "yyy"
    assert states[3].meta("a")["finish_reason"] == "length"

    @rm.function
    def choose(s: rm.ProgramState) -> None:
        s += "p" * 60 + rm.select("v", ["n" * 9, "m"])

    with pytest.raises(PoolTooSmall, match=r"6[0-9] .*64"):
        choose.run(backend=runtime)


def short_at_site(bench: Bench) -> None:
    """Let the scheduler learn that calls from `SITE` end after one token."""
    context = bench.open([250])
    for _ in range(3):
        bench.generate(context, max_tokens=1, site=SITE)
    bench.run()
    bench.close(context)
    bench.engine.submit([{"op": "flush", "call": bench.number()}])


@pytest.mark.parametrize(
    ("page_size", "offset"), [(size, offset) for size in (1, 2, 4, 16) for offset in range(size)]
)
def test_a_shortage_is_counted_in_pages(make: Make, page_size: int, offset: int) -> None:
    """B99: when all cross a page's border at once, one token each was taken to be enough."""
    size = 32 - offset
    pages = -(-size // page_size) + 1  # One is kept for the growth that the site leads to expect.
    bench = make(pool_tokens=6 * pages * page_size, page_size=page_size, chunk_tokens=256)
    short_at_site(bench)
    before = bench.engine.stats()["retractions"]
    prompts = [[i, *range(size - 1)] for i in range(6)]
    contexts = [bench.open(prompt) for prompt in prompts]
    calls = [bench.generate(context, max_tokens=36, site=SITE) for context in contexts]
    fullest = (0, 0)
    while not bench.engine.idle:
        bench.step()
        stats = bench.engine.stats()
        fullest = max(fullest, (stats["running"], stats["held_tokens"]))
    assert fullest == (6, stats["pool_tokens"])
    assert stats["retractions"] > before
    assert not bench.errors
    for prompt, call in zip(prompts, calls, strict=True):
        assert bench.ids(call) == bench.greedy(prompt, 36)


PREEMPTED: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0},
    {"temperature": 1.1, "top_p": 0.9, "n": 2},
    {"return_logprob": True, "top_logprobs_num": 2, "logprob_start_len": 0},
    {"stop": ["e", "q!"], "min_tokens": 12},
    {"regex": "([a-e]{3}-)+"},
    {"regex": "[ab]{20}c{39}d", "temperature": 1.3},
    {"frequency_penalty": 0.7, "repetition_penalty": 1.3},
    {"cache": False},
]


@pytest.mark.parametrize(
    ("params", "page_size"),
    [
        pytest.param(params, (1, 4, 16)[i % 3], id=" ".join(params) or "greedy")
        for i, params in enumerate(PREEMPTED)
    ],
)
def test_preempted_requests_lose_nothing(make: Make, params: Any, page_size: int) -> None:
    """B100: requests that had to give way came back with text missing."""
    source = random.Random(100)
    prompts = [[i, *(source.randrange(256) for _ in range(19))] for i in range(10)]

    def play(pool_tokens: int) -> tuple[list[Any], dict[tuple[int, int], list[Any]], Any]:
        bench = make(pool_tokens=pool_tokens, page_size=page_size, chunk_tokens=64)
        short_at_site(bench)
        contexts = [bench.open(prompt) for prompt in prompts]
        calls = [
            bench.generate(context, stream=True, seed=i, site=SITE, **{"max_tokens": 60, **params})
            for i, context in enumerate(contexts)
        ]
        bench.run()
        assert not bench.errors
        chunks = defaultdict(list)
        for chunk in bench.chunks:
            kept = {key: chunk[key] for key in chunk if key not in ("call", "sample", "ev")}
            chunks[calls.index(chunk["call"]), chunk["sample"]].append(kept)
        results = [bench.done[call]["results"] for call in calls]
        return results, dict(chunks), bench.engine.stats()

    results, chunks, stats = play(3 * 80)
    expected, whole, roomy = play(10 * 4 * 96)
    assert results == expected
    assert chunks == whole
    assert (stats["retractions"] > 0, roomy["retractions"]) == (True, 0)
    for (call, sample), pieces in chunks.items():
        result = results[call][sample]
        assert "".join(piece["text"] for piece in pieces) == result["text"]
        counts = [piece["completion_tokens"] for piece in pieces]
        assert counts == sorted(set(counts))
        if params.get("return_logprob"):
            assert len(result["output_token_logprobs"]) == result["completion_tokens"] == 60
            assert len(result["input_token_logprobs"]) == 20


def passed(bench: Bench, cold_size: int) -> int:
    """How many hot requests were done before a cold one that came when two of them ran, while two
    more came with every step."""
    hot = list(range(40))
    for i in range(2):
        bench.generate(bench.open([*hot, 200, i]), max_tokens=1)
    bench.step()
    cold = bench.generate(bench.open([99] * cold_size), max_tokens=1)
    calls: list[int] = []
    for i in range(500):
        calls += [bench.generate(bench.open([*hot, i % 250, j]), max_tokens=1) for j in range(2)]
        bench.step()
        if cold in bench.done:
            return len([call for call in calls if call in bench.done])
    raise AssertionError("the cold one is not served")


@pytest.mark.parametrize("cold_size", [1, 40, 200])
def test_hot_traffic_passes_a_cold_request_only_so_often(make: Make, cold_size: int) -> None:
    """B102: who hits no cached prefix waited as long as those came that do."""
    counts = {
        bound: passed(make(max_running=2, max_overtakes=bound, pool_tokens=2048), cold_size)
        for bound in (0, 60, 300)
    }
    # Each of the hot ones has a token or two of its own. Two came in one step with the cold one
    # and pass nobody, and two may end in the step in which it does.
    assert counts[0] <= 4
    assert 60 // 2 - 2 <= counts[60] <= 60 + 4
    assert 300 // 2 - 2 <= counts[300] <= 300 + 4


@pytest.mark.parametrize("policy", ["program", "fcfs"])
def test_equal_requests_are_served_in_the_order_of_their_arrival(make: Make, policy: str) -> None:
    """B102: also where nobody hits anything, nobody waits for those that come later."""
    bench = make(max_running=2, policy=policy)
    calls = [bench.generate(bench.open([i, i]), max_tokens=2) for i in range(40)]
    bench.run()
    assert [*bench.done] == calls


@pytest.mark.parametrize("kind", ["generate", "select"])
def test_a_long_prompt_does_not_stall_those_that_decode(kind: str) -> None:
    """B103: nobody got a token until a very long prompt was through."""
    spec = ModelSpec.from_config(tiny_config())
    runner = ModelRunner(
        spec,
        tiny_weights(spec, torch.float32),
        num_slots=8192 + 16,
        dtype=torch.float32,
        device="cpu",
    )
    bench = ModelBench(runner, Tokenizer.tiny(), pool_tokens=8192, chunk_tokens=128)
    streams = [
        bench.generate(bench.open([i]), stream=True, max_tokens=200, site="stream")
        for i in range(4)
    ]
    for _ in range(5):
        bench.step()
    long = bench.open([i % 251 for i in range(4000)])
    if kind == "generate":
        call = bench.generate(long, max_tokens=1)
    else:
        call = score(bench, long, CHOICES, "token_length_normalized")
    steps = 0
    while call not in bench.done:
        written = bench.engine.stats()["generated_tokens"]
        computed = bench.engine.stats()["edge_tokens"]
        bench.step()
        steps += 1
        stats = bench.engine.stats()
        assert stats["generated_tokens"] - written >= 4, "each stream goes on in each step"
        assert stats["edge_tokens"] - computed >= 4000 % 124 or call in bench.done
    assert steps <= 4000 // 124 + 4
    assert not {*streams} & {*bench.done}
    bench.run()
    assert not bench.errors
