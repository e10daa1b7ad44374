"""The gated activation `out[r, i] = silu(gate[r, i]) * up[r, i]`, `silu(x) = x / (1 + exp(-x))`.

Shapes: `gate_up` `[rows, 2 * inner]`, gate's columns, then up's; `out` `[rows, inner]`. float32
inside, rounded once to the input's dtype. SwiGLU of Shazeer 2020; the products stay with cuBLAS.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from ramet.kernels.gpu.configs import DTYPES, Variant, check

BLOCK = 1024


@triton.jit
def silu_mul_kernel(gate_up, out, stride, inner, BLOCK: tl.constexpr):
    """One program: `BLOCK` columns of one row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < inner
    gate = tl.load(gate_up + row * stride + column, mask=inside, other=0).to(tl.float32)
    up = tl.load(gate_up + row * stride + inner + column, mask=inside, other=0).to(tl.float32)
    value = gate / (1 + tl.exp(-gate)) * up
    tl.store(out + row * inner + column, value.to(out.dtype.element_ty), mask=inside)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """`silu(gate) * up`, `[rows, inner]`, of `gate_up` `[rows, 2 * inner]`."""
    good = gate_up.dim() == 2 and gate_up.shape[1] % 2 == 0 and gate_up.dtype in DTYPES
    check("silu_mul", good and gate_up.stride(1) == 1, gate_up=gate_up)
    rows, inner = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty((rows, inner))
    if rows and inner:
        silu_mul_kernel[rows, triton.cdiv(inner, BLOCK)](
            gate_up, out, gate_up.stride(0), inner, BLOCK=BLOCK, num_warps=4
        )
    return out


def gated_mlp(x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """As `reference.gated_mlp`."""
    inner = silu_mul(torch.nn.functional.linear(x, gate_up))
    return torch.nn.functional.linear(inner, down)


def variants(arch: str) -> Iterator[Variant]:
    """What this file launches; the same on every `arch`."""
    for name in DTYPES.values():
        yield Variant(
            f"silu_mul {name} {arch}",
            silu_mul_kernel,
            {"gate_up": f"*{name}", "out": f"*{name}", "stride": "i32", "inner": "i32"},
            {"BLOCK": BLOCK},
            4,
            1,
            ("gate_up", "out", "stride", "inner"),
        )
