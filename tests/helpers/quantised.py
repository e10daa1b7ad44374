"""The numbers of the fused decoder in plain torch: int8 weights, bfloat16 where it rounds."""

from __future__ import annotations

import torch

from ramet.kernels import ops, reference
from ramet.runtime.model.runner import ModelRunner


def rounded(x: torch.Tensor) -> torch.Tensor:
    """float32 that bfloat16 can hold."""
    return x.bfloat16().float()


def near(got: torch.Tensor, wanted: torch.Tensor) -> None:
    """Sums in another order may round another way: rarely, and by one unit of bfloat16."""
    assert torch.isfinite(got).all()
    difference = (got - wanted).abs()
    assert difference.mean() < 0.01 * wanted.std()
    assert difference.max() < 0.15 * wanted.std()


def dequantised(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same weights, each matrix as its int8 values times their scales."""
    found = {}
    for name, tensor in weights.items():
        found[name] = tensor.float()
        if tensor.dim() == 2:
            values, scales = reference.quantise(tensor)
            found[name] = values.float() * scales.unsqueeze(1)
    return found


class QuantisedRunner(ModelRunner):
    """A float32 runner whose operators round what the fused decoder rounds."""

    def __init__(self, spec, weights, num_slots, monkeypatch):
        super().__init__(
            spec, dequantised(weights), num_slots=num_slots, dtype=torch.float32, device="cpu"
        )
        # A test's items may hold slots that are computed later: nobody sees them, but a weight of
        # zero times whatever memory held before is not always zero.
        with torch.inference_mode():
            for tensor in (*self._model.pool.k, *self._model.pool.v):
                tensor.zero_()
        self._patch = monkeypatch

    def forward(self, batch):
        with self._patch.context() as patch:
            patch.setattr(ops, "write_kv", _write_kv)
            patch.setattr(ops, "tree_attention", _tree_attention)
            super().forward(batch)


def _write_kv(k_pool, v_pool, k, v, slots):
    reference.write_kv(k_pool, v_pool, rounded(k), rounded(v), slots)


def _tree_attention(q, k_pool, v_pool, plan, scale, window=None):
    return reference.tree_attention(rounded(q), k_pool, v_pool, plan, scale, window)
