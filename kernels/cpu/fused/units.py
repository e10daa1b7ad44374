"""A step's attention as tasks: the plan's items, cut to blocks of rows and to equal parts of work.

A task is a block of rows, a part of what it reads, and a KV head; `attention` does them. The units
are the same for all KV heads and for all layers of a sliding window, so they are made once per
step and window.
"""

from __future__ import annotations

import numpy as np

from ramet.kernels.cpu.fused.attention import BLOCK_QUERIES, KEYS
from ramet.kernels.cpu.fused.jit import inlined, jit
from ramet.kernels.cpu.fused.lanes import LANES
from ramet.kernels.cpu.fused.tile import ROWS
from ramet.kernels.plan import IntArray

TASKS_PER_THREAD = 4
"""Tasks that there are for each thread, where there is that much to read."""
# What a unit costs, in products of a query and a key. A tile of few queries is bound by its loads,
# and a unit of few keys by what is around the products.
_TILE_QUERIES = 4
_UNIT_KEYS = 32


def most_parts(threads: int, kv_heads: int, group: int, rows: int) -> int:
    """Most partial results, `splits * kv_heads * rows * group`, of a step of up to `rows` rows."""
    block = min(rows * group, max(group, BLOCK_QUERIES))
    # Fewer tasks than wanted are cut to less than twice as many, and half as many again.
    return max(kv_heads * rows * group, 3 * TASKS_PER_THREAD * threads * block)


def build_units(
    items: IntArray, row_pos: IntArray, group: int, kv_heads: int, window: int, threads: int
) -> tuple[IntArray, IntArray, int]:
    """`(units, offsets, splits)` of a plan's `host_items` and `host_row_pos`.

    A unit, int64 `[units, 5]`, is an item within one block of rows, cut to keys that some of the
    rows may see (`window` 0: no sliding window), or a piece of it; `length` may be 0. The units of
    part `p` of block `b` are `offsets[b * splits + p]` up to the next offset. There are
    `len(offsets) // splits` blocks of `BLOCK_QUERIES // group` rows, at least one row.
    """
    rows = len(row_pos)
    blocks = -(-rows // max(1, BLOCK_QUERIES // group))
    work = np.zeros((blocks, 4), dtype=np.int64)
    splits = _measure(items, row_pos, group, kv_heads, window, threads, work)
    units = np.zeros((int(work[:, _COUNT].sum()) + blocks * splits, 5), dtype=np.int64)
    offsets = np.empty(blocks * splits + 1, dtype=np.int64)
    _fill(items, row_pos, group, window, splits, work, units, offsets)
    return units, offsets, splits


_COUNT, _COST, _KEYS, _AT = 0, 1, 2, 3
"""Of a block: its units before they are cut, their cost, their keys; where its next one goes."""


@inlined
def _clip(items, item, row_pos, first, last, window, known):
    """`(start, end)`: which keys of an item the rows `first..last-1` may see; `known` remembers
    the lowest and the highest position of the rows looked at last."""
    key_pos, length = items[4, item], items[1, item]
    if known[0] != first or known[1] != last:
        known[0], known[1] = first, last
        known[2], known[3] = row_pos[first], row_pos[first]
        for row in range(first + 1, last):
            known[2] = min(known[2], row_pos[row])
            known[3] = max(known[3], row_pos[row])
    end = min(length, known[3] + 1 - key_pos)
    start = 0
    if window > 0:
        start = max(0, known[2] - window + 1 - key_pos)
    return start, end


@inlined
def _width(rows, group):
    """What each key of a unit costs."""
    queries = rows * group
    return queries + _TILE_QUERIES * ((queries + ROWS - 1) // ROWS)


@jit
def _measure(items, row_pos, group, kv_heads, window, threads, work):
    """Fill in what each block has to read; the number of parts to cut it into."""
    block_rows = max(1, BLOCK_QUERIES // group)
    known = np.full(4, -1, dtype=np.int64)
    for item in range(items.shape[1]):
        if items[1, item] <= 0:
            continue
        for block in range(items[2, item] // block_rows, work.shape[0]):
            first = max(items[2, item], block * block_rows)
            last = min(items[3, item], (block + 1) * block_rows)
            if first >= last:
                break
            start, end = _clip(items, item, row_pos, first, last, window, known)
            if start < end:
                work[block, _COUNT] += 1
                work[block, _KEYS] += end - start
                work[block, _COST] += _width(last - first, group) * (end - start + _UNIT_KEYS)
    keys = 0
    for block in range(work.shape[0]):
        keys = max(keys, work[block, _KEYS])
    return _splits(threads, work.shape[0] * kv_heads, keys)


@inlined
def _splits(threads, tasks, keys):
    """Parts of each block: enough tasks for the threads, where possible as many for each."""
    wanted = threads * TASKS_PER_THREAD if threads > 1 else 1
    most = max(1, keys // KEYS)
    splits = min(most, (wanted + tasks - 1) // max(tasks, 1))
    if splits > 1:
        for more in range(splits, min(most, splits + splits // 2) + 1):
            if more * tasks % threads == 0:
                return more
    return max(splits, 1)


@jit
def _fill(items, row_pos, group, window, splits, work, units, offsets):
    """Write the units of each block, part after part; as `work` says that there will be."""
    block_rows = max(1, BLOCK_QUERIES // group)
    known = np.full(4, -1, dtype=np.int64)
    # Of a block: cost so far, and the part that is being filled.
    state = np.zeros((work.shape[0], 2), dtype=np.int64)
    at = 0
    for block in range(work.shape[0]):
        work[block, _AT] = at
        offsets[block * splits] = at
        # Each part may cut one unit in two.
        at += work[block, _COUNT] + splits
    for item in range(items.shape[1]):
        if items[1, item] <= 0:
            continue
        for block in range(items[2, item] // block_rows, work.shape[0]):
            first = max(items[2, item], block * block_rows)
            last = min(items[3, item], (block + 1) * block_rows)
            if first >= last:
                break
            start, end = _clip(items, item, row_pos, first, last, window, known)
            if start < end:
                slot, key_pos = items[0, item] + start, items[4, item] + start
                _place(
                    slot, end - start, first, last, key_pos, group, block, splits, work[block],
                    state[block], units, offsets,
                )  # fmt: skip
    for block in range(work.shape[0]):
        for part in range(state[block, 1] + 1, splits):
            offsets[block * splits + part] = work[block, _AT]
    offsets[work.shape[0] * splits] = at


@inlined
def _place(
    slot, length, first, last, key_pos, group, block, splits, mine, state, units, offsets
):  # fmt: skip
    """Add a unit to a block; where it fills the part, in pieces of whole tiles."""
    width = _width(last - first, group)
    while length > 0:
        piece = length
        if state[1] < splits - 1:
            room = mine[_COST] * (state[1] + 1) // splits - state[0]
            fits = room // width - _UNIT_KEYS
            if fits < length:
                # To the nearest whole number of tiles, which begin where a block of slots does.
                skipped = slot % LANES
                piece = (fits + skipped + KEYS // 2) // KEYS * KEYS - skipped
                piece = min(length, max(piece, 0))
        if piece > 0:
            unit = units[mine[_AT]]
            unit[0], unit[1], unit[2], unit[3], unit[4] = slot, piece, first, last, key_pos
            mine[_AT] += 1
            state[0] += width * (piece + _UNIT_KEYS)
        slot, key_pos, length = slot + piece, key_pos + piece, length - piece
        if length > 0:
            state[1] += 1
            offsets[block * splits + state[1]] = mine[_AT]
