"""Cost models: seconds of a step from what its batch asks of the machine.

`FittedCost` is linear in a step's work, fitted from measured steps. `RooflineCost` bounds a step
by a machine's memory and its matrix products (Williams et al. 2009), for hardware that isn't at
hand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from operator import mul, sub
from typing import Protocol

from ramet.runtime.schedule.batch import Batch

FEW_ROWS = 8
"""Up to about so many rows a CPU reads weights row by row; above, it multiplies matrices."""
TERMS = ("step", "few_rows", "rows", "samples", "items", "keys", "pairs")
"""What a fitted model prices: the fields of `Work`, with the first few rows apart."""


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """What one step asks for."""

    rows: int
    """Tokens to run the model on."""
    samples: int
    """Sequences to sample a token for."""
    items: int
    """Segments of keys in the attention plan."""
    keys: int
    """Key positions to read, shared ones once."""
    pairs: int
    """(row, key) pairs of attention."""

    @classmethod
    def of(cls, batch: Batch) -> Work:
        """Of a planned step."""
        items = batch.items
        keys = sum(items.length)
        pairs = sum(map(mul, items.length, map(sub, items.row_end, items.row_start)))
        return cls(len(batch.token_ids), len(batch.ready), len(items.length), keys, pairs)

    def terms(self) -> tuple[float, ...]:
        """In the order of `TERMS`."""
        few = min(self.rows, FEW_ROWS)
        return (1.0, few, self.rows, self.samples, self.items, self.keys, self.pairs)


class CostModel(Protocol):
    """Prices steps."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    def seconds(self, work: Work) -> float:
        """How long a step with that work takes."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class FittedCost:
    """Seconds as a sum over `TERMS`."""

    name: str
    prices: tuple[float, ...]
    """Seconds per unit of each term."""

    def seconds(self, work: Work) -> float:
        """The sum of the terms."""
        return sum(p * t for p, t in zip(self.prices, work.terms(), strict=True))


@dataclasses.dataclass(frozen=True, slots=True)
class RooflineCost:
    """The larger of reading and multiplying, for the weights, and again for attention."""

    name: str
    weight_bytes: float
    """Read in each step."""
    kv_bytes: float
    """Of one token."""
    row_flops: float
    """Of one token through the weights."""
    pair_flops: float
    """Of one (row, key) pair, all layers and heads."""
    bytes_per_second: float
    """Memory's, times the share of it that kernels reach."""
    flops_per_second: float
    step_seconds: float
    """What a step costs whatever is in it: launches, sampling, planning."""

    def seconds(self, work: Work) -> float:
        """Weights, then attention, then the fixed part."""
        read, speed = self.bytes_per_second, self.flops_per_second
        weights = max(self.weight_bytes / read, work.rows * self.row_flops / speed)
        attention = max(work.keys * self.kv_bytes / read, work.pairs * self.pair_flops / speed)
        return weights + attention + self.step_seconds


def fit(name: str, samples: Sequence[tuple[Work, float]]) -> FittedCost:
    """Least squares of the relative error over (work, seconds), with no negative price.

    Raises ValueError for fewer samples than terms.
    """
    import numpy as np

    if len(samples) < len(TERMS):
        raise ValueError(f"{len(samples)} samples: a fit of {len(TERMS)} terms needs as many")
    matrix = np.array([[t / seconds for t in work.terms()] for work, seconds in samples])
    target = np.ones(len(samples))
    scale = np.abs(matrix).max(axis=0)
    scale[scale == 0] = 1.0
    matrix = matrix / scale
    used = list(range(len(TERMS)))
    prices = np.zeros(len(TERMS))
    while used:  # Drop the most negative price and fit again; few terms, so this ends well.
        found = np.linalg.lstsq(matrix[:, used], target, rcond=None)[0]
        if found.min() >= 0:
            prices[used] = found
            break
        del used[int(found.argmin())]
    return FittedCost(name, tuple(float(p) for p in prices / scale))


def _llama_8b(name: str, memory: float, flops: float) -> RooflineCost:
    """Llama 3.1 8B in bf16: 8.03e9 weights, 32 layers, 32 heads and 8 KV heads of 128."""
    return RooflineCost(
        name,
        weight_bytes=2 * 8.03e9,
        kv_bytes=2 * 32 * 8 * 128 * 2,
        row_flops=2 * 7.5e9,
        pair_flops=4 * 32 * 32 * 128,
        bytes_per_second=0.80 * memory,
        flops_per_second=0.60 * flops,
        step_seconds=1e-3,
    )


PRESETS: dict[str, CostModel] = {
    cost.name: cost
    for cost in (
        _llama_8b("llama-8b-h100", 3.35e12, 989e12),
        _llama_8b("llama-8b-a100", 2.04e12, 312e12),
        FittedCost("smollm2-135m-cpu", (6.68e-2, 1.22e-2, 4.39e-3, 1.71e-2, 0.0, 4.84e-5, 3.86e-8)),
        FittedCost("uniform", (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)),
    )
}
"""By name: a GPU's data sheet at 80 % of its memory's and 60 % of its matrix products' rate; the
built-in model in float32, plain torch, on two busy cores with AVX-512, as `simulate check` fitted
it; or steps that all take one second."""
