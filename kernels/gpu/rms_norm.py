"""Root-mean-square norm: `y = x / sqrt(mean(x * x) + eps) * weight` (Zhang and Sennrich 2019).

Shapes: `x` `[rows, n]` or `[rows, heads, n]`, normed over `n`; rows may lie apart, as in a slice of
a wider matrix. With a residual, first `sum = x + residual`, rounded to their dtype as a sum of its
own would be, and `y` is the norm of that. float32 inside, rounded once to the input's dtype.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from ramet.kernels.gpu.configs import DTYPES, Variant, check, power_of_two

LARGEST = 32768


@triton.jit(do_not_specialize=["lines"])  # else it is compiled anew for 1, and for 16, 32, ...
def rms_norm_kernel(
    x,
    residual,
    weight,
    total,
    out,
    lines,
    heads,
    row_stride,
    head_stride,
    eps,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
    LINES: tl.constexpr,
    ADD: tl.constexpr,
):
    """One program: `LINES` lines, each one head of one row, read once and kept in registers."""
    line = tl.program_id(0).to(tl.int64) * LINES + tl.arange(0, LINES)
    column = tl.arange(0, BLOCK)
    inside = (line < lines)[:, None] & (column < N)[None, :]
    source = (line // heads) * row_stride + (line % heads) * head_stride
    target = line[:, None] * N + column[None, :]
    value = tl.load(x + source[:, None] + column[None, :], mask=inside, other=0).to(tl.float32)
    if ADD:
        value += tl.load(residual + target, mask=inside, other=0).to(tl.float32)
        rounded = value.to(total.dtype.element_ty)
        tl.store(total + target, rounded, mask=inside)
        value = rounded.to(tl.float32)
    mean = tl.sum(value * value, axis=1) / N
    factor = 1 / tl.sqrt(mean + eps)
    scale = tl.load(weight + column, mask=column < N, other=0).to(tl.float32)
    normed = value * factor[:, None] * scale[None, :]
    tl.store(out + target, normed.to(out.dtype.element_ty), mask=inside)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """As `reference.rms_norm`."""
    return _launch(x, None, weight, eps)[0]


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """`x + residual`, both `[rows, n]`, and the norm of that sum."""
    good = residual.shape == x.shape and residual.dtype == x.dtype and x.dim() == 2
    check("add_rms_norm", good, x=x, residual=residual)
    normed, total = _launch(x, residual.contiguous(), weight, eps)
    return total, normed


def _launch(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The norm and the sum."""
    good = x.dim() in (2, 3) and x.dtype in DTYPES and weight.dtype in DTYPES
    good = good and weight.shape == x.shape[-1:] and weight.is_contiguous()
    check("rms_norm", good and 0 < x.shape[-1] <= LARGEST, x=x, weight=weight)
    if x.stride(-1) != 1:
        x = x.contiguous()
    size = x.shape[-1]
    heads = x.shape[1] if x.dim() == 3 else 1
    lines = x.shape[0] * heads
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = x if residual is None else torch.empty_like(out)
    if lines:
        block, at_once, warps = _sizes(size)
        rms_norm_kernel[(triton.cdiv(lines, at_once),)](
            x,
            x if residual is None else residual,
            weight,
            total,
            out,
            lines,
            heads,
            x.stride(0),
            x.stride(1) if x.dim() == 3 else 0,
            eps,
            N=size,
            BLOCK=block,
            LINES=at_once,
            ADD=residual is not None,
            num_warps=warps,
        )
    return out, total


def _sizes(size: int) -> tuple[int, int, int]:
    """The block of a line, the lines of a program, its warps: 8 to 64 values for each thread."""
    block = power_of_two(size)
    return block, max(1, 1024 // block), 4 if block <= 2048 else 8 if block <= 8192 else 16


def variants(arch: str) -> Iterator[Variant]:
    """What this file launches, at the sizes of heads and of models; the same on every `arch`."""
    for name in DTYPES.values():
        for size in (64, 128, 576, 4096, 8192):
            for add in (False, True):
                block, at_once, warps = _sizes(size)
                pointers = ("x", "residual", "weight", "total", "out")
                yield Variant(
                    f"rms_norm {name} {size} {'add ' if add else ''}{arch}",
                    rms_norm_kernel,
                    {
                        **dict.fromkeys(pointers, f"*{name}"),
                        "lines": "i32",
                        "heads": "i32",
                        "row_stride": "i32",
                        "head_stride": "i32",
                        "eps": "fp32",
                    },
                    {"N": size, "BLOCK": block, "LINES": at_once, "ADD": add},
                    warps,
                    1,
                    (*pointers, "row_stride", "head_stride"),
                )
