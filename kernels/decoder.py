"""What a whole decoder is, as one kernel: its sizes, its tensors, and what it does for a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from ramet.kernels.plan import IntArray

RopeRows = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""From int64 positions `[rows]` to cos and sin, float32 `[rows, head_dim]`, both halves alike."""


@dataclasses.dataclass(frozen=True)
class DecoderShape:
    """The sizes of a decoder; `head_dim` is even."""

    num_layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int
    eps: float
    """Of the norms."""


@dataclasses.dataclass(frozen=True)
class LayerTensors:
    """One layer's weights; projections that read the same input are one matrix. None where the
    layer has no such thing."""

    input_norm: torch.Tensor
    qkv: torch.Tensor
    """`[(heads + 2 * kv_heads) * head_dim, hidden]`: queries, keys, values."""
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    output: torch.Tensor
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    """`[2 * inner, hidden]`: gate, then up."""
    down: torch.Tensor
    window: int | None
    """Tokens that its sliding window holds."""


class Decoder(Protocol):
    """A decoder with its weights and its KV memory."""

    def forward(
        self,
        token_ids: Sequence[int],
        positions: Sequence[int],
        slots: Sequence[int],
        items: IntArray,
        gathered: list[tuple[int, int]] | None = None,
    ) -> None:
        """Compute rows, at least one: their K, V and what `logits` reads are then at their slots.

        `items` and `gathered` are what `AttentionPlan` calls `items` and `gathered`. Raises
        ValueError if a row sees no key.
        """

    def logits(self, slots: Sequence[int], masks: Sequence[bytes] | None = None) -> torch.Tensor:
        """float32 `[len(slots), vocab]`: the logits of tokens computed at `slots`, the caller's to
        change until the next call, which may write to the same memory.

        `masks`: sets of tokens as little-endian 32-bit words; the logits of tokens that are in none
        of them may be given as minus infinity.
        """
        ...

    def likeliest(self, slots: Sequence[int]) -> tuple[list[int], list[float]]:
        """The likeliest token, the lowest id among ties, and the largest logit of each of the
        tokens computed at `slots`; NaN is largest."""
        ...
