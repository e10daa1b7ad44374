"""Masks of the vocabulary on a CPU: eight tokens at a time, by a table of bounds.

Filling by a mask of booleans takes torch 2 ns an element; the lesser of a logit and a bound, 0.1.
"""

from __future__ import annotations

import functools

import numpy as np
import torch


def apply_bitmask(logits: torch.Tensor, bitmask: torch.Tensor) -> None:
    """As the reference, but that a logit that is NaN stays NaN."""
    rows, vocab = logits.shape
    if bitmask.dtype != torch.int32 or bitmask.shape != (rows, (vocab + 31) // 32):
        raise ValueError(
            f"bitmask: {bitmask.dtype} {list(bitmask.shape)} for logits {list(logits.shape)}"
        )
    octets = bitmask.contiguous().numpy().view(np.uint8)
    bounds = _table(logits.dtype).take(octets, axis=0).reshape(rows, -1)
    # Not torch's: it would wake its threads for a row.
    values = logits.numpy()
    np.minimum(values, bounds[:, :vocab], out=values)


@functools.lru_cache(maxsize=2)
def _table(dtype: torch.dtype) -> np.ndarray:
    """[256, 8]: for each octet, infinity where its bit is 1 and minus infinity where it is 0."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    kind = np.float64 if dtype == torch.float64 else np.float32
    return np.where(bits == 1, np.inf, -np.inf).astype(kind)
