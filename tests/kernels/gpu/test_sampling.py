"""Greedy tokens against the reference: the same to the bit."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the GPU's kernels need triton")

from ramet.kernels import reference


def both(logits, rows, masks=()):
    from ramet.kernels.gpu.sampling import greedy

    got, wanted = greedy(logits, rows, masks), reference.greedy(logits, rows, masks)
    return got, wanted


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("vocab", [1, 33, 4096, 9001])
def test_it_equals_the_reference(vocab, dtype, device):
    torch.manual_seed(vocab)
    # Few values, so that there are ties.
    logits = torch.randint(-4, 4, (5, vocab)).to(device, dtype)
    logits[3] = -torch.inf
    logits[4, vocab // 2] = torch.inf
    rows = [4, 0, 2, 2, 3]
    got, wanted = both(logits, rows)
    assert got == wanted
    words = torch.randint(-(2**31), 2**31 - 1, (len(rows), (vocab + 31) // 32), dtype=torch.int32)
    words[1] = 0
    masks = [line.numpy().tobytes() for line in words]
    got, wanted = both(logits, rows, masks)
    assert got == wanted


def test_a_nan_is_largest_whatever_the_mask_says(device):
    logits = torch.zeros(2, 5000, device=device)
    logits[0, 4500] = torch.nan
    logits[1, 3] = 1
    none = bytes(4 * 157)
    for masks in ((), (none, none)):
        got, wanted = both(logits, [0, 1], masks)
        assert torch.tensor(got[1]).isnan().tolist() == [True, False]
        assert (got[0][1], got[1][1]) == (wanted[0][1], wanted[1][1])


def test_no_rows_and_what_does_not_fit(device):
    from ramet.kernels.gpu.sampling import greedy

    logits = torch.zeros(2, 40, device=device)
    assert greedy(logits, []) == ([], [])
    for rows, masks in (([2], ()), ([-1], ()), ([0], [b"1234"]), ([0], [bytes(8)] * 2)):
        with pytest.raises(ValueError, match="greedy"):
            greedy(logits, rows, masks)
    with pytest.raises(ValueError, match="float64"):
        greedy(logits.double(), [0])
