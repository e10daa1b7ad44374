"""A step's attention as tasks: the plan's items, cut to blocks of rows and to parts of the keys.

What a query reads is added up in an order that its position alone decides, so that a row comes out
the same, to the bit, in whatever batch, slots or step it is computed, by however many threads:

- keys follow each other by position, in pairs of an even position and the next (`tile.PAIR`);
- a part ends at the same positions everywhere, begins with nothing, and is added to those before.

A task is a block of rows, some parts of what it reads, and a KV head; `attention` does them. The
units are the same for all KV heads and for all layers of a sliding window, so they are made once
per step and window.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ramet.kernels.cpu.fused.attention import BLOCK_QUERIES
from ramet.kernels.cpu.fused.gather import KEYS
from ramet.kernels.cpu.fused.jit import inlined, jit
from ramet.kernels.cpu.fused.tile import PAIR
from ramet.kernels.plan import IntArray

TASKS_PER_THREAD = 4
"""Tasks that there are for each thread, where there is that much to read."""
PART = 512
"""Keys of a part; the first ones are shorter, for threads to share short contexts."""


@dataclasses.dataclass(frozen=True, slots=True)
class Units:
    """What the blocks of a step read, each of `BLOCK_QUERIES // group` rows, at least one.

    Each block has `splits` tasks for every KV head: the first does its first `folded` parts, each
    further one a part.
    """

    units: IntArray
    """int64 `[units, 5]`: `slot, length, row_start, row_end, key_pos`, as an item of the plan."""
    offsets: IntArray
    """int64 `[blocks * parts + 1]`: the units of part `p` of block `b` are those from
    `offsets[b * parts + p]` up to the next offset."""
    blocks: int
    parts: int
    folded: int

    @property
    def splits(self) -> int:
        """Tasks of a block and a KV head."""
        return self.parts - self.folded + 1


def build_units(
    items: IntArray, row_pos: IntArray, group: int, kv_heads: int, window: int, threads: int
) -> Units:
    """The units of a plan's `items` and `row_pos`; `window` 0: no sliding window.

    Raises ValueError if a row sees no key.
    """
    rows = len(row_pos)
    blocks = -(-rows // max(1, BLOCK_QUERIES // group))
    # Then the keys of each row come in the order of their positions.
    items = items[:, np.argsort(items[4], kind="stable")]
    last = int(row_pos.max())
    first = max(0, int(row_pos.min()) - window + 1) if window else 0
    first_part = _part_of(first)
    parts = _part_of(last) - first_part + 1
    folded = parts
    wanted, tasks = threads * TASKS_PER_THREAD, blocks * kv_heads
    if threads > 1 and tasks < wanted:
        share = (last + 1 - first) * tasks // wanted
        folded = max(1, _part_of(first + share + share // 4) - first_part)
    place = np.array([window, max(1, BLOCK_QUERIES // group), first_part, parts])
    counts = np.zeros(blocks * parts + 1, dtype=np.int64)
    unpaired = np.full((rows, 2), -1, dtype=np.int64)
    units = np.empty((0, 5), dtype=np.int64)
    if _cut(items, row_pos, place, unpaired, counts[1:], units) < rows:
        raise ValueError("attention plan: a row sees no key")
    offsets = np.cumsum(counts)
    units = np.empty((int(offsets[-1]), 5), dtype=np.int64)
    _cut(items, row_pos, place, unpaired, offsets[:-1].copy(), units)
    return Units(units, offsets, blocks, parts, folded)


@jit
def _part_of(position):
    """The part that a position belongs to."""
    if position >= PART:
        return position // PART + 2
    return int(position >= PART // 4) + int(position >= PART // 2)


@inlined
def _end_of_part(position):
    """The first position beyond the part of this one."""
    if position >= PART:
        return (position // PART + 1) * PART
    return PART // 4 if position < PART // 4 else PART // 2 if position < PART // 2 else PART


@jit
def _cut(items, row_pos, place, unpaired, at, units):
    """Write the units to `units`, those of a block's part from `at` on, which moves on; without
    `units`, only count them in `at`. Returns how many rows see a key.

    `place` is the window, the rows of a block, the first part, the number of parts. `unpaired`,
    [rows, 2], remembers the slot and position of a key whose pair is not complete, -1 for none.
    """
    block_rows = place[1]
    sighted = np.zeros(len(row_pos), dtype=np.bool_)
    for item in range(items.shape[1]):
        end = items[3, item] if items[1, item] > 0 else 0
        first = items[2, item]
        while first < end:
            last = min(end, (first // block_rows + 1) * block_rows)
            _cut_item(items[:, item], row_pos, first, last, place, unpaired, sighted, at, units)
            first = last
    # Pairs that stay incomplete, for rows that end there; those before see none of it.
    first = 0
    while first < len(row_pos):
        last, highest = first + 1, row_pos[first]
        slot, position = unpaired[first]
        while last < len(row_pos) and last % block_rows != 0 and unpaired[last, 0] == slot:
            highest = max(highest, row_pos[last])
            last += 1
        if slot >= 0 and highest >= position:
            _put(slot, 1, first, last, position, place, at, units)
        first = last
    unpaired[:] = -1
    return np.sum(sighted)


@inlined
def _cut_item(item, row_pos, first, last, place, unpaired, sighted, at, units):
    """What the rows `first..last-1` of a block may see of an item."""
    window, slot, length, key_pos = place[0], item[0], item[1], item[4]
    lowest, highest = row_pos[first], row_pos[first]
    for row in range(first, last):
        position = row_pos[row]
        lowest, highest = min(lowest, position), max(highest, position)
        least = position - window if window > 0 else -1
        sighted[row] |= key_pos <= position and key_pos + length - 1 > least
    length = min(length, highest + 1 - key_pos)
    if window > 0:
        skipped = max(0, lowest - window + 1 - key_pos)
        slot, length, key_pos = slot + skipped, length - skipped, key_pos + skipped
    if length <= 0:
        return
    if PAIR == 2:
        slot, length, key_pos = _pair(
            slot, length, first, last, key_pos, highest, place, unpaired, at, units
        )
    _put(slot, length, first, last, key_pos, place, at, units)


@inlined
def _pair(slot, length, first, last, key_pos, highest, place, unpaired, at, units):
    """Complete the pair that came before, and leave out the last key if its pair isn't complete:
    what remains of the piece."""
    before, at_position = unpaired[first]
    alike = True
    for row in range(first + 1, last):
        alike &= unpaired[row, 0] == before and unpaired[row, 1] == at_position
    if alike and before >= 0:
        unpaired[first:last] = -1
        if at_position != key_pos - 1:
            _put(before, 1, first, last, at_position, place, at, units)
        elif slot == before + 1:
            slot, length, key_pos = slot - 1, length + 1, key_pos - 1
        else:
            _put(before, 1, first, last, key_pos - 1, place, at, units)
            _put(slot, 1, first, last, key_pos, place, at, units)
            slot, length, key_pos = slot + 1, length - 1, key_pos + 1
        before = -1
    end = key_pos + length
    if alike and before < 0 and length > 0 and end % 2 == 1 and highest >= end:
        length -= 1
        for row in range(first, last):
            unpaired[row, 0], unpaired[row, 1] = slot + length, end - 1
    return slot, length, key_pos


@inlined
def _put(slot, length, first, last, key_pos, place, at, units):
    """Add a unit, in pieces that end where parts do; slots out of step with their positions are
    copied before they are read, a tile at most."""
    while length > 0:
        piece = min(length, _end_of_part(key_pos) - key_pos)
        if (slot - key_pos) % PAIR != 0:
            piece = min(piece, KEYS - key_pos % PAIR)
        part = first // place[1] * place[3] + _part_of(key_pos) - place[2]
        if len(units):
            unit = units[at[part]]
            unit[0], unit[1], unit[2], unit[3], unit[4] = slot, piece, first, last, key_pos
        at[part] += 1
        slot, key_pos, length = slot + piece, key_pos + piece, length - piece
