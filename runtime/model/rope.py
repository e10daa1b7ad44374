"""Rotary frequencies and the cos and sin rows of one step, as transformers computes them.

Frequencies, angles, cos and sin are float32 for every model dtype, float64 too: they are part of
what a checkpoint was trained with, so a wider table would be a different model.
"""

from __future__ import annotations

import math

import torch

from ramet.runtime.model.spec import RopeSpec


def inverse_frequencies(rope: RopeSpec, head_dim: int) -> torch.Tensor:
    """float32 `[head_dim / 2]`: the angle in radians by which a pair turns per position."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    plain = 1.0 / (rope.theta**exponents)
    if rope.kind == "linear":
        return plain / rope.factor
    if rope.kind == "llama3":
        return _llama3(rope, plain)
    if rope.kind == "yarn":
        return _yarn(rope, head_dim)
    return plain


def rope_rows(
    positions: torch.Tensor, frequencies: torch.Tensor, rope: RopeSpec, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, `[rows, head_dim]` in `dtype`, for `positions` `[rows]`."""
    angles = positions.float().unsqueeze(1) * frequencies
    cos = angles.cos() * rope.attention_factor
    sin = angles.sin() * rope.attention_factor
    return torch.cat((cos, cos), dim=1).to(dtype), torch.cat((sin, sin), dim=1).to(dtype)


def _llama3(rope: RopeSpec, plain: torch.Tensor) -> torch.Tensor:
    """Llama 3.1: long wavelengths are stretched, short ones kept, those between blended."""
    wavelength = 2 * math.pi / plain
    stretched = torch.where(
        wavelength > rope.original_context / rope.low_freq_factor, plain / rope.factor, plain
    )
    share = (rope.original_context / wavelength - rope.low_freq_factor) / (
        rope.high_freq_factor - rope.low_freq_factor
    )
    blended = (1 - share) * stretched / rope.factor + share * stretched
    between = (wavelength >= rope.original_context / rope.high_freq_factor) & (
        wavelength <= rope.original_context / rope.low_freq_factor
    )
    return torch.where(between, blended, stretched)


def _yarn(rope: RopeSpec, head_dim: int) -> torch.Tensor:
    """YaRN's NTK-by-parts: dimensions that turn often are kept, slow ones interpolated."""

    def dimension(rotations: float) -> float:
        """The dimension that turns `rotations` times within the original context."""
        turns = rope.original_context / (rotations * 2 * math.pi)
        return head_dim * math.log(turns) / (2 * math.log(rope.theta))

    low, high = dimension(rope.beta_fast), dimension(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001
    ramp = ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    powers = rope.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    kept = 1 - ramp
    return (1.0 / (rope.factor * powers)) * (1 - kept) + (1.0 / powers) * kept
