"""Rotary embedding with the pool's write against the reference, computed in float64.

Tolerance: two products and a sum in float32, at most 3 of its steps of the larger summand, and one
rounding to the dtype. V is copied to the bit.
"""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the GPU's kernels need triton")

from ramet.kernels import reference

SHAPES = [
    (1, 1, 1, 64),
    (5, 9, 3, 64),
    (40, 2, 2, 80),
    (3, 10, 5, 96),
    (2, 8, 1, 128),
    (7, 4, 2, 256),
]


def inputs(rows, heads, kv_heads, dim, dtype, device):
    torch.manual_seed(rows + dim)
    qkv = torch.randn(rows, heads + 2 * kv_heads, dim).to(device, dtype)
    q, k, v = qkv.split((heads, kv_heads, kv_heads), dim=1)
    angles = torch.rand(rows, dim // 2, device=device) * 6
    cos, sin = (torch.cat((wave, wave), 1) for wave in (angles.cos(), angles.sin()))
    slots = torch.randperm(2 * rows, device=device)[:rows]
    return q, k, v, cos, sin, slots


@pytest.mark.parametrize("angles", ["same", "float32"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_equals_the_reference(shape, dtype, angles, device):
    from ramet.kernels.gpu.rope_write import rope_write

    q, k, v, cos, sin, slots = inputs(*shape, dtype, device)
    if angles == "same":
        cos, sin = cos.to(dtype), sin.to(dtype)
    pools = torch.randn(2, 2 * shape[0], shape[2], shape[3]).to(device, dtype)
    wanted = pools.double()
    wide = [t.double() for t in (k, v, cos, sin)]
    reference.write_kv(wanted[0], wanted[1], reference.rope(wide[0], *wide[2:]), wide[1], slots)
    got = rope_write(q, k, v, cos, sin, pools[0], pools[1], slots)
    assert got.dtype == dtype
    step = torch.finfo(dtype).eps / 2 + 3 * torch.finfo(torch.float32).eps
    rest = 12 * torch.finfo(torch.float32).eps
    close = {"rtol": step, "atol": rest}
    torch.testing.assert_close(got.double(), reference.rope(q.double(), *wide[2:]), **close)
    torch.testing.assert_close(pools[0].double(), wanted[0], **close)
    assert torch.equal(pools[1].double(), wanted[1])


def test_no_rows_and_what_does_not_fit(device):
    from ramet.kernels.gpu.rope_write import rope_write

    q, k, v, cos, sin, slots = inputs(3, 4, 2, 64, torch.float32, device)
    pool = torch.zeros(9, 2, 64, device=device)
    empty = [t[:0] for t in (q, k, v, cos, sin)]
    assert rope_write(*empty, pool, pool, slots[:0]).shape == (0, 4, 64)
    for wrong in (
        (q, k, v, cos, sin, pool[:, :1], pool, slots),
        (q, k, v[:2], cos, sin, pool, pool, slots),
        (q, k, v, cos, sin[:, :32], pool, pool, slots),
        (q, k, v, cos, sin, pool.half(), pool, slots),
        (q, k, v, cos, sin, pool, pool, slots.int()),
        (q.double(), k, v, cos, sin, pool, pool, slots),
    ):
        with pytest.raises(ValueError, match="rope_write"):
            rope_write(*wrong)
    assert not bool(pool.any())
