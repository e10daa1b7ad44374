"""Masks of the vocabulary: `logits[r, t] = -inf` where bit `t % 32` of `mask[r, t // 32]` is 0.

Shapes: `logits` `[rows, vocab]` of float32, bfloat16 or float16, changed in place; `mask` int32
`[rows, ceil(vocab / 32)]`. A logit whose bit is 1 is neither read nor written, whatever it is, so
nothing is rounded. The packing is llguidance's and XGrammar's (Dong et al. 2024).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from ramet.kernels.gpu.configs import DTYPES, Variant, check

BLOCK = 1024


@triton.jit
def bitmask_kernel(logits, mask, logits_stride, mask_stride, vocab, BLOCK: tl.constexpr):
    """One program: `BLOCK` tokens of one row."""
    row = tl.program_id(0).to(tl.int64)
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = token < vocab
    word = tl.load(mask + row * mask_stride + token // 32, mask=inside, other=-1)
    hidden = ((word >> (token % 32)) & 1) == 0
    minus = tl.full([BLOCK], float("-inf"), dtype=tl.float32).to(logits.dtype.element_ty)
    tl.store(logits + row * logits_stride + token, minus, mask=inside & hidden)


def apply_bitmask(logits: torch.Tensor, bitmask: torch.Tensor) -> None:
    """As `reference.apply_bitmask`."""
    rows, vocab = logits.shape
    good = bitmask.dtype == torch.int32 and bitmask.shape == (rows, (vocab + 31) // 32)
    good = good and logits.dtype in DTYPES and logits.stride(1) == 1
    check("bitmask", good, bitmask=bitmask, logits=logits)
    if rows == 0 or vocab == 0:
        return
    mask = bitmask if bitmask.stride(1) == 1 else bitmask.contiguous()
    bitmask_kernel[rows, triton.cdiv(vocab, BLOCK)](
        logits, mask, logits.stride(0), mask.stride(0), vocab, BLOCK=BLOCK, num_warps=4
    )


def variants(arch: str) -> Iterator[Variant]:
    """What this file launches; the same on every `arch`."""
    for name in DTYPES.values():
        yield Variant(
            f"bitmask {name} {arch}",
            bitmask_kernel,
            {
                "logits": f"*{name}",
                "mask": "*i32",
                "logits_stride": "i32",
                "mask_stride": "i32",
                "vocab": "i32",
            },
            {"BLOCK": BLOCK},
            4,
            1,
            ("logits", "mask", "logits_stride"),
        )
