from __future__ import annotations

import math

import pytest
import torch

from ramet.runtime.sampling.logprobs import (
    log_masses,
    log_probabilities,
    pair_logprobs,
    token_logprobs,
    top_logprobs,
)

LOGITS = torch.randn(6, 50, generator=torch.Generator().manual_seed(1)) * 4
EXACT = torch.log_softmax(LOGITS.double(), -1)


def test_types() -> None:
    assert log_probabilities(LOGITS.bfloat16()).dtype == torch.float32
    assert log_probabilities(LOGITS).dtype == torch.float32
    assert log_probabilities(LOGITS.double()).dtype == torch.float64


def test_token_logprobs() -> None:
    targets = [3, 0, 49, 7, 7, 20]
    got = token_logprobs(LOGITS, targets)
    assert all(type(value) is float for value in got)
    assert got == pytest.approx([float(EXACT[i, t]) for i, t in enumerate(targets)], abs=1e-5)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    whole = token_logprobs(LOGITS, [5] * 6)
    assert [token_logprobs(LOGITS[i : i + 1], [5])[0] for i in range(6)] == whole


def test_top_logprobs_are_sorted() -> None:
    for i, top in enumerate(top_logprobs(LOGITS, [0, 1, 5, 50, 60, 3])):
        expected = sorted(((float(v), t) for t, v in enumerate(EXACT[i])), reverse=True)
        expected = expected[: [0, 1, 5, 50, 60, 3][i]]
        assert [t for _, t in top] == [t for _, t in expected]
        assert [v for v, _ in top] == pytest.approx([v for v, _ in expected], abs=1e-5)


def test_top_logprobs_prefer_the_lowest_ids_of_equals() -> None:
    logits = torch.tensor([[0.0, 1.0, 0.0, 1.0, 0.0, 0.0]])
    assert [t for _, t in top_logprobs(logits, [4])[0]] == [1, 3, 0, 2]


def test_log_masses() -> None:
    sets = [[], [4], [1, 2, 3], list(range(50)), [0, 49], [9]]
    for i, mass in enumerate(log_masses(LOGITS, sets)):
        expected = math.fsum(math.exp(float(EXACT[i, t])) for t in sets[i])
        assert math.exp(mass) == pytest.approx(expected, abs=1e-6)
        assert mass <= 0


def test_pair_logprobs() -> None:
    sets: list[list[int]] = [[3], [], [1, 2, 2], [49], [], [0]]
    got = pair_logprobs(LOGITS, sets)
    assert [len(row) for row in got] == [len(row) for row in sets]
    for i, row in enumerate(got):
        assert row == pytest.approx([float(EXACT[i, t]) for t in sets[i]], abs=1e-5)
    assert pair_logprobs(LOGITS[:1], [[]]) == [[]]
