"""The gated activation's kernel against the reference.

Tolerance: `exp`, a quotient and a product in float32 are right to 8 of its steps, and the result is
rounded once: at most one step of the dtype from the reference's, computed in float64.
"""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the GPU's kernels need triton")

from ramet.kernels import reference


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "inner"), [(1, 1), (2, 48), (33, 1536), (0, 4), (3, 1025)])
def test_it_equals_the_reference(rows, inner, dtype, device):
    from ramet.kernels.gpu.silu_mul import silu_mul

    torch.manual_seed(inner)
    gate_up = (5 * torch.randn(rows, 2 * inner)).to(device, dtype)
    got = silu_mul(gate_up)
    assert got.dtype == dtype
    gate, up = gate_up.double().chunk(2, dim=-1)
    wanted = torch.nn.functional.silu(gate) * up
    rtol = torch.finfo(dtype).eps / 2 + 8 * torch.finfo(torch.float32).eps
    atol = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    torch.testing.assert_close(got.double(), wanted, rtol=rtol, atol=atol)


def test_the_mlp_equals_the_reference(device):
    from ramet.kernels.gpu.silu_mul import gated_mlp

    x, gate_up, down = (torch.randn(*s, device=device) for s in ((5, 24), (64, 24), (24, 32)))
    torch.testing.assert_close(
        gated_mlp(x, gate_up, down), reference.gated_mlp(x, gate_up, down), rtol=1e-5, atol=1e-4
    )


def test_far_gates_stay_numbers(device):
    from ramet.kernels.gpu.silu_mul import silu_mul

    got = silu_mul(torch.tensor([[-1e4, 1e4, 0.0, 2.0, 2.0, 2.0]], device=device))
    assert got.tolist() == [[0.0, 2e4, 0.0]]


def test_it_refuses_what_does_not_fit(device):
    from ramet.kernels.gpu.silu_mul import silu_mul

    for wrong in (torch.zeros(2, 3), torch.zeros(4), torch.zeros(2, 4).double()):
        with pytest.raises(ValueError, match="silu_mul"):
            silu_mul(wrong)
