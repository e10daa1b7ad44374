"""The norm's kernel against the reference.

Tolerance: both round one float32 result once, so they differ by at most one step of the dtype,
`eps` times the value; sums of n squares in another order add `sqrt(n)` steps of float32 at most.
"""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the GPU's kernels need triton")

from ramet.kernels import reference

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def close(got, wanted, size):
    assert got.dtype == wanted.dtype
    rtol = torch.finfo(got.dtype).eps + size**0.5 * torch.finfo(torch.float32).eps
    torch.testing.assert_close(got, wanted, rtol=rtol, atol=1e-7)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "size"), [(1, 1), (3, 64), (300, 80), (7, 576), (2, 5000)])
def test_it_equals_the_reference(rows, size, dtype, device):
    from ramet.kernels.gpu import rms_norm

    torch.manual_seed(size)
    x = (3 * torch.randn(rows, size)).to(device, dtype)
    weight = torch.randn(size).to(device, dtype)
    close(rms_norm.rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5), size)
    residual = torch.randn(rows, size).to(device, dtype)
    total, normed = rms_norm.add_rms_norm(x, residual, weight, 1e-5)
    assert torch.equal(total, x + residual)
    close(normed, reference.rms_norm(x + residual, weight, 1e-5), size)


def test_heads_of_a_wider_matrix(device):
    from ramet.kernels.gpu import rms_norm

    qkv = torch.randn(5, 9, 96, device=device)
    weight = torch.randn(96, device=device)
    for part in (qkv[:, :4], qkv[:, 4:7], qkv[:0]):
        got = rms_norm.rms_norm(part, weight, 1e-6)
        assert got.is_contiguous()
        close(got, reference.rms_norm(part, weight, 1e-6), 96)


def test_small_values_keep_eps_and_large_ones_their_size(device):
    from ramet.kernels.gpu import rms_norm

    weight = torch.ones(64, device=device)
    for x in (torch.zeros(1, 64), torch.full((1, 64), 1e-6), torch.full((1, 64), 1e15)):
        x = x.to(device)
        close(rms_norm.rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5), 64)


def test_it_refuses_what_does_not_fit(device):
    from ramet.kernels.gpu import rms_norm

    x = torch.zeros(2, 64)
    with pytest.raises(ValueError, match="rms_norm"):
        rms_norm.rms_norm(x, torch.zeros(63), 1e-5)
    with pytest.raises(ValueError, match="float64"):
        rms_norm.rms_norm(x.double(), torch.zeros(64).double(), 1e-5)
    with pytest.raises(ValueError, match="residual"):
        rms_norm.add_rms_norm(x, x[:1], torch.zeros(64), 1e-5)
