"""The likeliest tokens of rows of logits: `argmax`, the lowest id among ties.

Shapes: `logits` `[n, vocab]` of float32, bfloat16 or float16; some of its rows, any of which may be
named twice; masks as for `bitmask`. The kernel finds the largest logit and its lowest id in each
block of a row, torch the first block that has the row's. Nothing is rounded: what it returns are
logits. A NaN in a block makes the block's largest a NaN, whatever the mask says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import triton
import triton.language as tl

from ramet.kernels.gpu.configs import DTYPES, Variant, check

BLOCK = 4096


@triton.jit
def likeliest_kernel(
    logits,
    rows,
    masks,
    best,
    tokens,
    stride,
    vocab,
    words,
    BLOCK: tl.constexpr,
    MASKED: tl.constexpr,
):
    """One program: `BLOCK` tokens of one of the rows."""
    line = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    token = block * BLOCK + tl.arange(0, BLOCK)
    inside = token < vocab
    at = logits + tl.load(rows + line) * stride + token
    value = tl.load(at, mask=inside, other=float("-inf")).to(tl.float32)
    broken = tl.max((value != value).to(tl.int32), axis=0) > 0
    if MASKED:
        word = tl.load(masks + line * words + token // 32, mask=inside, other=0)
        value = tl.where(((word >> (token % 32)) & 1) == 0, float("-inf"), value)
    value = tl.where(value != value, float("-inf"), value)
    largest = tl.max(value, axis=0)
    first = tl.min(tl.where(value == largest, token, vocab), axis=0)
    place = line * tl.num_programs(1) + block
    tl.store(best + place, tl.where(broken, float("nan"), largest))
    tl.store(tokens + place, first)


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
        raise ValueError(f"greedy: {len(masks)} masks for {len(rows)} rows of {vocab} tokens")
    picked = torch.tensor(rows, dtype=torch.long)
    if int(picked.min()) < 0 or int(picked.max()) >= len(logits):
        raise ValueError(f"greedy: rows {list(rows)} of {len(logits)}")
    picked = picked.to(device)
    bits = picked
    if masks:
        bits = torch.frombuffer(bytearray().join(masks), dtype=torch.int32).to(device)
    blocks = triton.cdiv(vocab, BLOCK)
    best = torch.empty((len(rows), blocks), dtype=torch.float32, device=device)
    tokens = torch.empty((len(rows), blocks), dtype=torch.int32, device=device)
    likeliest_kernel[len(rows), blocks](
        logits,
        picked,
        bits,
        best,
        tokens,
        logits.stride(0),
        vocab,
        words,
        BLOCK=BLOCK,
        MASKED=bool(masks),
        num_warps=8,
    )
    largest, block = best.max(1, keepdim=True)  # the first of equals
    found = torch.cat((tokens.gather(1, block).double(), largest.double()), 1).tolist()
    return [int(token) for token, _ in found], [value for _, value in found]


def variants(arch: str) -> Iterator[Variant]:
    """What this file launches; the same on every `arch`."""
    for name in DTYPES.values():
        for masked in (False, True):
            yield Variant(
                f"likeliest {name} {'masked ' if masked else ''}{arch}",
                likeliest_kernel,
                {
                    "logits": f"*{name}",
                    "rows": "*i64",
                    "masks": "*i32" if masked else "*i64",
                    "best": "*fp32",
                    "tokens": "*i32",
                    "stride": "i32",
                    "vocab": "i32",
                    "words": "i32",
                },
                {"BLOCK": BLOCK, "MASKED": masked},
                8,
                1,
                ("logits", "rows", "masks", "best", "tokens", "stride", "vocab"),
            )
