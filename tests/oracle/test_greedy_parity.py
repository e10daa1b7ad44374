"""Greedy tokens equal transformers' own `generate`, in whatever way the engine runs them."""

from __future__ import annotations

import functools

import pytest
from oracle import BUILTIN_TIE, PAIRWISE, TINY_TIE, WHOLE, play

FAMILIES = ["linear", "llama2", "llama3", "mistral", "qwen2", "qwen3", "smollm2", "yarn"]
TINY_TOKENS = 16
BUILTIN_TOKENS = 8
BUILTIN_TOKENS_WHOLE = 16

SLICE = [
    (family, case)
    for index, family in enumerate(FAMILIES)
    for case in (PAIRWISE[:3], PAIRWISE[3:])[index % 2]
]


def check(bench, pair, prompts, case, count, tie, tally) -> None:
    played = list(play(functools.partial(bench, pair), prompts, case, count, ignore_eos=False))
    assert {index for outputs in played for index in outputs} == set(range(len(prompts)))
    for outputs in played:
        for index, got in outputs.items():
            tally.check(got, pair.greedy(prompts[index], count), tie)
    tally.settle()


@pytest.mark.parametrize(("family", "case"), SLICE, ids=str)
def test_tiny_families(bench, families, byte_prompts, tally, family, case):
    check(bench, families(family), byte_prompts[:6], case, TINY_TOKENS, TINY_TIE, tally)


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("case", WHOLE, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_tiny_families_whole(bench, families, byte_prompts, tally, family, case):
    check(bench, families(family), byte_prompts, case, TINY_TOKENS, TINY_TIE, tally)


@pytest.mark.model
@pytest.mark.parametrize("case", PAIRWISE[3:], ids=str)
def test_builtin_model(bench, builtin, text_prompts, tally, case):
    prompts = [text_prompts[index] for index in (0, 1, 3, 5)]
    check(bench, builtin, prompts, case, BUILTIN_TOKENS, BUILTIN_TIE, tally)


@pytest.mark.full
@pytest.mark.model
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", WHOLE, ids=str)
def test_builtin_model_whole(bench, builtin, text_prompts, tally, case):
    check(bench, builtin, text_prompts, case, BUILTIN_TOKENS_WHOLE, BUILTIN_TIE, tally)
