"""The Llama-shaped decoder: embedding, layers, final norm, head."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ramet.kernels import ops
from ramet.kernels.plan import AttentionPlan
from ramet.runtime.model.kv_pool import KVPool
from ramet.runtime.model.layers import DecoderLayer, Step, added_norm
from ramet.runtime.model.rope import inverse_frequencies, rope_rows
from ramet.runtime.model.spec import ModelSpec
from ramet.runtime.model.weights import check_weights


class LlamaModel:
    """A decoder of any supported family, on the device and in the dtype of its weights.

    Raises InvalidArgument if a tensor is missing or misshapen.
    """

    def __init__(self, spec: ModelSpec, weights: Mapping[str, torch.Tensor]) -> None:
        check_weights(weights, spec)
        self.spec = spec
        self._embedding = weights["model.embed_tokens.weight"]
        self._layers = [
            DecoderLayer.from_weights(spec, layer, weights) for layer in range(spec.num_layers)
        ]
        self._norm = weights["model.norm.weight"]
        head = self._embedding if spec.tied_embeddings else weights["lm_head.weight"]
        self._head = ops.head_weight(head)
        self._frequencies = inverse_frequencies(spec.rope, spec.head_dim).to(head.device)

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        plan: AttentionPlan,
        pool: KVPool,
    ) -> None:
        """Compute the rows, int64 `[rows]` each, and keep K/V and hidden rows at their slots."""
        x = ops.embed(token_ids, self._embedding)
        cos, sin = rope_rows(positions, self._frequencies, self.spec.rope, x.dtype)
        step = Step(slots, cos, sin, plan)
        update: torch.Tensor | None = None
        for layer, k_pool, v_pool in zip(self._layers, pool.k, pool.v, strict=True):
            x, update = layer.forward(x, update, k_pool, v_pool, step)
        _, hidden = added_norm(x, update, self._norm, self.spec.rms_norm_eps)
        pool.hidden.index_copy_(0, slots, hidden)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits `[rows, vocab]` of hidden rows, in float32 (float64 for a float64 model)."""
        return ops.head_logits(hidden, self._head)
