"""The likeliest tokens of rows of logits: `argmax`, the lowest id among ties.

Shapes: `logits` `[n, vocab]` of float32, bfloat16 or float16; some of its rows, any of which may be
named twice; masks as for `bitmask`. `draw`'s first kernel finds the largest logit and its lowest
id in each block of a row, torch the first block that has the row's. Nothing is rounded: what it
returns are logits. A NaN in a block makes the block's largest a NaN, whatever the mask says.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton

from ramet.kernels.gpu.configs import DTYPES, check
from ramet.kernels.gpu.draw import BLOCK, scan_kernel


def greedy(
    logits: torch.Tensor, rows: Sequence[int], masks: Sequence[bytes] = ()
) -> tuple[list[int], list[float]]:
    """As `reference.greedy`; it waits for the device, once for all rows."""
    good = logits.dim() == 2 and logits.dtype in DTYPES and logits.stride(1) == 1
    check("greedy", good and logits.shape[1] > 0, logits=logits)
    if not rows:
        return [], []
    vocab, device = logits.shape[1], logits.device
    words = (vocab + 31) // 32
    if masks and (len(masks) != len(rows) or any(len(mask) != 4 * words for mask in masks)):
        sizes = sorted({len(mask) for mask in masks})
        raise ValueError(
            f"greedy: {len(masks)} masks of {sizes} bytes: must be one of {4 * words} bytes for "
            f"each of {len(rows)} rows of {vocab} tokens, or none at all"
        )
    picked = torch.tensor(rows, dtype=torch.long)
    if int(picked.min()) < 0 or int(picked.max()) >= len(logits):
        raise ValueError(f"greedy: rows {list(rows)}: must be from 0 to {len(logits) - 1}")
    picked = picked.to(device)
    blocks = triton.cdiv(vocab, BLOCK)
    best = torch.empty((len(rows), blocks), dtype=torch.float32, device=device)
    tokens = torch.empty((len(rows), blocks), dtype=torch.int32, device=device)
    bits = tokens  # Never read without masks.
    if masks:
        bits = torch.frombuffer(bytearray().join(masks), dtype=torch.int32).to(device)
    scan_kernel[len(rows), blocks](
        logits, picked, bits, best, tokens, logits.stride(0), words, vocab, words, int(bool(masks)),
        BLOCK=BLOCK, num_warps=8,
    )  # fmt: skip
    largest, block = best.max(1, keepdim=True)  # the first of equals
    found = torch.cat((tokens.gather(1, block).double(), largest.double()), 1).tolist()
    return [int(token) for token, _ in found], [value for _, value in found]
