"""Tree attention: queries of a block of rows over the segments of the pool that they read.

K and V lie as `times_shorts` reads them, a KV head after the other, in blocks of 16 slots:

- K `[kv_heads, blocks, padded / PAIR, 16, PAIR]`: keys are the lanes, dimensions the steps;
- V `[kv_heads, padded / 16, blocks * 16 / PAIR, 16, PAIR]`: dimensions are the lanes, slots the
  steps.

A task is a block of rows, a part of what they read and a KV head. It goes through its units (see
`units`) 64 keys at a time, all its queries over each, with a running maximum, sum and weighted
value per query (Milakov and Gimelshein 2018; Dao et al. 2022), in its thread's scratch. What it
found is left unnormalised in the partial results, which `merge` puts together.

Maxima are rounded up to whole powers of two, so that a change of them scales exactly what was added
up so far: only the order of adding can change a result's bits, and `units` says what that is.
"""

from __future__ import annotations

import numpy as np

from ramet.kernels.cpu.fused.fields import Job, Layer, Window
from ramet.kernels.cpu.fused.gather import KEYS, SLOT_BYTES, gather, run_of
from ramet.kernels.cpu.fused.inputs import bytes_of_row, store_row
from ramet.kernels.cpu.fused.jit import inlined
from ramet.kernels.cpu.fused.lanes import (
    LANES,
    bf16_bits,
    f32_array,
    i64_array,
    prefetch,
    u16_array,
)
from ramet.kernels.cpu.fused.softmax import (
    add_scaled_16,
    any_above_64,
    copy_16,
    fill_16,
    highest_64,
    highest_seen_32,
    highest_seen_64,
    power_of_two,
    rotate_16,
    scale_16,
    sum_16,
    weigh_32,
    weigh_64,
)
from ramet.kernels.cpu.fused.tile import ACTIVATION_BYTES, PAIR, PANEL, ROWS, times_shorts

BLOCK_QUERIES = 192
"""Most queries of a task: what they found so far, 48 KB for heads of 64, stays in the L2 cache
beside their keys."""

_LOG2_E = np.float32(1.4426950408889634)
_NOTHING = np.float32(-np.inf)
_NO_NUMBER = np.float32(np.nan)
_ZERO = np.float32(0.0)
_SCORE_BYTES = KEYS * 4
_WEIGHT_BYTES = KEYS * ACTIVATION_BYTES

# The scratch: weights, sums of sixteen lanes, maxima, scores, weighted values,
# then the keys and the values of scattered slots.
_SUMS = ROWS * _WEIGHT_BYTES
_MAXIMA = _SUMS + BLOCK_QUERIES * LANES * 4
_SCORES = _MAXIMA + BLOCK_QUERIES * 4
_VALUES = _SCORES + ROWS * _SCORE_BYTES


def scratch_bytes(padded: int) -> int:
    """Bytes of scratch that a thread needs, for heads filled up to a size."""
    return _VALUES + (BLOCK_QUERIES + ROWS + KEYS) * padded * 4


@inlined
def _gathered(padded):
    """Where in the scratch the keys of scattered slots go; their values follow."""
    return _VALUES + (BLOCK_QUERIES + ROWS) * padded * 4


@inlined
def write(k, v, key, value, head, dim, padded, blocks, slot):
    """Write a token's key and value of one KV head, float32 rows of `dim`, to their slot.

    A value that isn't finite would reach every query that reads its block, as 0 * NaN. So such a
    row's values are stored as zeros and its keys as NaN: who sees the slot gets NaN, others don't.
    """
    keys, values = f32_array(key, (dim,)), f32_array(value, (dim,))
    broken = False
    for j in range(dim):
        broken |= (bf16_bits(values[j]) & np.uint16(0x7F80)) == np.uint16(0x7F80)
    block = k + (head * blocks + slot // LANES) * (LANES * 2) * padded
    to = u16_array(block, (padded // PAIR, LANES, PAIR))
    lane = slot % LANES
    for j in range(dim):
        to[j // PAIR, lane, j % PAIR] = np.uint16(0x7FC0) if broken else bf16_bits(keys[j])
    strips = v + head * blocks * (LANES * 2) * padded
    for strip in range((dim + LANES - 1) // LANES):
        place = strips + (strip * blocks * LANES + slot // PAIR * PAIR) * SLOT_BYTES
        pairs = u16_array(place, (LANES, PAIR))
        for j in range(min(LANES, dim - strip * LANES)):
            bits = bf16_bits(values[strip * LANES + j])
            pairs[j, slot % PAIR] = np.uint16(0) if broken else bits


@inlined
def ask_for(k, v, head, padded, blocks, slot):
    """Ask for the cache lines that `write` will write to."""
    block = k + (head * blocks + slot // LANES) * (LANES * 2) * padded
    for step in range(0, padded * LANES * 2, LANES * PAIR * 2):
        prefetch(block + step + slot % LANES * (PAIR * 2))
    strips = v + head * blocks * (LANES * 2) * padded
    for strip in range(padded // LANES):
        prefetch(strips + (strip * blocks * LANES + slot // PAIR * PAIR) * SLOT_BYTES)


@inlined
def _base_for(scratch, query, highest, padded):
    """What a query's exponents are taken from, once `highest` has been seen; shrinks what it has
    so far where that is more than before."""
    maxima = f32_array(scratch + _MAXIMA, (BLOCK_QUERIES,))
    before = maxima[query]
    if highest <= before:
        # Without a visible key so far it is any number: -inf minus -inf is none.
        return _ZERO if before == _NOTHING else before
    highest = np.ceil(highest)
    maxima[query] = highest
    if before != _NOTHING:
        shrink = power_of_two(before - highest)
        scale_16(scratch + _SUMS + query * (LANES * 4), shrink)
        values = scratch + _VALUES + query * padded * 4
        for j in range(padded // LANES):
            scale_16(values + j * (LANES * 4), shrink)
    return highest


@inlined
def _add_values(scratch, count, query, v, strip, first, last, padded):
    """Add the values of a tile's keys `first..last-1` to `count` queries, by their weights."""
    # The product's rows are filled up to a tile's; those beyond belong to the next queries.
    rows = 1
    while rows < count:
        rows *= 2
    for row in range(count, min(rows, ROWS)):
        for j in range(_WEIGHT_BYTES // (LANES * 4)):
            fill_16(scratch + row * _WEIGHT_BYTES + j * (LANES * 4), _ZERO)
    first = first // PAIR * PAIR
    steps = (last - first + PAIR - 1) // PAIR
    values = scratch + _VALUES + query * padded * 4
    for j in range(0, padded, PANEL):
        times_shorts(
            count, scratch + first * ACTIVATION_BYTES, _WEIGHT_BYTES,
            v + j // LANES * strip + first * SLOT_BYTES, strip, steps,
            values + j * 4, padded * 4, 1,
        )  # fmt: skip


@inlined
def _score(scratch, count, q, k, padded, last):
    """Scores of `count` queries for a tile's keys up to `last`."""
    block = LANES * 2 * padded
    for key in range(0, last, PANEL):
        times_shorts(
            count, q, padded * ACTIVATION_BYTES, k + key // LANES * block, block, padded // PAIR,
            scratch + _SCORES + key * 4, _SCORE_BYTES, 0,
        )  # fmt: skip


@inlined
def _whole(scratch, count, query, q, k, v, strip, padded, factor):
    """A tile of which every query sees all keys."""
    _score(scratch, count, q, k, padded, KEYS)
    maxima = f32_array(scratch + _MAXIMA, (BLOCK_QUERIES,))
    for row in range(count):
        sums = scratch + _SUMS + (query + row) * (LANES * 4)
        scores = scratch + _SCORES + row * _SCORE_BYTES
        base = maxima[query + row]
        # The highest itself takes a chain of instructions, and mostly isn't needed.
        if base == _NOTHING or any_above_64(scores, factor, base):
            base = _base_for(scratch, query + row, highest_64(scores) * factor, padded)
        weigh_64(scores, scratch + row * _WEIGHT_BYTES, sums, factor, base)
    _add_values(scratch, count, query, v, strip, 0, KEYS, padded)


@inlined
def _cut(
    scratch, count, query, q, k, v, strip, padded, factor, low, high, positions, group, key_pos,
    size,
):  # fmt: skip
    """A tile of which keys `low..high-1` are read, as far as each query sees them.

    `positions` are those of the block's rows; `key_pos` is that of the tile's first key.
    """
    last = 0
    for row in range(query // group, (query + count - 1) // group + 1):
        last = max(last, positions[row] + 1 - key_pos)
    last = min(last, high)
    if last <= low:
        return
    _score(scratch, count, q, k, padded, last)
    row, left = query // group, group - query % group
    for index in range(count):
        first, end = low, min(last, positions[row] + 1 - key_pos)
        if size > 0:
            first = max(low, positions[row] - size + 1 - key_pos)
        end = max(first, end)
        scores = scratch + _SCORES + index * _SCORE_BYTES
        weights = scratch + index * _WEIGHT_BYTES
        sums = scratch + _SUMS + (query + index) * (LANES * 4)
        if last <= PANEL:
            highest = highest_seen_32(scores, first, end) * factor
            base = _base_for(scratch, query + index, highest, padded)
            weigh_32(scores, weights, sums, factor, base)
        else:
            highest = highest_seen_64(scores, first, end) * factor
            base = _base_for(scratch, query + index, highest, padded)
            weigh_64(scores, weights, sums, factor, base)
        left -= 1
        if left == 0:
            row, left = row + 1, group
    _add_values(scratch, count, query, v, strip, low, last, padded)


@inlined
def _read(
    scratch, slot, length, start, end, key_pos, positions, q, k, v, strip, padded, factor, group,
    size,
):  # fmt: skip
    """The queries `start..end-1` of the block over `length` keys from `slot` on."""
    lowest, highest = positions[start // group], positions[start // group]
    for row in range(start // group + 1, end // group):
        lowest, highest = min(lowest, positions[row]), max(highest, positions[row])
    # A sum's lanes are those of the positions, so that each adds up the same keys.
    turned = (slot - key_pos) % LANES
    _turn(scratch, start, end, turned)
    for base in range(slot // LANES * LANES, slot + length, KEYS):
        low, high = max(slot - base, 0), min(slot + length - base, KEYS)
        first_pos = key_pos + base - slot
        seen = first_pos + KEYS - 1 <= lowest and (size == 0 or first_pos > highest - size)
        keys, values = k + base * (padded * 2), v + base * SLOT_BYTES
        for query in range(start, end, ROWS):
            count = min(ROWS, end - query)
            here = q + query * padded * ACTIVATION_BYTES
            if seen and high - low == KEYS:
                _whole(scratch, count, query, here, keys, values, strip, padded, factor)
            else:
                _cut(
                    scratch, count, query, here, keys, values, strip, padded, factor, low, high,
                    positions, group, first_pos, size,
                )  # fmt: skip
    _turn(scratch, start, end, (LANES - turned) % LANES)


@inlined
def _turn(scratch, start, end, by):
    """Move the lanes of the sums of queries `start..end-1` on."""
    if by != 0:
        for query in range(start, end):
            rotate_16(scratch + _SUMS + query * (LANES * 4), by)


@inlined
def attend(job, layer, window, task, head, scratch):
    """One task: block of rows * splits + number of its parts; see `units`."""
    group, rows = job[Job.HEADS] // job[Job.KV_HEADS], job[Job.ROWS]
    block_rows = max(1, BLOCK_QUERIES // group)
    block, split = task // window[Window.SPLITS], task % window[Window.SPLITS]
    first = block * block_rows
    queries = min(block_rows, rows - first) * group
    place = ((split * job[Job.KV_HEADS] + head) * rows + first) * group
    part, end = 0, window[Window.FOLDED]
    if split > 0:
        part = end + split - 1
        end = part + 1
    _forget(job, place, queries)
    while part < end:
        ends = i64_array(window[Window.OFFSETS] + (block * window[Window.PARTS] + part) * 8, (2,))
        if ends[0] < ends[1]:
            _clear(scratch, queries, job[Job.PADDED])
            _read_part(job, layer, window, ends[0], ends[1], head, first, scratch)
            _leave(job, scratch, place, queries, job[Job.PADDED])
        part += 1


@inlined
def _read_part(job, layer, window, index, end, head, first, scratch):
    """The units `index..end-1` for one KV head; `first` is the first row of the block."""
    group, padded, rows = job[Job.HEADS] // job[Job.KV_HEADS], job[Job.PADDED], job[Job.ROWS]
    positions = i64_array(job[Job.POSITIONS] + first * 8, (rows - first,))
    q = (head * job[Job.CAPACITY] + first) * group * padded * ACTIVATION_BYTES + job[Job.QUERIES]
    pool = head * job[Job.BLOCKS] * (LANES * 2) * padded
    factor = f32_array(job[Job.EPS], (2,))[1] * _LOG2_E
    units = i64_array(window[Window.UNITS], (end, 5))
    while index < end:
        slot, length, key_pos = units[index, 0], units[index, 1], units[index, 4]
        row, last = (units[index, 2] - first) * group, (units[index, 3] - first) * group
        k, v = layer[Layer.KEYS] + pool, layer[Layer.VALUES] + pool
        strip = job[Job.BLOCKS] * LANES * SLOT_BYTES
        after = run_of(units, index, group)
        if after > index:
            keys = scratch + _gathered(padded)
            values = keys + KEYS * padded * 2
            slot, length = gather(units, index, after, k, v, strip, keys, values, padded)
            k, v, strip = keys, values, KEYS * SLOT_BYTES
        _read(
            scratch, slot, length, row, last, key_pos, positions, q, k, v, strip, padded, factor,
            group, window[Window.SIZE],
        )  # fmt: skip
        index = max(after, index + 1)


@inlined
def _clear(scratch, queries, padded):
    """Nothing has been seen yet."""
    maxima = f32_array(scratch + _MAXIMA, (BLOCK_QUERIES,))
    for query in range(queries):
        maxima[query] = _NOTHING
        fill_16(scratch + _SUMS + query * (LANES * 4), _ZERO)
    for j in range((queries + ROWS) * padded // LANES):
        fill_16(scratch + _VALUES + j * (LANES * 4), _ZERO)


@inlined
def _forget(job, place, queries):
    """The partial results from query `place` on have found nothing yet."""
    sums = f32_array(job[Job.SUMS] + place * 4, (queries,))
    for query in range(queries):
        sums[query] = _ZERO


@inlined
def _leave(job, scratch, place, queries, padded):
    """Add what a part found to the partial results from query `place` on."""
    maxima = f32_array(scratch + _MAXIMA, (BLOCK_QUERIES,))
    for query in range(queries):
        total = sum_16(scratch + _SUMS + query * (LANES * 4))
        values = scratch + _VALUES + query * padded * 4
        _add_part(job, place + query, maxima[query], total, values, padded)


@inlined
def _add_part(job, place, highest, total, values, padded):
    """Add what a part found of a query to what those before it found, at `place`."""
    if total == _ZERO:
        # No visible key, and so no values.
        return
    maximum = f32_array(job[Job.MAXIMA] + place * 4, (1,))
    its_sum = f32_array(job[Job.SUMS] + place * 4, (1,))
    result = job[Job.PARTS] + place * padded * 4
    if its_sum[0] == _ZERO:
        maximum[0], its_sum[0] = highest, total
        for j in range(0, padded * 4, LANES * 4):
            copy_16(values + j, result + j)
        return
    before = maximum[0]
    maximum[0] = max(before, highest)
    own, its = power_of_two(before - maximum[0]), power_of_two(highest - maximum[0])
    its_sum[0] = its_sum[0] * own + total * its
    for j in range(0, padded * 4, LANES * 4):
        add_scaled_16(values + j, its, result + j, own)


@inlined
def merge(job, window, first, last):
    """Rows `first..last-1`: their parts put together and normalised, as inputs of what is next.

    The partial results are used up. A query whose scores are all minus infinity gets NaN.
    """
    group, kv_heads = job[Job.HEADS] // job[Job.KV_HEADS], job[Job.KV_HEADS]
    heads, dim, padded = job[Job.HEADS], job[Job.DIM], job[Job.PADDED]
    stride = kv_heads * job[Job.ROWS] * group
    end = window[Window.SPLITS] * stride
    maxima, sums = f32_array(job[Job.MAXIMA], (end,)), f32_array(job[Job.SUMS], (end,))
    for row in range(first, last):
        whole = job[Job.QKV] + row * (heads + 2 * kv_heads) * dim * 4
        for head in range(heads):
            place = (head // group * job[Job.ROWS] + row) * group + head % group
            for at in range(place + stride, end, stride):
                values = job[Job.PARTS] + at * padded * 4
                _add_part(job, place, maxima[at], sums[at], values, padded)
            value = f32_array(job[Job.PARTS] + place * padded * 4, (dim,))
            to = f32_array(whole + head * dim * 4, (dim,))
            scale = np.float32(1.0) / sums[place]
            for j in range(dim):
                to[j] = value[j] * scale if sums[place] != _ZERO else _NO_NUMBER
        out = job[Job.ATTENDED] + row * bytes_of_row(heads * dim)
        store_row(whole, heads * dim, out)
