"""The numbers of the fused decoder in plain torch: int8 weights, bfloat16 where it rounds."""

from __future__ import annotations

import contextlib

import torch

from ramet.kernels import ops, reference
from ramet.kernels.cpu.fused.lanes import VNNI
from ramet.runtime.model.runner import ModelRunner


def rounded(x: torch.Tensor) -> torch.Tensor:
    """float32 that bfloat16 can hold."""
    return x.bfloat16().float()


def near(got: torch.Tensor, wanted: torch.Tensor) -> None:
    """Sums in another order may round another way: rarely, and by one unit of bfloat16. Where rows
    are bytes, one such unit rounds some of a block's bytes another way, and so on."""
    assert torch.isfinite(got).all()
    difference = (got - wanted).abs()
    mean, largest = (0.04, 0.5) if VNNI else (0.002, 0.05)
    assert difference.mean() < mean * wanted.std()
    assert difference.max() < largest * wanted.std()


class QuantisedRunner(ModelRunner):
    """A float32 runner whose operators round what the fused decoder rounds."""

    def __init__(self, spec, weights, num_slots, monkeypatch):
        whole = {name: tensor.float() for name, tensor in weights.items()}
        super().__init__(spec, whole, num_slots=num_slots, dtype=torch.float32, device="cpu")
        # A test's items may hold slots that are computed later: nobody sees them, but a weight of
        # zero times whatever memory held before is not always zero.
        with torch.inference_mode():
            for tensor in (*self._model.pool.k, *self._model.pool.v):
                tensor.zero_()
        self._patch = monkeypatch
        self._quantised = {}

    def forward(self, batch):
        with self._rounding():
            super().forward(batch)

    def logits(self, slots):
        with self._rounding():
            return super().logits(slots)

    @contextlib.contextmanager
    def _rounding(self):
        with self._patch.context() as patch:
            patch.setattr(ops, "embed", self._embed)
            patch.setattr(ops, "linear", self._linear)
            patch.setattr(ops, "gated_mlp", self._gated_mlp)
            patch.setattr(ops, "head_logits", self._linear)
            patch.setattr(ops, "rope_write", _rope_write)
            patch.setattr(ops, "tree_attention", _tree_attention)
            yield

    def _of(self, weight):
        """A weight's integers and scales."""
        place = weight.data_ptr()
        if place not in self._quantised:
            # The weight, too: its memory stays its own.
            self._quantised[place] = *reference.quantise(weight), weight
        return self._quantised[place][:2]

    def _embed(self, token_ids, table):
        values, scales = self._of(table)
        turned = values[token_ids].float() * scales[token_ids].unsqueeze(1)
        return reference.hadamard(turned)[:, : table.shape[1]]

    def _linear(self, x, weight, bias=None):
        turned = reference.quantise_inputs(x) if VNNI else reference.hadamard(x)
        product = reference.quantised_linear(turned, *self._of(weight))
        return product if bias is None else product + bias

    def _gated_mlp(self, x, gate_up, down):
        gate, up = self._linear(x, gate_up).chunk(2, dim=-1)
        return self._linear(torch.nn.functional.silu(gate) * up, down)


def _rope_write(q, k, v, cos, sin, k_pool, v_pool, slots):
    reference.write_kv(k_pool, v_pool, rounded(reference.rope(k, cos, sin)), rounded(v), slots)
    return reference.rope(q, cos, sin)


def _tree_attention(q, k_pool, v_pool, plan, scale, window=None):
    return reference.tree_attention(rounded(q), k_pool, v_pool, plan, scale, window)
