"""Rows as linear layers read them: bytes that say what a turned block was, and their sums."""

from __future__ import annotations

import pytest
import torch
from fused_linear import as_inputs

from ramet.kernels import reference
from ramet.kernels.cpu.fused.inputs import row_bytes
from ramet.kernels.cpu.fused.lanes import VNNI

SIZES = (1e-37, 1e-28, 1e-3, 1.0, 1e6, 1e30)


def read(row):
    """The integers of a row's blocks, int64 `[blocks, 64]`, and their scales."""
    blocks = row.view(-1, 72)
    whole = blocks[:, :64].contiguous().view(torch.int8).long()
    sums = blocks[:, 64:68].contiguous().view(torch.int32)[:, 0]
    assert sums.tolist() == (-128 * whole.sum(1)).tolist()
    return whole, blocks[:, 68:].contiguous().view(torch.float32)


@pytest.mark.skipif(not VNNI, reason="rows are float32 on this processor")
@pytest.mark.parametrize("inputs", [1, 2, 3, 6, 63, 64, 65, 130, 577, 1536])
def test_a_row_is_the_reference_of_bytes(inputs):
    torch.manual_seed(inputs)
    for size in SIZES:
        x = torch.randn(5, inputs) * size
        stored = as_inputs(x)
        assert stored.shape[1] == row_bytes(inputs)
        for row, wanted in zip(stored, reference.quantise_inputs(x), strict=False):
            whole, scales = read(row)
            assert torch.equal((whole * scales).flatten(), wanted)
            assert size == 1e-37 or bool((whole.abs().amax(1) == 127).all())


@pytest.mark.skipif(VNNI, reason="rows are bytes on this processor")
@pytest.mark.parametrize("inputs", [1, 2, 3, 6, 63, 64, 65, 130, 577, 1536])
def test_a_row_is_turned(inputs):
    torch.manual_seed(inputs)
    for size in SIZES:
        x = torch.randn(5, inputs) * size
        stored = as_inputs(x)
        assert stored.shape[1] == row_bytes(inputs)
        assert torch.equal(stored[:5].view(torch.float32), reference.hadamard(x))


@pytest.mark.skipif(not VNNI, reason="rows are float32 on this processor")
def test_zeros_and_what_is_not_finite():
    x = torch.zeros(4, 70)
    x[1, 3], x[2, 4], x[3, 69] = float("nan"), float("inf"), -float("inf")
    stored = as_inputs(x)
    whole, scales = read(stored[0])
    assert not whole.any()
    assert scales.flatten().tolist() == [0, 0]
    for row, broken in zip(stored[1:4], (0, 0, 1), strict=True):
        scales = row.view(-1, 72)[:, 68:].contiguous().view(torch.float32)[:, 0]
        assert scales[broken].isnan()
        assert scales[1 - broken] == 0
