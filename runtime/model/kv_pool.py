"""The KV memory: for each slot of the page pool, one token's keys, values and final hidden row.

Which slot belongs to whom is the page ledger's business; this file only holds the tensors.
"""

from __future__ import annotations

import torch

from ramet.runtime.model.spec import ModelSpec


class KVPool:
    """Preallocated tensors for `num_slots` tokens, uninitialised: pages nobody used cost nothing.

    `hidden` keeps what the output head reads, so the logits of any computed token are one matrix
    product away, however long ago it was computed.
    """

    def __init__(
        self, spec: ModelSpec, num_slots: int, dtype: torch.dtype, device: str | torch.device
    ) -> None:
        shape = (spec.num_layers, num_slots, spec.num_kv_heads, spec.head_dim)
        self.k = torch.empty(shape, dtype=dtype, device=device).unbind(0)
        """Per layer: keys after the rotary embedding, `[slots, kv_heads, head_dim]`."""
        self.v = torch.empty(shape, dtype=dtype, device=device).unbind(0)
        """Per layer: values, `[slots, kv_heads, head_dim]`."""
        self.hidden = torch.empty((num_slots, spec.hidden_size), dtype=dtype, device=device)
        """The rows after the final norm, `[slots, hidden]`."""

    @staticmethod
    def bytes_per_token(spec: ModelSpec, dtype: torch.dtype) -> int:
        """Bytes that one slot takes over all tensors."""
        numbers = 2 * spec.num_layers * spec.num_kv_heads * spec.head_dim + spec.hidden_size
        return numbers * dtype.itemsize
