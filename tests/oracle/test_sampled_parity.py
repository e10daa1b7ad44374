"""Sampled tokens depend on their stream and their path, not on how the engine came to them.

In float64, where other batches and chunks change a logit by too little to change a token, and in
int8, where they don't change a bit of it.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
from oracle import PAIRWISE, WHOLE, Case, play

TOKENS = 20
PLAIN = {"temperature": 0.8, "top_p": 0.9}
EVERYTHING = {
    "temperature": 1.3,
    "top_k": 40,
    "top_p": 0.95,
    "min_p": 0.01,
    "frequency_penalty": 0.4,
    "presence_penalty": 0.3,
    "repetition_penalty": 1.2,
    "min_new_tokens": 3,
    "logit_bias": {65: 2.0},
}
ALONE = Case("alone", 512, 16, False)


def check(bench: Any, tiny: Any, prompts: list[list[int]], case: Case, **params: Any) -> None:
    make = functools.partial(bench, tiny)
    (wanted,) = play(make, prompts, ALONE, TOKENS, ignore_eos=False, **params)
    assert len({tuple(ids) for ids in wanted.values()}) == len(prompts)
    for outputs in play(make, prompts, case, TOKENS, ignore_eos=False, **params):
        assert outputs == {index: wanted[index] for index in outputs}


@pytest.mark.parametrize("case", PAIRWISE, ids=str)
def test_seeded_tokens_are_the_same(bench: Any, tiny: Any, byte_prompts: Any, case: Case) -> None:
    check(bench, tiny, byte_prompts[:6], case, **PLAIN)


@pytest.mark.parametrize("case", PAIRWISE[1:3], ids=str)
def test_with_every_parameter(bench: Any, tiny: Any, byte_prompts: Any, case: Case) -> None:
    check(bench, tiny, byte_prompts[:6], case, **EVERYTHING)


@pytest.mark.parametrize("params", [PLAIN, EVERYTHING], ids=["plain", "everything"])
@pytest.mark.parametrize("case", PAIRWISE, ids=str)
def test_in_int8(bench: Any, tiny_int8: Any, byte_prompts: Any, case: Case, params: Any) -> None:
    check(bench, tiny_int8, byte_prompts[:12], case, **params)


@pytest.mark.model
@pytest.mark.parametrize("case", PAIRWISE[::2], ids=str)
def test_the_built_in_model_in_int8(
    bench: Any, builtin_int8: Any, text_prompts: Any, case: Case
) -> None:
    prompts = [ids for ids in text_prompts if len(ids) < 200]
    check(bench, builtin_int8, prompts, case, temperature=1.2)


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("params", [PLAIN, EVERYTHING], ids=["plain", "everything"])
@pytest.mark.parametrize("case", WHOLE, ids=str)
def test_whole(bench: Any, tiny: Any, byte_prompts: Any, case: Case, params: Any) -> None:
    check(bench, tiny, byte_prompts, case, **params)
