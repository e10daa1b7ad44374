"""The gated MLP on a CPU; turned products chain without turning back in between."""

from __future__ import annotations

import torch

from ramet.kernels import reference
from ramet.kernels.cpu.linear import turned


def gated_mlp(x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """As `reference.gated_mlp`, for `x` `[rows, hidden]`."""
    if not turned(x):
        return reference.gated_mlp(x, gate_up, down)
    gate, up = torch.mm(gate_up, x.t()).chunk(2, dim=0)
    inner = torch.nn.functional.silu(gate).mul_(up)
    return torch.mm(down, inner).t().contiguous()
