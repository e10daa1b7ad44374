"""The mask kernel against the reference, to the bit, and what it refuses."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the GPU's kernels need triton")

from ramet.kernels import reference


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "vocab"), [(1, 1), (1, 32), (3, 33), (2, 1025), (5, 4096)])
def test_it_equals_the_reference(rows, vocab, dtype, device):
    from ramet.kernels.gpu.bitmask import apply_bitmask

    torch.manual_seed(rows + vocab)
    logits = torch.randn(rows, vocab).to(device, dtype)
    logits[:, 0] = float("inf")
    logits[:, -1] = float("nan")
    words = torch.randint(-(2**31), 2**31 - 1, (rows, (vocab + 31) // 32), dtype=torch.int32)
    words = words.to(device)
    wanted = logits.clone()
    reference.apply_bitmask(wanted, words)
    apply_bitmask(logits, words)
    assert torch.equal(logits.nan_to_num(7.0), wanted.nan_to_num(7.0))


def test_rows_may_lie_apart(device):
    from ramet.kernels.gpu.bitmask import apply_bitmask

    wide, words = torch.randn(3, 80, device=device), torch.zeros(6, 2, dtype=torch.int32)
    logits, kept = wide[:, :40], wide.clone()
    apply_bitmask(logits, words.to(device)[::2])
    assert bool((logits == -torch.inf).all())
    assert torch.equal(wide[:, 40:], kept[:, 40:])
    apply_bitmask(wide[:0], words[:0, :].new_empty((0, 3)).to(device))


def test_it_refuses_another_shape(device):
    from ramet.kernels.gpu.bitmask import apply_bitmask

    with pytest.raises(ValueError, match="bitmask"):
        apply_bitmask(torch.zeros(2, 33), torch.zeros(2, 1, dtype=torch.int32))
    with pytest.raises(ValueError, match="bitmask"):
        apply_bitmask(torch.zeros(1, 32), torch.zeros(1, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match="float64"):
        apply_bitmask(torch.zeros(1, 32).double(), torch.zeros(1, 1, dtype=torch.int32))
