"""Reported log-probabilities equal transformers', whatever the batch and the cache state."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from oracle import ModelBench, hf_logprobs

TOP = 5


@pytest.fixture(params=["tiny", pytest.param("builtin", marks=pytest.mark.model)])
def pair(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture
def prompt(pair: Any, request: pytest.FixtureRequest) -> list[int]:
    if pair.name == "tiny":
        return [random.Random(4).randrange(256) for _ in range(48)]
    return list(request.getfixturevalue("text_prompts")[0][:48])


def close(pair: Any, got: float, want: torch.Tensor) -> bool:
    return abs(got - float(want)) < (1e-9 if pair.name == "tiny" else 1e-4)


def check(pair: Any, result: dict[str, Any], prompt: Sequence[int], start: int | None) -> None:
    """Compare all that `result` reports; `start` is the call's `logprob_start_len`."""
    ids = [*prompt, *result["output_token_ids"]]
    want = hf_logprobs(pair.hf, ids)
    tokens = result["output_token_logprobs"]
    tops = result["output_top_logprobs"]
    first = len(prompt)
    if start is not None:
        tokens = result["input_token_logprobs"] + tokens
        tops = result["input_top_logprobs"] + tops
        first = start
    assert [entry[1] for entry in tokens] == ids[first:]
    assert len(tops) == len(tokens)
    for position, (value, token, _), top in zip(range(first, len(ids)), tokens, tops, strict=True):
        if position == 0:
            assert value is None
            assert top is None
            continue
        row = want[position - 1]
        assert close(pair, value, row[token]), f"position {position}"
        best = row.topk(TOP).values
        assert len(top) == TOP
        for (found, named, _), wanted in zip(top, best, strict=True):
            assert close(pair, found, wanted)
            assert close(pair, found, row[named])
        assert len({named for _, named, _ in top}) == TOP


def ask(bench: ModelBench, prompt: Sequence[int], start: int | None, **params: Any) -> int:
    context = bench.open(prompt)
    extra = {} if start is None else {"logprob_start_len": start}
    call = bench.generate(
        context, max_tokens=6, return_logprob=True, top_logprobs_num=TOP, **extra, **params
    )
    bench.close(context)
    return call


@pytest.mark.parametrize(("chunk_tokens", "page_size"), [(512, 16), (7, 1)])
def test_cold_then_warm(
    bench: Callable[..., ModelBench],
    pair: Any,
    prompt: list[int],
    chunk_tokens: int,
    page_size: int,
) -> None:
    one = bench(pair, chunk_tokens=chunk_tokens, page_size=page_size, pool_tokens=512)
    for start in (0, 31, len(prompt), None):
        call = ask(one, prompt, start)
        one.run()
        check(pair, one.done[call]["results"][0], prompt, start)
    assert one.engine.stats()["recomputed_tokens"] == 0


def test_in_a_batch(bench: Callable[..., ModelBench], pair: Any, prompt: list[int]) -> None:
    one = bench(pair, chunk_tokens=40, pool_tokens=2048)
    asked = []
    for index, length in enumerate((48, 12, 33, 48, 40)):
        start = (0, 5, None, 30, 40)[index]
        own = prompt[:length] if index != 3 else [*prompt[:38], *prompt[:10]]
        asked.append((ask(one, own, start, temperature=1.0, seed=index), own, start))
    plain = one.generate(one.open(prompt[5:40]), max_tokens=5)
    one.run()
    for call, own, start in asked:
        check(pair, one.done[call]["results"][0], own, start)
    assert "output_token_logprobs" not in one.done[plain]["results"][0]


def test_raw_under_every_sampling_parameter(
    bench: Callable[..., ModelBench], pair: Any, prompt: list[int]
) -> None:
    """What is reported is the model's own distribution, before temperature, bias and penalties."""
    one = bench(pair, pool_tokens=1024)
    call = ask(
        one,
        prompt,
        40,
        n=3,
        temperature=1.7,
        top_p=0.9,
        repetition_penalty=1.3,
        presence_penalty=0.5,
        logit_bias={65: 8.0},
    )
    one.run()
    for result in one.done[call]["results"]:
        check(pair, result, prompt, 40)
