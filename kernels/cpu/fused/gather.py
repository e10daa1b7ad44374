"""Short units of attention, copied to one tile: where slots of the pool are reused one by one, a
context's keys lie scattered, and a tile for each would be nearly empty.

The layout of keys and values is that of `attention`, which calls this.
"""

from __future__ import annotations

import numpy as np

from ramet.kernels.cpu.fused.jit import inlined
from ramet.kernels.cpu.fused.lanes import LANES, i32_array, u16_array
from ramet.kernels.cpu.fused.tile import PAIR

KEYS = 64
"""Keys of a tile: with heads of 64 theirs and their values are 16 KB, half of an L1 cache."""
SLOT_BYTES = LANES * 2
"""From the values of a slot to those of the next, in a strip of 16 dimensions."""


@inlined
def most_copied(queries):
    """Slots of the longest unit that is worth copying beside others, for so many queries."""
    # Copying a slot costs about as much as four queries that read it alone, in a tile of its own.
    return min(KEYS // 2, 2 + queries // 4)


@inlined
def run_of(units, index, group):
    """One past the last unit that is copied to a tile together with this one; `index` itself where
    it is read where it lies.

    Short units of the same rows whose positions follow each other are worth copying. Two that
    make up a pair of keys (`tile.PAIR`) have to be, and so has one whose pairs lie across those of
    the pool.
    """
    first = units[index]
    most = most_copied((first[3] - first[2]) * group)
    start = first[4] - first[4] % PAIR
    after, whole, end = index, index, first[4]
    while True:
        if (
            after == len(units) or units[after, 2] != first[2] or units[after, 3] != first[3]
            or units[after, 4] != end
        ):  # fmt: skip
            whole = after
            break
        slot, length = units[after, 0], units[after, 1]
        if end + length - start > KEYS or (length > most and (slot - end) % PAIR == 0):
            break
        end += length
        after += 1
        if end % PAIR == 0:
            whole = after
    if whole == index + 1 and (first[0] - first[4]) % PAIR == 0:
        return index
    return whole


@inlined
def _copy_slot(k, v, strip, slot, keys, values, to, alone, padded):
    """Copy a slot's keys and values to the scratch's slot `to`; `alone`: nothing has been copied to
    the other one of its pair."""
    for step in range(padded // PAIR):
        source = k + ((slot // LANES * (padded // PAIR) + step) * LANES + slot % LANES) * (2 * PAIR)
        target = keys + ((to // LANES * (padded // PAIR) + step) * LANES + to % LANES) * (2 * PAIR)
        if PAIR == 2:
            i32_array(target, (1,))[0] = i32_array(source, (1,))[0]
        else:
            u16_array(target, (1,))[0] = u16_array(source, (1,))[0]
    for j in range(padded // LANES):
        source = u16_array(v + j * strip + slot // PAIR * (PAIR * SLOT_BYTES), (LANES, PAIR))
        target = values + (j * KEYS + to // PAIR * PAIR) * SLOT_BYTES
        pairs = u16_array(target, (LANES, PAIR))
        for lane in range(LANES):
            pairs[lane, to % PAIR] = source[lane, slot % PAIR]
            if PAIR == 2 and alone:
                # Its weight will be zero, unless another slot comes here.
                pairs[lane, 1 - to % 2] = np.uint16(0)


@inlined
def gather(units, index, after, k, v, strip, keys, values, padded):
    """Copy the slots of units to one tile in the scratch, an even position to an even place: the
    first place, and how many there are."""
    first = units[index, 4] % PAIR
    to = first
    for number in range(index, after):
        for slot in range(units[number, 0], units[number, 0] + units[number, 1]):
            _copy_slot(k, v, strip, slot, keys, values, to, to == first or to % 2 == 0, padded)
            to += 1
    return first, to - first
