"""Reported cases of log-probabilities: B119 and B120."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from scripted_engine import Bench, hashed

import ramet.lang as rm
from ramet.runtime.errors import InvalidArgument
from ramet.runtime.request import SamplingParams
from ramet.runtime.runtime import Runtime

Make = Callable[..., Bench]
PROMPT = [random.Random(i).randrange(256) for i in range(50)]
WHOLE: dict[str, Any] = {"return_logprob": True, "logprob_start_len": 0}


def own(ids: list[int]) -> list[float | None]:
    """The model's log-probability of each id after those before it."""
    script = hashed(259)
    rows = [torch.log_softmax(script(tuple(ids[:i])), 0) for i in range(1, len(ids))]
    return [None, *(float(row[token]) for row, token in zip(rows, ids[1:], strict=True))]


def check(result: dict[str, Any], start: int | None, top: int = 0) -> None:
    """Compare all that a call after `PROMPT` reported with the model itself."""
    written = result["output_token_ids"]
    expected = own([*PROMPT, *written])
    lists = [("output", 50, written)]
    if start is not None:
        lists.append(("input", start, PROMPT[start:]))
    for name, first, ids in lists:
        reported = result[f"{name}_token_logprobs"]
        assert [token for _, token, _ in reported] == ids
        for position, (value, *_) in enumerate(reported, start=first):
            assert value == pytest.approx(expected[position], abs=1e-4), position
        tops = result.get(f"{name}_top_logprobs")
        assert (tops is None) == (top == 0)
        for (value, *_), some in zip(reported, tops or [], strict=bool(top)):
            if value is None:
                assert some is None
                continue
            values = [entry[0] for entry in some]
            assert len({entry[1] for entry in some}) == len(some) == top
            assert values == sorted(values, reverse=True)
            assert values[0] >= value
    assert ("input_token_logprobs" in result) == (start is not None)


@pytest.mark.parametrize("chunk_tokens", [8, 1, 7, 49, 50, 51, 512])
@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_do_not_depend_on_the_chunks(make: Make, chunk_tokens: int, stream: bool) -> None:
    """B119: with a prompt that came in chunks, the lists were partial."""
    bench = make(chunk_tokens=chunk_tokens)
    asked = {}
    for n, top in ((1, 0), (2, 3)):
        params = {**WHOLE, "n": n, "top_logprobs_num": top, "max_tokens": 6, "temperature": 1.0}
        asked[bench.generate(bench.open(PROMPT), stream=stream, **params)] = (n, top)
    bench.run()
    for call, (n, top) in asked.items():
        results = bench.done[call]["results"]
        assert len(results) == n
        for sample, result in enumerate(results):
            assert len(result["input_token_logprobs"]) == 50
            assert result["input_token_logprobs"][0][0] is None
            assert len(result["output_token_logprobs"]) == result["completion_tokens"] == 6
            check(result, 0, top)
            if stream:
                chunks = [c for c in bench.chunks if (c["call"], c["sample"]) == (call, sample)]
                sent = [entry for chunk in chunks for entry in chunk["logprobs"]]
                assert sent == result["output_token_logprobs"][: len(sent)]
                assert [entry[1] for entry in sent] == [i for c in chunks for i in c["ids"]]


@pytest.mark.parametrize("chunk_tokens", [8, 50])
@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_through_the_runtime_in_chunks(
    tiny: Runtime, chunk_tokens: int, stream: bool
) -> None:
    """B119: the same for a real model, whose whole prompt at once is what to compare with."""
    params = SamplingParams.build({**WHOLE, "max_tokens": 6, "temperature": 0, "cache": False})
    whole = tiny.generate(PROMPT, params)
    assert isinstance(whole, dict)
    settings = {"dtype": "float32", "isolation": "thread", "pool_tokens": 1024}
    with Runtime("tiny", chunk_tokens=chunk_tokens, **settings) as runtime:  # type: ignore[arg-type]
        handle = runtime.open()
        handle.append_ids(PROMPT)
        call = handle.generate(params, stream=stream)
        chunks = list(call.chunks())
        meta = call.result().meta[0]
        handle.close()
    assert meta["output_token_ids"] == whole["meta"]["output_token_ids"]
    assert meta["input_token_logprobs"][0][0] is None
    for name, count in (("input", 50), ("output", 6)):
        found, expected = (m[f"{name}_token_logprobs"] for m in (meta, whole["meta"]))
        assert len(found) == count
        for (mine, *token), (theirs, *named) in zip(found, expected, strict=True):
            assert token == named
            assert mine == pytest.approx(theirs, abs=1e-4)
    assert [entry for chunk in chunks for entry in chunk.logprobs or []] == (
        meta["output_token_logprobs"][: sum(len(chunk.ids) for chunk in chunks)]
    )


@pytest.mark.parametrize("cache", [None, False])
@pytest.mark.parametrize("page_size", [1, 16])
def test_a_cached_prompt_has_the_same_logprobs(make: Make, page_size: int, cache: Any) -> None:
    """B120: the second equal request had lost those of the cached positions, or shifted them."""
    bench = make(page_size=page_size, pool_tokens=256)
    steps: list[tuple[int | None, int]] = [(0, 0), (0, 0), (None, 0), (0, 1), (0, 5)]
    steps += [(25, 0), (25, 2), (1, 0), (49, 0), (50, 1), (0, 1000)]
    for number, (start, top) in enumerate(steps):
        params: dict[str, Any] = {"return_logprob": True, "cache": cache, "max_tokens": 3}
        params |= {"top_logprobs_num": top} if top else {}
        params |= {} if start is None else {"logprob_start_len": start}
        call = bench.generate(bench.open(PROMPT), **params)
        plain = bench.generate(bench.open(PROMPT), max_tokens=2)
        bench.run()
        check(bench.done[call]["results"][0], start, min(top, 259))
        hits = [bench.done[c]["meta"]["cached_tokens"] for c in (call, plain)]
        assert hits[0] == (50 if number and cache is None else 0)
        assert hits[1] == (50 if number or cache is None else 0)
        assert "input_token_logprobs" not in bench.done[plain]["results"][0]


def test_logprobs_after_eviction_and_of_a_partly_cached_prompt(make: Make) -> None:
    """B120: also where only a part is cached, was evicted in between, or somebody decoded it."""
    bench = make(page_size=4, pool_tokens=96, chunk_tokens=16)
    for prefix in ([], PROMPT[:20], PROMPT[:37], [*PROMPT, 1, 2]):
        if prefix:
            bench.generate(bench.open(prefix), max_tokens=2)
            bench.run()
        call = bench.generate(bench.open(PROMPT), max_tokens=4, **WHOLE)
        bench.run()
        check(bench.done[call]["results"][0], 0)
        bench.close(*bench.engine._contexts.live)
        bench.generate(bench.open([9] * 90), max_tokens=1)
        bench.run()
    assert bench.engine.stats()["evicted_tokens"] > 0


def test_a_later_calls_prompt_has_what_was_generated_before_it(make: Make) -> None:
    """B120: the decoded tokens of an earlier call are positions of the prompt like any other."""
    bench = make()
    context = bench.open(PROMPT[:10])
    first = bench.generate(context, max_tokens=8, return_logprob=True, temperature=1.0)
    bench.append(context, [5, 6])
    second = bench.generate(context, max_tokens=2, **WHOLE)
    bench.run()
    result = bench.done[second]["results"][0]
    ids = [*PROMPT[:10], *bench.ids(first), 5, 6]
    assert [entry[1] for entry in result["input_token_logprobs"]] == ids
    assert [entry[0] for entry in result["input_token_logprobs"]] == pytest.approx(own(ids))
    decoded = bench.done[first]["results"][0]["output_token_logprobs"]
    assert result["input_token_logprobs"][10:18] == decoded


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"return_logprob": True, "logprob_start_len": 3}, "logprob_start_len=3.* 2 tokens"),
        ({"return_logprob": True, "logprob_start_len": -1}, "logprob_start_len=-1"),
        ({"return_logprob": True, "logprob_start_len": "0"}, "logprob_start_len='0'"),
        ({"return_logprob": True, "top_logprobs_num": -1}, "top_logprobs_num=-1"),
        ({"return_logprob": True, "top_logprobs_num": 10**6}, "top_logprobs_num=1000000"),
        ({"return_logprob": True, "top_logprobs_num": True}, "top_logprobs_num=True"),
        ({"return_logprob": 1}, "return_logprob=1"),
        ({"logprob_start_len": 0}, "return_logprob"),
        ({"top_logprobs_num": 2}, "return_logprob"),
    ],
)
def test_unusable_requests_for_logprobs_are_refused(tiny: Runtime, params: Any, said: str) -> None:
    """B120: a start beyond the prompt, and numbers that are none."""

    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += "ab" + rm.gen("x", max_tokens=1, **params)

    for use in (
        lambda: tiny.generate("ab", {**params, "max_tokens": 1}),
        lambda: program.run(backend=tiny),
    ):
        with pytest.raises(InvalidArgument, match=said):
            use()
    assert tiny.generate("ab", {"max_tokens": 1})
