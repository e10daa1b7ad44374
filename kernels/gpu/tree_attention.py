"""Tree attention: softmax(scale * q k^T) v over the segments of a plan, in two kernels.

`attend_kernel` runs one unit of `attention_units` for one KV head: a tile of query lines, a row's
query heads of that KV head side by side, against segments of the pool. A block of keys is one
product on the tensor cores for all lines; a running maximum m, sum l and value a (online softmax,
Milakov and Gimelshein 2018, Dao et al. 2022) give for its lines a / l and m + log2(l).
`merge_kernel` weighs each row's partial results by 2 ** (that log-sum minus the largest): exact.

Shapes: `q` `[rows, heads, dim]`; pools `[slots, kv_heads, dim]`; `heads` a multiple of `kv_heads`;
the result `[rows, heads, dim]`. float32, bfloat16 or float16, all alike. Products of bfloat16 and
float16 accumulate in float32; the weights are rounded to the dtype before their product with v, and
the result once more; partial results are float32. Heads of 80 and 96 are filled up to 128 with
zeros that aren't read. Exponentials are of base 2, `log2(e)` being part of the scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from ramet.kernels.gpu.attention_tables import Capacity, PlanTables, Tables, pack, table_key
from ramet.kernels.gpu.attention_units import Units
from ramet.kernels.gpu.configs import (
    DTYPES,
    Tile,
    Variant,
    architecture,
    block_dim,
    check,
    tiles,
)
from ramet.kernels.plan import AttentionPlan

HEAD_DIMS = (64, 80, 96, 128, 256)
"""The head sizes that are tested; others up to 256 are filled up like these."""
PARTIALS = 16
"""Partial rows that a merge reads at once."""
_ENDLESS = 2**30
"""A window that no position outgrows."""


@triton.jit
def _fold(query, position, k, v, stand, there, scale, window, best, total, value):
    """One block of keys, `[keys, dim]`, folded into a tile's maxima, sums and values.

    `stand` are the keys' positions, `there` whether they are keys at all.
    """
    scores = tl.dot(query, tl.trans(k), input_precision="ieee") * scale
    visible = there[None, :] & (stand[None, :] <= position[:, None])
    visible = visible & (stand[None, :] > position[:, None] - window)
    scores = tl.where(visible, scores, float("-inf"))
    new = tl.maximum(best, tl.max(scores, axis=1))
    # A line that has seen no key yet has -inf, and -inf minus -inf is no number.
    base = tl.where(new == float("-inf"), 0.0, new)
    weights = tl.exp2(scores - base[:, None])
    shrink = tl.exp2(best - base)
    value = tl.dot(weights.to(v.dtype), v, acc=value * shrink[:, None], input_precision="ieee")
    return new, total * shrink + tl.sum(weights, axis=1), value


@triton.jit
def _walk(segments, first, last, query, position, k_pool, v_pool, k_slot, v_slot, scale, window,
          DIM: tl.constexpr, KEYS: tl.constexpr):  # fmt: skip
    """A tile's maxima, sums and values over its segments; pools point at the KV head."""
    LINES: tl.constexpr = query.shape[0]
    BLOCK_DIM: tl.constexpr = query.shape[1]
    dim = tl.arange(0, BLOCK_DIM)
    best = tl.full([LINES], float("-inf"), dtype=tl.float32)
    total = tl.zeros([LINES], dtype=tl.float32)
    value = tl.zeros([LINES, BLOCK_DIM], dtype=tl.float32)
    for number in range(first, last):
        slot = tl.load(segments + number * 3).to(tl.int64)
        length = tl.load(segments + number * 3 + 1)
        key_pos = tl.load(segments + number * 3 + 2)
        k_at, v_at = k_pool + slot * k_slot, v_pool + slot * v_slot
        for start in range(0, length, KEYS):
            key = start + tl.arange(0, KEYS)
            there = key < length
            read = there[:, None] & (dim < DIM)[None, :]
            far = key.to(tl.int64)[:, None]
            k = tl.load(k_at + far * k_slot + dim[None, :], mask=read, other=0)
            v = tl.load(v_at + far * v_slot + dim[None, :], mask=read, other=0)
            best, total, value = _fold(
                query, position, k, v, key_pos + key, there, scale, window, best, total, value
            )
    return best, total, value


@triton.jit
def attend_kernel(
    q,
    k_pool,
    v_pool,
    units,
    segments,
    row_pos,
    out,
    values,
    sums,
    q_row,
    q_head,
    k_slot,
    k_head,
    v_slot,
    v_head,
    scale,
    window,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    LINES: tl.constexpr,
    KEYS: tl.constexpr,
):
    """One program: one unit and one KV head. Units without rows end at once."""
    unit = units + tl.program_id(0) // KV_HEADS * 5
    kv_head = tl.program_id(0) % KV_HEADS
    first, rows = tl.load(unit), tl.load(unit + 1)
    if rows == 0:
        return
    line = tl.arange(0, LINES)
    row = first + line // GROUP
    head = kv_head * GROUP + line % GROUP
    live = line < rows * GROUP
    dim = tl.arange(0, BLOCK_DIM)
    drawn = live[:, None] & (dim < DIM)[None, :]
    at = row.to(tl.int64) * q_row + head * q_head
    query = tl.load(q + at[:, None] + dim[None, :], mask=drawn, other=0)
    position = tl.load(row_pos + row, mask=live, other=0)
    k_at, v_at = k_pool + kv_head * k_head, v_pool + kv_head * v_head
    best, total, value = _walk(
        segments, tl.load(unit + 2), tl.load(unit + 3), query, position, k_at, v_at, k_slot, v_slot,
        scale, window, DIM, KEYS,
    )  # fmt: skip
    empty = total == 0
    value = value / tl.where(empty, 1.0, total)[:, None]
    place = tl.load(unit + 4)
    if place < 0:
        target = (row.to(tl.int64) * (KV_HEADS * GROUP) + head) * DIM
        final = value.to(out.dtype.element_ty)
        tl.store(out + target[:, None] + dim[None, :], final, mask=drawn)
    else:
        partial = (place + line // GROUP).to(tl.int64) * (KV_HEADS * GROUP) + head
        log_sum = tl.where(empty, float("-inf"), best + tl.log2(tl.where(empty, 1.0, total)))
        tl.store(sums + partial, log_sum, mask=live)
        tl.store(values + (partial * DIM)[:, None] + dim[None, :], value, mask=drawn)


@triton.jit
def merge_kernel(
    values,
    sums,
    merge_start,
    merge_from,
    out,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    PARTIALS: tl.constexpr,
):
    """One program: one head of one row. A row without partial results has its result already."""
    row = tl.program_id(0) // HEADS
    head = tl.program_id(0) % HEADS
    first, last = tl.load(merge_start + row), tl.load(merge_start + row + 1)
    if first == last:
        return
    dim = tl.arange(0, BLOCK_DIM)
    inside = dim < DIM
    best = tl.full([1], float("-inf"), dtype=tl.float32)
    total = tl.zeros([1], dtype=tl.float32)
    value = tl.zeros([BLOCK_DIM], dtype=tl.float32)
    for start in range(first, last, PARTIALS):
        entry = start + tl.arange(0, PARTIALS)
        live = entry < last
        partial = tl.load(merge_from + entry, mask=live, other=0).to(tl.int64) * HEADS + head
        log_sum = tl.load(sums + partial, mask=live, other=float("-inf"))
        new = tl.maximum(best, tl.max(log_sum, axis=0))
        base = tl.where(new == float("-inf"), 0.0, new)
        weights = tl.exp2(log_sum - base)
        shrink = tl.exp2(best - base)
        source = values + (partial * DIM)[:, None] + dim[None, :]
        part = tl.load(source, mask=live[:, None] & inside[None, :], other=0)
        value = value * shrink + tl.sum(weights[:, None] * part, axis=0)
        total = total * shrink + tl.sum(weights, axis=0)
        best = new
    target = out + (row.to(tl.int64) * HEADS + head) * DIM + dim
    tl.store(target, (value / total).to(out.dtype.element_ty), mask=inside)


def tree_attention(
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    plan: AttentionPlan,
    scale: float,
    window: int | None = None,
) -> torch.Tensor:
    """As `reference.tree_attention`. Tables that the plan doesn't have yet (`PlanTables`) are made
    at the first layer of each window; the memory for partial results is kept there, too."""
    _check(q, k_pool, v_pool, plan, window)
    rows, heads, dim = q.shape
    if rows == 0:
        return torch.empty_like(q)
    kv_heads = k_pool.shape[1]
    out = torch.empty((rows, heads, dim), dtype=q.dtype, device=q.device)
    sizes = tiles(architecture(q.device), block_dim(dim), q.dtype)
    check("tree_attention, heads of a KV head", heads // kv_heads <= sizes[1].lines, q=q)
    units, tables = _tables(plan, q, kv_heads, window)
    if plan.gathered is not None and units is not None:
        plan.gathered.extend(units.read())
    values, sums = _partials(plan, tables.partials, heads, dim, q.device)
    work = ((tables.small, tables.small_segments), (tables.large, tables.large_segments))
    for tile, (table, segments) in zip(sizes, work, strict=True):
        if len(table):
            attend_kernel[(len(table) * kv_heads,)](
                q,
                k_pool,
                v_pool,
                table,
                segments,
                tables.row_pos,
                out,
                values,
                sums,
                *q.stride()[:2],
                *k_pool.stride()[:2],
                *v_pool.stride()[:2],
                scale * math.log2(math.e),
                _ENDLESS if window is None else min(window, _ENDLESS),
                **_constants(heads // kv_heads, kv_heads, dim, tile),
                num_warps=tile.num_warps,
                num_stages=tile.num_stages,
            )
    if tables.partials:
        merge_kernel[(rows * heads,)](
            values,
            sums,
            tables.merge_start,
            tables.merge_from,
            out,
            HEADS=heads,
            DIM=dim,
            BLOCK_DIM=block_dim(dim),
            PARTIALS=PARTIALS,
            num_warps=4,
        )
    return out


def _check(
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    plan: AttentionPlan,
    window: int | None,
) -> None:
    good = q.dim() == k_pool.dim() == 3 and q.dtype in DTYPES and k_pool.shape == v_pool.shape
    good = good and q.dtype == k_pool.dtype == v_pool.dtype and q.shape[2] == k_pool.shape[2]
    good = good and all(t.stride(2) == 1 for t in (q, k_pool, v_pool)) and q.shape[2] <= 256
    good = good and k_pool.shape[1] > 0 and q.shape[1] % k_pool.shape[1] == 0
    good = good and q.shape[0] == plan.num_rows
    tensors = {"q": q, "k_pool": k_pool, "v_pool": v_pool}
    check("tree_attention", good and (window is None or window > 0), **tensors)


def _constants(group: int, kv_heads: int, dim: int, tile: Tile) -> dict[str, int]:
    """The kernel's constants for a model's shape and a tile."""
    return {
        "KV_HEADS": kv_heads,
        "GROUP": group,
        "DIM": dim,
        "BLOCK_DIM": block_dim(dim),
        "LINES": tile.lines,
        "KEYS": tile.keys,
    }


def _tables(
    plan: AttentionPlan, q: torch.Tensor, kv_heads: int, window: int | None
) -> tuple[Units | None, Tables]:
    """The plan's tables for layers of this window, with their units where those are known."""
    found = plan.derived.get(table_key(window))
    if isinstance(found, tuple):
        return found
    _, heads, dim = q.shape
    maker = PlanTables(heads, kv_heads, dim, [window], q.dtype, q.device)
    (units,) = maker.cut(plan)
    room = Capacity.of(units, plan.num_rows)
    flat = np.zeros(sum(room.sizes), dtype=np.int32)
    pack(units, plan.row_pos, room, flat)
    maker.attach(plan, [units], [room], torch.from_numpy(flat).to(q.device))
    return _tables(plan, q, kv_heads, window)


def _partials(
    plan: AttentionPlan, rows: int, heads: int, dim: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Memory for partial results, float32 `[rows, heads, dim]` and `[rows, heads]`: one for all
    layers, which run one after the other."""
    key = ("gpu partials", heads, dim, device)
    found = plan.derived.get(key)
    if isinstance(found, tuple) and len(found[0]) >= rows:
        return found
    made = plan.derived[key] = (
        torch.empty((rows, heads, dim), dtype=torch.float32, device=device),
        torch.empty((rows, heads), dtype=torch.float32, device=device),
    )
    return made


def variants(arch: str) -> Iterator[Variant]:
    """What this file launches on an architecture, for head sizes and groups of models."""
    for dtype, name in DTYPES.items():
        for dim in HEAD_DIMS:
            group = 3 if dim == 64 else 4 if dim == 128 else 1
            for tile in tiles(arch, block_dim(dim), dtype):
                yield _attend_variant(arch, name, dim, group, tile)
            constants = {"HEADS": 8 * group, "DIM": dim, "BLOCK_DIM": block_dim(dim)}
            pointers = ("values", "sums", "merge_start", "merge_from", "out")
            yield Variant(
                f"merge {name} {dim} {arch}",
                merge_kernel,
                {
                    **dict.fromkeys(pointers[:2], "*fp32"),
                    **dict.fromkeys(pointers[2:4], "*i32"),
                    "out": f"*{name}",
                },
                {**constants, "PARTIALS": PARTIALS},
                4,
                1,
                ("values", "sums", "out"),
            )


def _attend_variant(arch: str, name: str, dim: int, group: int, tile: Tile) -> Variant:
    pointers = ("q", "k_pool", "v_pool", "out")
    tables = ("units", "segments", "row_pos")
    strides = ("q_row", "q_head", "k_slot", "k_head", "v_slot", "v_head")
    signature: dict[str, Any] = {
        **dict.fromkeys(pointers, f"*{name}"),
        **dict.fromkeys(tables, "*i32"),
        **dict.fromkeys(("values", "sums"), "*fp32"),
        **dict.fromkeys(strides, "i32"),
        "scale": "fp32",
        "window": "i32",
    }
    return Variant(
        f"attend {name} {dim} x{tile.lines} {arch}",
        attend_kernel,
        signature,
        _constants(group, 8, dim, tile),
        tile.num_warps,
        tile.num_stages,
        (*pointers, "values", "sums", *strides),
    )
