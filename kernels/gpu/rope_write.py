"""Rotary embedding of q and k, and the write of K and V to the pool, in one pass over a row.

`first' = first * cos - second * sin`, `second' = second * cos + first * sin` for the halves of each
head (Su et al. 2021, Llama's layout); `k_pool[slots[r]] = k'[r]`, `v_pool[slots[r]] = v[r]`.
Shapes: `q` `[rows, heads, dim]`, `k` and `v` `[rows, kv_heads, dim]`, which may be slices of one
wider matrix; `cos` and `sin` `[rows, dim]`, whose halves are alike; pools `[slots, kv_heads, dim]`;
`slots` int64 `[rows]`, distinct. float32 inside, rounded once to the dtype of `q`, which is the
pools'; V is copied.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from ramet.kernels.gpu.configs import DTYPES, Variant, check, power_of_two

HEADS = 8
"""Heads of one program."""


@triton.jit
def _rotate(source, target, cos, sin, column, inside, HALF: tl.constexpr):
    """Rotate heads: `source` and `target` point at their first elements, `[heads, 1]`."""
    first = tl.load(source + column, mask=inside, other=0).to(tl.float32)
    second = tl.load(source + HALF + column, mask=inside, other=0).to(tl.float32)
    kind = target.dtype.element_ty
    tl.store(target + column, (first * cos - second * sin).to(kind), mask=inside)
    tl.store(target + HALF + column, (second * cos + first * sin).to(kind), mask=inside)


@triton.jit
def rope_write_kernel(
    q,
    k,
    v,
    cos,
    sin,
    slots,
    q_out,
    k_pool,
    v_pool,
    q_row,
    q_head,
    k_row,
    k_head,
    v_row,
    v_head,
    angle_row,
    k_slot,
    v_slot,
    Q_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK: tl.constexpr,
    HEADS: tl.constexpr,
):
    """One program: `HEADS` heads of one row, of q or of k and v."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    column = tl.arange(0, BLOCK)
    angle = row * angle_row + column
    wave = column < HALF
    c = tl.load(cos + angle, mask=wave, other=0).to(tl.float32)[None, :]
    s = tl.load(sin + angle, mask=wave, other=0).to(tl.float32)[None, :]
    column = column[None, :]
    if block * HEADS < Q_HEADS:
        head = (block * HEADS + tl.arange(0, HEADS))[:, None]
        inside = (head < Q_HEADS) & wave[None, :]
        target = q_out + (row * Q_HEADS + head) * (2 * HALF)
        _rotate(q + row * q_row + head * q_head, target, c, s, column, inside, HALF)
    else:
        head = ((block - (Q_HEADS + HEADS - 1) // HEADS) * HEADS + tl.arange(0, HEADS))[:, None]
        inside = (head < KV_HEADS) & wave[None, :]
        slot = tl.load(slots + row)
        target = k_pool + slot * k_slot + head * (2 * HALF)
        _rotate(k + row * k_row + head * k_head, target, c, s, column, inside, HALF)
        source = v + row * v_row + head * v_head + column
        copy = v_pool + slot * v_slot + head * (2 * HALF) + column
        tl.store(copy, tl.load(source, mask=inside), mask=inside)
        tl.store(copy + HALF, tl.load(source + HALF, mask=inside), mask=inside)


def rope_write(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    slots: torch.Tensor,
) -> torch.Tensor:
    """`reference.rope(q, cos, sin)`, after `reference.write_kv` of the rotated `k` and of `v`."""
    rows, heads, dim = q.shape
    kv_heads = k.shape[1]
    good = q.dtype in DTYPES and all(t.dtype == q.dtype for t in (k, v, k_pool, v_pool))
    good = good and k.shape == v.shape == (rows, kv_heads, dim) and dim % 2 == 0
    good = good and all(p.shape[1:] == (kv_heads, dim) for p in (k_pool, v_pool))
    good = good and all(p[0].is_contiguous() for p in (k_pool, v_pool) if len(p))
    good = good and all(t.stride(2) == 1 for t in (q, k, v)) and cos.dtype == sin.dtype
    good = good and cos.shape == sin.shape == (rows, dim) and cos.stride() == sin.stride()
    good = good and cos.stride(1) == 1 and cos.dtype in DTYPES
    good = good and slots.shape == (rows,) and slots.dtype == torch.int64 and slots.is_contiguous()
    tensors = {"q": q, "k": k, "v": v, "cos": cos, "sin": sin, "slots": slots}
    check("rope_write", good, **tensors, k_pool=k_pool, v_pool=v_pool)
    out = torch.empty((rows, heads, dim), dtype=q.dtype, device=q.device)
    if rows:
        blocks = triton.cdiv(heads, HEADS) + triton.cdiv(kv_heads, HEADS)
        rope_write_kernel[rows, blocks](
            q,
            k,
            v,
            cos,
            sin,
            slots,
            out,
            k_pool,
            v_pool,
            *q.stride()[:2],
            *k.stride()[:2],
            *v.stride()[:2],
            cos.stride(0),
            k_pool.stride(0),
            v_pool.stride(0),
            **_constants(heads, kv_heads, dim),
            num_warps=4,
        )
    return out


def _constants(heads: int, kv_heads: int, dim: int) -> dict[str, int]:
    """The kernel's constants for a model's shape."""
    half = dim // 2
    return {
        "Q_HEADS": heads,
        "KV_HEADS": kv_heads,
        "HALF": half,
        "BLOCK": power_of_two(half),
        "HEADS": HEADS,
    }


def variants(arch: str) -> Iterator[Variant]:
    """What this file launches, at the sizes of models; the same on every `arch`."""
    pointers = ("q", "k", "v", "cos", "sin", "q_out", "k_pool", "v_pool")
    strides = ("q_row", "q_head", "k_row", "k_head", "v_row", "v_head", "angle_row")
    for name in DTYPES.values():
        for heads, kv_heads, dim in ((9, 3, 64), (32, 32, 80), (32, 32, 96), (32, 8, 128)):
            yield Variant(
                f"rope_write {name} {dim} {arch}",
                rope_write_kernel,
                {
                    **dict.fromkeys(pointers, f"*{name}"),
                    "slots": "*i64",
                    **dict.fromkeys((*strides, "k_slot", "v_slot"), "i32"),
                },
                _constants(heads, kv_heads, dim),
                4,
                1,
                (*pointers, "slots", *strides, "k_slot", "v_slot"),
            )
