"""Draws from distributions over the vocabulary, as `reference.draw` says, without a look at any
result from the host: a CUDA graph may hold it, and its tokens may feed the next step.

Shapes: `logits` `[rows, vocab]` of float32, bfloat16 or float16, rows of which may lie apart, the
rest as in `Draws`. Up to five launches, whatever is asked; what each row needs is seen on the
device. Rows are cut into blocks of `BLOCK` tokens. `ban` turns bans into bits of a copy of the
masks. `scan`, a program for each block of each distribution, finds the likeliest tokens; a greedy
row takes nothing more. `weigh`, cut likewise, adds up the blocks' weights. `rank`, one program for
each distribution, finds the borders of top-k and top-p and adds up what is left (`draw_rank` says
how); a few such rows leave most of a large device idle. `pick`, one program for each uniform, adds
up the blocks, then the tokens of the one block in which the sum exceeds the uniform's share.

Numerics: weights and their sums are float64, as in the reference: float32 weights would move the
border of a mass by 1e-7 of it. Logits are compared as float32, which is exact. What is added in
another order differs by some 1e-13 of the whole, as on the CPU. No block is added to another by
atomics, and programs are compiled alike with bans and masks and without: a distribution's tokens
are the same to the bit, whatever else is asked.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from ramet.kernels.draws import Draws
from ramet.kernels.gpu.configs import DTYPES, Variant
from ramet.kernels.gpu.draw_rank import (
    VARY,
    is_drawn,
    largest_of,
    likeliest,
    rank_kernel,
    values,
    weights,
)

BLOCK = 4096
BLOCKS = 128
"""The most blocks of a row: a power of two."""
BANS = 128
"""Bans of one program."""


@triton.jit
def ban_kernel(logits, rows, bans, masks, size, stride, words, BANS: tl.constexpr):
    """One program: `BANS` bans, taken from `masks` `[n, words + 1]`; a line's last word becomes the
    first banned token whose logit is infinity: plus minus infinity, that is a NaN."""
    number = tl.program_id(0) * BANS + tl.arange(0, BANS)
    inside = number < size
    line = tl.load(bans + 2 * number, mask=inside, other=0)
    token = tl.load(bans + 2 * number + 1, mask=inside, other=0)
    bit = tl.full([BANS], 1, tl.int32) << (token % 32).to(tl.int32)
    mask = masks + line * (words + 1)
    tl.atomic_and(mask + token // 32, ~bit, mask=inside)
    row = tl.load(rows + line, mask=inside, other=0)
    value = tl.load(logits + row * stride + token, mask=inside, other=0).to(tl.float32)
    tl.atomic_min(mask + words, token.to(tl.int32), mask=inside & (value == float("inf")))


@triton.jit(do_not_specialize=VARY, do_not_specialize_on_alignment=("masks",))
def scan_kernel(
    logits,
    rows,
    masks,
    best,
    tokens,
    stride,
    mask_stride,
    vocab,
    words,
    masked,
    BLOCK: tl.constexpr,
):
    """One program: the likeliest token of one block of a distribution."""
    line = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    bits = masks + line * mask_stride
    x = logits + tl.load(rows + line) * stride
    token, value = values(x, bits, masked, vocab, block, BLOCK)
    lost = tl.load(bits + words, mask=masked == 2, other=-1)
    largest, first = largest_of(tl.where(token == lost, float("nan"), value), token, 2147483647)
    place = line * tl.num_programs(1) + block
    tl.store(best + place, largest)
    tl.store(tokens + place, first)


@triton.jit(do_not_specialize=VARY, do_not_specialize_on_alignment=("masks",))
def weigh_kernel(
    logits,
    rows,
    masks,
    asked,
    best,
    tokens,
    sums,
    stride,
    mask_stride,
    vocab,
    masked,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """One program: the weight of one block, without what min-p cuts, if nothing comes before it."""
    line = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    blocks = tl.num_programs(1)
    asked += line * 4
    largest = likeliest(best + line * blocks, tokens + line * blocks, blocks, BLOCKS)[0]
    top_k = tl.load(asked + 1)
    if is_drawn(asked, largest) & ((top_k <= 0) | (top_k >= vocab)):
        x = logits + tl.load(rows + line) * stride
        value = values(x, masks + line * mask_stride, masked, vocab, block, BLOCK)[1]
        weight = weights(value, largest, asked)
        cut = tl.where(tl.load(asked + 2) < 1, 0.0, tl.load(asked + 3))
        weight = tl.where(weight < cut, 0.0, weight)
        tl.store(sums + line * blocks + block, tl.sum(weight, axis=0))


@triton.jit
def _first_above(weight, at, before, goal):
    """Where the sum of `before` and the weights up to there first exceeds `goal`, at a weight above
    0; at the last such weight, if rounding keeps the sum from it, and -1 if there is none."""
    is_some = weight > 0
    last = tl.max(tl.where(is_some, at, -1), axis=0)
    exceeds = is_some & (before + tl.cumsum(weight, axis=0) > goal)
    return tl.min(tl.where(exceeds, at, last), axis=0)


@triton.jit(do_not_specialize=VARY, do_not_specialize_on_alignment=("masks",))
def pick_kernel(
    logits,
    rows,
    masks,
    asked,
    uniforms,
    best,
    tokens,
    sums,
    leasts,
    lasts,
    drawn,
    stride,
    mask_stride,
    vocab,
    blocks,
    masked,
    each,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """One program: one token of a distribution, which has `each` of them."""
    place = tl.program_id(0).to(tl.int64)
    line = place // each
    asked += line * 4
    largest, token = likeliest(best + line * blocks, tokens + line * blocks, blocks, BLOCKS)
    if is_drawn(asked, largest):
        at = tl.arange(0, BLOCKS)
        part = tl.load(sums + line * blocks + at, mask=at < blocks, other=0.0)
        goal = tl.load(uniforms + place) * tl.sum(part, axis=0)
        block = tl.maximum(_first_above(part, at, 0.0, goal), 0)
        before = tl.sum(tl.where(at < block, part, 0.0), axis=0)
        x = logits + tl.load(rows + line) * stride
        ids, value = values(x, masks + line * mask_stride, masked, vocab, block, BLOCK)
        least, last = tl.load(leasts + line), tl.load(lasts + line)
        weight = weights(value, largest, asked)
        weight = tl.where((value > least) | ((value == least) & (ids <= last)), weight, 0.0)
        weight = tl.where(weight < tl.load(asked + 3), 0.0, weight)
        found = _first_above(weight, ids, before, goal)
        token = tl.where(found >= 0, found, token)
    tl.store(drawn + place, token.to(tl.int64))


def _check(logits: torch.Tensor, draws: Draws) -> None:
    """Raise ValueError unless the tensors are what `draw` takes; contents aren't looked at."""
    good = logits.dim() == 2 and logits.dtype in DTYPES and logits.stride(1) == 1
    if not good or not 0 < logits.shape[1] <= BLOCKS * BLOCK:
        raise ValueError(
            f"draw: logits {logits.dtype} {list(logits.shape)} with strides {logits.stride()}, not "
            f"float32, bfloat16 or float16 [rows, 1 to {BLOCKS * BLOCK}] with strides (any, 1)"
        )
    n, uniforms = draws.rows.numel(), draws.uniforms
    fields = {
        "rows": (draws.rows, torch.int64, [n]),
        "asked": (draws.asked, torch.float64, [n, 4]),
        "uniforms": (uniforms, torch.float64, [n, uniforms.shape[1] if uniforms.dim() == 2 else 1]),
        "bans": (draws.bans, torch.int64, [len(draws.bans) if draws.bans.dim() else 0, 2]),
    }
    if draws.masks is not None:
        fields["masks"] = draws.masks, torch.int32, [n, (logits.shape[1] + 31) // 32]
    for name, (tensor, dtype, shape) in fields.items():
        if (tensor.dtype, list(tensor.shape), tensor.device) != (dtype, shape, logits.device):
            raise ValueError(
                f"draw: {name} {tensor.dtype} {list(tensor.shape)} on {tensor.device}, not {dtype} "
                f"{shape} on {logits.device}, for logits {list(logits.shape)}"
            )


def _allowed(logits: torch.Tensor, rows: torch.Tensor, draws: Draws) -> torch.Tensor | None:
    """The masks, as int32 `[n, words]`; with bans, a copy `[n, words + 1]` as of `ban_kernel`."""
    masks, bans, words = draws.masks, draws.bans, (logits.shape[1] + 31) // 32
    if len(bans) == 0:
        return masks if masks is None or masks.stride(1) == 1 else masks.contiguous()
    copy = torch.full((len(rows), words + 1), -1, dtype=torch.int32, device=logits.device)
    copy[:, words] = 2**31 - 1
    if masks is not None:
        copy[:, :words] = masks
    ban_kernel[triton.cdiv(len(bans), BANS),](
        logits, rows, bans.contiguous(), copy, len(bans), logits.stride(0), words, BANS=BANS,
        num_warps=4,
    )  # fmt: skip
    return copy


def draw(logits: torch.Tensor, draws: Draws) -> tuple[torch.Tensor, torch.Tensor]:
    """As the reference, for up to `BLOCKS * BLOCK` tokens; it never waits for the device.

    So the contents of `rows` and `bans` can't be checked: they must name rows, distributions and
    tokens that there are.
    """
    _check(logits, draws)
    n, each = draws.uniforms.shape
    vocab, device, stride = logits.shape[1], logits.device, logits.stride(0)
    drawn = torch.empty((n, each), dtype=torch.int64, device=device)
    maxima = torch.empty(n, dtype=logits.dtype, device=device)
    if n == 0:
        return drawn, maxima
    blocks, words = triton.cdiv(vocab, BLOCK), (vocab + 31) // 32
    rows, asked = draws.rows.contiguous(), draws.asked.contiguous()
    best = torch.empty((n, blocks), dtype=torch.float32, device=device)
    tokens = torch.empty((n, blocks), dtype=torch.int32, device=device)
    sums = torch.empty((n, blocks), dtype=torch.float64, device=device)
    leasts, lasts = best.new_empty(n), tokens.new_empty(n)
    masks, masked = _allowed(logits, rows, draws), 2 if len(draws.bans) else 1
    if masks is None:
        masks, masked = tokens, 0  # Never read.
    apart = masks.stride(0)
    scan_kernel[n, blocks](
        logits, rows, masks, best, tokens, stride, apart, vocab, words, masked,
        BLOCK=BLOCK, num_warps=8,
    )  # fmt: skip
    weigh_kernel[n, blocks](
        logits, rows, masks, asked, best, tokens, sums, stride, apart, vocab, masked,
        BLOCK=BLOCK, BLOCKS=BLOCKS, num_warps=8,
    )  # fmt: skip
    rank_kernel[n,](
        logits, rows, masks, asked, best, tokens, sums, maxima, leasts, lasts, stride, apart, vocab,
        blocks, masked, BLOCK=BLOCK, BLOCKS=BLOCKS, num_warps=16,
    )  # fmt: skip
    if each:
        pick_kernel[n * each,](
            logits, rows, masks, asked, draws.uniforms.contiguous(), best, tokens, sums, leasts,
            lasts, drawn, stride, apart, vocab, blocks, masked, each,
            BLOCK=BLOCK, BLOCKS=BLOCKS, num_warps=8,
        )  # fmt: skip
    return drawn, maxima


_POINTERS = {
    "rows": "*i64",
    "bans": "*i64",
    "masks": "*i32",
    "asked": "*fp64",
    "uniforms": "*fp64",
    "best": "*fp32",
    "tokens": "*i32",
    "sums": "*fp64",
    "leasts": "*fp32",
    "lasts": "*i32",
    "drawn": "*i64",
}
"""Besides these and `logits` and `maxima`, arguments are int32 numbers."""


def variants(arch: str) -> Iterator[Variant]:
    """What this file launches; the same on every `arch`."""
    for name in DTYPES.values():
        pointers = {**_POINTERS, "logits": f"*{name}", "maxima": f"*{name}"}
        for kernel, num_warps in (
            (ban_kernel, 4),
            (scan_kernel, 8),
            (weigh_kernel, 8),
            (rank_kernel, 16),
            (pick_kernel, 8),
        ):
            sizes = {"BLOCK": BLOCK, "BLOCKS": BLOCKS, "BANS": BANS}
            constants = {size: sizes[size] for size in sizes if size in kernel.arg_names}
            arguments = [argument for argument in kernel.arg_names if argument not in sizes]
            aligned = [one for one in pointers if one != "masks" or kernel is ban_kernel]
            yield Variant(
                f"draw_{kernel.__name__.removesuffix('_kernel')} {name} {arch}",
                kernel,
                {argument: pointers.get(argument, "i32") for argument in arguments},
                constants,
                num_warps,
                1,
                ("stride", "vocab", *aligned),
            )
