"""The sampler with kernels and without: the same tokens, log-probabilities and errors."""

from __future__ import annotations

import math
import random
import subprocess
import sys

import pytest
import torch

from ramet.kernels.cpu import fused
from ramet.runtime.request import SamplingParams
from ramet.runtime.sampling.sampler import SampleRow, greedy, sample

VOCAB = 1300


def rows(count: int) -> list[SampleRow]:
    dice = random.Random(3)
    result = []
    for n in range(count):
        params = SamplingParams(
            temperature=dice.choice([0.0, 0.3, 1.0, 1.7]),
            top_k=dice.choice([-1, -1, 5, 300]),
            top_p=dice.choice([1.0, 1.0, 0.9, 0.3]),
            min_p=dice.choice([0.0, 0.0, 0.05]),
            logit_bias=dice.choice([{}, {}, {}, {3: 2.0, 7: -100}]),
            frequency_penalty=dice.choice([0.0, 0.0, 0.0, 0.5]),
            return_logprob=n % 4 == 0,
        )
        words = (VOCAB + 31) // 32
        result.append(
            SampleRow(
                dice.randrange(12),
                params,
                dice.getrandbits(64),
                n,
                counts={1: 2},
                banned=dice.choice([(), (), (0, 9)]),
                mask=dice.choice([None, None, dice.randbytes(4 * words)]),
            )
        )
    return result + [SampleRow(n % 12, SamplingParams(), n, 0) for n in range(30)]


def test_the_results_are_the_same_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    if fused.why_not():
        pytest.skip("numba is not installed")
    logits = torch.randn(12, VOCAB, generator=torch.Generator().manual_seed(4)) * 3
    logits[10, 100] = math.nan
    logits[11] = -math.inf
    asked = rows(600)
    fast, likeliest = sample(logits, asked), greedy(logits, [0, 11, 10, 0])
    monkeypatch.setattr(fused, "why_not", lambda: "not now")
    for got, wanted in zip(fast, sample(logits, asked), strict=True):
        assert got[:3] == wanted[:3]
        assert repr(got.error) == repr(wanted.error)
    assert {type(result.error).__name__ for result in fast} == {
        "NoneType",
        "BackendError",
        "InvalidArgument",
    }
    assert [r.token for r in likeliest] == [r.token for r in greedy(logits, [0, 11, 10, 0])]


def test_numba_may_be_absent() -> None:
    code = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None
import torch
from ramet.runtime.request import SamplingParams
from ramet.runtime.sampling.sampler import SampleRow, greedy, sample
logits = torch.tensor([[0.0, 9.0, 1.0]])
rows = [SampleRow(0, SamplingParams(temperature=t), 1, 0) for t in (0, 0.01)]
print([result.token for result in sample(logits, rows) + greedy(logits, [0])])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["[1,", "1,", "1]"]), done.stderr
