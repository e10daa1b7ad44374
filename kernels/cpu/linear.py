"""Matrix products on a CPU: the float32 library's slow shapes are turned the other way round."""

from __future__ import annotations

import torch

# Measured on two AVX2 cores with MKL, weights of 960x576 to 49152x576, both ways in one run: for
# these row counts `weight @ x.T` takes 0.4 to 1.0 of the time of `x @ weight.T`; at 1 row and from
# 128 they are equal, and in bfloat16 (oneDNN) the plain way is faster throughout.
FEWEST_ROWS = 2
MOST_ROWS = 64


def turned(x: torch.Tensor) -> bool:
    """Whether products of `x` `[rows, in]` go as `weight @ x.T`."""
    return x.dtype == torch.float32 and FEWEST_ROWS <= x.shape[0] <= MOST_ROWS


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """`x @ weight.T + bias` for `x` `[rows, in]` and `weight` `[out, in]`."""
    if not turned(x):
        return torch.nn.functional.linear(x, weight, bias)
    product = torch.mm(weight, x.t()).t()
    return product.contiguous() if bias is None else product + bias
