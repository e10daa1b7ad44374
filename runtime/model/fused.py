"""A model whose every step is one kernel, for devices that have such a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ramet.kernels import ops
from ramet.kernels.decoder import DecoderShape
from ramet.runtime.errors import InvalidArgument
from ramet.runtime.model.attention_plan import Rows, item_lines
from ramet.runtime.model.layers import layer_tensors
from ramet.runtime.model.rope import inverse_frequencies, rope_rows
from ramet.runtime.model.spec import ModelSpec
from ramet.runtime.model.weights import check_weights


class FusedModel:
    """Weights and KV memory of a model in int8, as `ops.decoder` computes it.

    Raises InvalidArgument if a tensor is missing, misshapen or not finite.
    """

    def __init__(
        self,
        spec: ModelSpec,
        weights: Mapping[str, torch.Tensor],
        num_slots: int,
    ) -> None:
        check_weights(weights, spec)
        frequencies = inverse_frequencies(spec.rope, spec.head_dim)
        layers = (layer_tensors(spec, layer, weights) for layer in range(spec.num_layers))
        try:
            self._decoder = ops.decoder(
                decoder_shape(spec),
                layers,
                weights["model.embed_tokens.weight"],
                weights["model.norm.weight"],
                None if spec.tied_embeddings else weights["lm_head.weight"],
                lambda positions: rope_rows(positions, frequencies, spec.rope, torch.float32),
                num_slots,
            )
        except ValueError as error:
            raise InvalidArgument(f"weights: {error}") from error

    def forward(self, batch: Rows, gathered: list[tuple[int, int]] | None) -> None:
        """Compute the batch's rows."""
        items = item_lines(batch.items)
        self._decoder.forward(batch.token_ids, batch.positions, batch.slots, items, gathered)

    def logits(self, slots: Sequence[int], masks: Sequence[bytes] | None = None) -> torch.Tensor:
        """As `ModelRunner.logits`, float32."""
        return self._decoder.logits(slots, masks)

    def likeliest(self, slots: Sequence[int]) -> tuple[list[int], list[float]]:
        """As `ModelRunner.likeliest`."""
        return self._decoder.likeliest(slots)


def decoder_shape(spec: ModelSpec) -> DecoderShape:
    """The sizes that the kernel is told."""
    return DecoderShape(
        num_layers=spec.num_layers,
        hidden=spec.hidden_size,
        heads=spec.num_heads,
        kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        inner=spec.intermediate_size,
        vocab=spec.vocab_size,
        eps=spec.rms_norm_eps,
    )
