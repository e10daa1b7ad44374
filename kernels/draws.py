"""What `ops.draw` is asked: distributions over the vocabulary, and how often to draw from each."""

from __future__ import annotations

import dataclasses

import torch


@dataclasses.dataclass(frozen=True, slots=True)
class Draws:
    """n distributions, m draws from each. Tensors lie where the logits do."""

    rows: torch.Tensor
    """int64 [n]: the rows of the logits, several of which may be one."""
    asked: torch.Tensor
    """float64 [n, 4]: temperature, top-k, top-p, min-p. Temperature 0 takes the likeliest token; 0
    or less, or the vocabulary or more, turns top-k off, 1 top-p, 0 min-p."""
    uniforms: torch.Tensor
    """float64 [n, m] in [0, 1)."""
    bans: torch.Tensor
    """int64 [b, 2]: distributions, in ascending order, and tokens that they may not have."""
    masks: torch.Tensor | None = None
    """int32 [n, ceil(vocab / 32)], as for `apply_bitmask`: the only tokens they may have."""
