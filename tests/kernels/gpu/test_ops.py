"""The door, for tensors that it takes for a GPU's: each operator means what its reference does."""

from __future__ import annotations

import random

import pytest
import torch

pytest.importorskip("triton", reason="the GPU's kernels need triton")

from ramet.kernels import ops, reference
from ramet.runtime.model.runner import ModelRunner
from ramet.runtime.model.spec import ModelSpec
from ramet.runtime.model.tiny import tiny_config, tiny_weights


@pytest.fixture(autouse=True)
def everything_is_on_a_gpu(monkeypatch, interpreter):
    monkeypatch.setattr(ops, "on_gpu", lambda tensor: tensor.dtype != torch.float64)


def test_a_sum_comes_before_its_norm(device):
    x, update = torch.randn(2, 5, 24).to(device)
    weight = torch.randn(24).to(device)
    total, normed = ops.add_rms_norm(x, update, weight, 1e-3)
    assert torch.equal(total, x + update)
    torch.testing.assert_close(normed, reference.rms_norm(total, weight, 1e-3))
    torch.testing.assert_close(ops.rms_norm(x, weight, 1e-3), reference.rms_norm(x, weight, 1e-3))


def test_draws_and_masks(device):
    from ramet.kernels.draws import Draws

    logits = torch.randn(3, 70).to(device)
    draws = Draws(
        torch.tensor([2, 0], device=device),
        torch.tensor([[1.0, 5, 0.9, 0], [0, 0, 1, 0]], dtype=torch.float64, device=device),
        torch.tensor([[0.3], [0.6]], dtype=torch.float64, device=device),
        torch.empty((0, 2), dtype=torch.long, device=device),
    )
    for mine, wanted in zip(ops.draw(logits, draws), reference.draw(logits, draws), strict=True):
        assert torch.equal(mine, wanted)
    assert ops.draws_fast(logits)
    assert ops.greedy(logits, [1, 0]) == reference.greedy(logits, [1, 0])
    masked = logits.clone()
    words = torch.randint(-(2**31), 2**31 - 1, (3, 3), dtype=torch.int32, device=device)
    ops.apply_bitmask(masked, words)
    reference.apply_bitmask(logits, words)
    assert torch.equal(masked, logits)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
def test_a_model_in_chunks_and_branches(family, tree_batches, device):
    """Logits over the kernels against those of the exact model, with shared and private edges."""
    config = {**tiny_config(), "model_type": family, "architectures": None}
    if family == "mistral":
        config["sliding_window"] = 6
    spec = ModelSpec.from_config(config)
    weights = tiny_weights(spec, dtype=torch.float64, seed=3)
    mine = ModelRunner(spec, weights, num_slots=64, dtype=torch.float32, device=device)
    exact = ModelRunner(spec, weights, num_slots=64, dtype=torch.float64, device=device)
    for batch in tree_batches(random.Random(family), spec.vocab_size):
        mine.forward(batch)
        exact.forward(batch)
        torch.testing.assert_close(
            mine.logits(batch.slots).double(), exact.logits(batch.slots), rtol=1e-4, atol=1e-4
        )
        assert mine.likeliest(batch.slots)[0] == exact.likeliest(batch.slots)[0]
