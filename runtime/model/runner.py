"""The engine's hand on the model: runs one step's batch, gives logits of what was computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ramet.kernels import ops
from ramet.runtime.errors import InvalidArgument
from ramet.runtime.model.attention_plan import Rows, build_plan
from ramet.runtime.model.fused import FusedModel
from ramet.runtime.model.kv_pool import KVPool
from ramet.runtime.model.llama import LlamaModel
from ramet.runtime.model.spec import ModelSpec


class LayeredModel:
    """Weights and KV memory of a model whose layers are computed one after the other."""

    def __init__(
        self,
        spec: ModelSpec,
        weights: Mapping[str, torch.Tensor],
        num_slots: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._device = device
        with torch.inference_mode():
            placed = {name: tensor.to(device, dtype) for name, tensor in weights.items()}
            self._model = LlamaModel(spec, placed)
            self.pool = KVPool(spec, num_slots, dtype, device)

    def forward(self, batch: Rows, gathered: list[tuple[int, int]] | None) -> None:
        """Compute the batch's rows."""
        with torch.inference_mode():
            rows = torch.tensor([batch.token_ids, batch.positions, batch.slots], dtype=torch.int64)
            token_ids, positions, slots = rows.to(self._device)
            plan = build_plan(batch, gathered)
            self._model.forward(token_ids, positions, slots, plan, self.pool)

    def logits(self, slots: Sequence[int], masks: Sequence[bytes] | None = None) -> torch.Tensor:
        """Logits `[len(slots), vocab]` of the tokens computed at `slots`, whatever `masks` say."""
        # Not inference mode: a tensor made there can't be changed in place outside it.
        with torch.no_grad():
            index = torch.tensor(list(slots), dtype=torch.int64).to(self._device)
            return self._model.logits(ops.take_rows(self.pool.hidden, index))

    def likeliest(self, slots: Sequence[int]) -> tuple[list[int], list[float]]:
        """As `ModelRunner.likeliest`."""
        return ops.greedy(self.logits(slots), range(len(slots)))


class ModelRunner:
    """Weights and KV memory of one model on one device.

    `weights` are by Hugging Face names, in any dtype and on any device; `num_slots` is the size of
    the pool, scratch page included. With `dtype` int8 the whole step is one kernel (`FusedModel`).
    Raises InvalidArgument naming a tensor that doesn't fit.
    """

    def __init__(
        self,
        spec: ModelSpec,
        weights: Mapping[str, torch.Tensor],
        *,
        num_slots: int,
        dtype: torch.dtype,
        device: str | torch.device,
    ) -> None:
        if num_slots < 1:
            raise InvalidArgument(f"num_slots={num_slots}: must be at least 1")
        self.vocab_size = spec.vocab_size
        """Number of logits per row."""
        self.max_context = spec.max_context
        """Longest path in tokens."""
        self.gathered: list[tuple[int, int]] | None = None
        """For tests: a list here collects each layer's reads of the pool, (slot_start, length)."""
        self._model: FusedModel | LayeredModel
        if dtype == torch.int8:
            self._model = FusedModel(spec, weights, num_slots)
        else:
            self._model = LayeredModel(spec, weights, num_slots, dtype, torch.device(device))

    @staticmethod
    def bytes_per_token(spec: ModelSpec, dtype: torch.dtype) -> int:
        """Bytes of KV memory that one token takes; with int8 weights K and V are bfloat16."""
        if dtype == torch.int8:
            return KVPool.bytes_per_token(spec, torch.bfloat16) + 2 * spec.hidden_size
        return KVPool.bytes_per_token(spec, dtype)

    def forward(self, batch: Rows) -> None:
        """Compute the batch's rows; afterwards their slots hold K/V and what logits are
        computed from.

        The slots are distinct, and the items cover every row, as `AttentionPlan` says. A batch
        without rows does nothing.
        """
        if batch.token_ids:
            self._model.forward(batch, self.gathered)

    def logits(self, slots: Sequence[int], masks: Sequence[bytes] | None = None) -> torch.Tensor:
        """Logits `[len(slots), vocab]` of the tokens computed at `slots`, on the runner's device.

        float32, or float64 for a float64 model. Nothing but the head is computed, with int8 the
        last MLP before it, too. The result is
        the caller's to change until the next call, which may write to the same memory. The logits
        of tokens that none of `masks` has (as `SampleRow.mask`) may be given as minus infinity.
        """
        return self._model.logits(slots, masks)

    def likeliest(self, slots: Sequence[int]) -> tuple[list[int], list[float]]:
        """The likeliest token, the lowest id among ties, and the largest logit of each of the
        tokens computed at `slots`; NaN is largest."""
        return self._model.likeliest(slots)
