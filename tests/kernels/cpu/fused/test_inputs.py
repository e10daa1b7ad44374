"""Rows as linear layers read them: 16 bits that say what the row was, and their sums."""

from __future__ import annotations

import pytest
import torch
from fused_linear import as_inputs

from ramet.kernels.cpu.fused.inputs import row_bytes
from ramet.kernels.cpu.fused.lanes import VNNI

pytestmark = pytest.mark.skipif(not VNNI, reason="rows are float32 on this processor")


def read(row, inputs):
    """The integers of a row, int64, and the three numbers of its tail."""
    plane = -(-inputs // 4) * 4
    planes = row[: 2 * plane].view(torch.int8).view(2, plane).long()
    tail = row[2 * plane : 2 * plane + 12]
    assert not planes[:, inputs:].any()
    sums = tail[:8].view(torch.int32).tolist()
    assert sums == (128 * planes.sum(1)).tolist()
    return planes[0, :inputs] * 256 + planes[1, :inputs], tail[8:].view(torch.float32).item()


@pytest.mark.parametrize("inputs", [2, 3, 4, 6, 64, 130, 577, 1536])
def test_a_row_is_what_it_was_to_16_bits(inputs):
    torch.manual_seed(inputs)
    for size in (1e-30, 1e-3, 1.0, 1e6, 1e30):
        x = torch.randn(5, inputs) * size
        stored = as_inputs(x)
        assert stored.shape[1] == row_bytes(inputs)
        for row, wanted in zip(stored, x, strict=False):
            whole, scale = read(row, inputs)
            assert int(whole.abs().max()) == 32512
            error = (whole.double() * scale - wanted.double()).abs().max()
            assert error <= 0.51 * float(wanted.abs().max()) / 32512


def test_zeros_and_what_is_not_finite():
    x = torch.zeros(4, 10)
    x[1, 3], x[2, 4], x[3, 9] = float("nan"), float("inf"), -float("inf")
    stored = as_inputs(x)
    whole, scale = read(stored[0], 10)
    assert not whole.any()
    assert scale == 0
    for row in stored[1:4]:
        assert row[24 + 8 : 24 + 12].view(torch.float32).isnan()
