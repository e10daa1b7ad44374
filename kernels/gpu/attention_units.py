"""From a plan's items to the programs of tree attention: who reads what, and what is merged.

Built on the host, once per step and sliding window, in whole arrays. Items under equal rows are one
list of segments; their rows are cut into tiles, the keys that a tile sees into units of about equal
length, so that even one long segment keeps the whole device busy (split-KV, Dao et al. 2023). A
shared segment is read once for all the rows of a tile.

A unit whose rows no other unit serves writes their results; all others write partial ones.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ramet.kernels.gpu.configs import power_of_two
from ramet.kernels.plan import AttentionPlan, IntArray

LEAST_SPLIT = 256
"""Keys of a unit, at the least, where there are more."""
UNITS_EACH = 4
"""Programs for each processor, about, that long segments are split into."""


@dataclasses.dataclass(frozen=True)
class Work:
    """The units of one size of tile."""

    units: IntArray
    """int64 `[units, 5]`: first row, rows, first segment, one past the last, first partial row or
    -1 where the results are final."""
    segments: IntArray
    """int64 `[segments, 3]`: first slot, length, position of the first."""


@dataclasses.dataclass(frozen=True)
class Units:
    """The work of one step, for layers of one window."""

    small: Work
    large: Work
    partials: int
    """Partial rows."""
    merge_start: IntArray
    """int64 `[rows + 1]`: where each row's entries in `merge_from` begin; those of row r are empty
    where its result is final."""
    merge_from: IntArray
    """int64 `[partials]`: partial rows, by the row that they belong to."""

    def read(self) -> list[tuple[int, int]]:
        """`(slot, length)` of all segments, as often as they are read."""
        both = np.concatenate((self.small.segments, self.large.segments))
        return [(slot, length) for slot, length, _ in both.tolist()]


@dataclasses.dataclass(frozen=True)
class _Pairs:
    """The segments of each tile, by tiles, cut to the keys that one of its rows may see."""

    tile: IntArray
    slot: IntArray
    length: IntArray
    key_pos: IntArray

    def only(self, chosen: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> _Pairs:
        """Some of them."""
        return _Pairs(
            self.tile[chosen], self.slot[chosen], self.length[chosen], self.key_pos[chosen]
        )


def build_units(
    plan: AttentionPlan,
    group: int,
    kv_heads: int,
    window: int | None,
    lines: tuple[int, int],
    processors: int,
) -> Units:
    """Cut a plan's work; `lines` are the query lines of a small and of a large tile, `group` of
    which are one row's. Raises ValueError if a row sees no key."""
    host = plan.items
    start, length, first, last, key_pos = host[:, (host[1] > 0) & (host[3] > host[2])]
    wide = plan.num_rows + 1
    spans, owner = np.unique(first * wide + last, return_inverse=True)
    begin, end = spans // wide, spans % wide
    rows = end - begin
    small = rows * group <= lines[0]
    size = np.where(small, max(1, lines[0] // group), lines[1] // group)
    tile_counts = -(-rows // size)
    tile_group = np.repeat(np.arange(len(spans)), tile_counts)
    tile_first = begin[tile_group] + _within(tile_counts) * size[tile_group]
    tile_rows = np.minimum(tile_first + size[tile_group], end[tile_group]) - tile_first
    order = np.argsort(owner, kind="stable")
    items = np.bincount(owner, minlength=len(spans))
    item_begin = np.cumsum(items) - items
    picked = order[_ranges(item_begin[tile_group], items[tile_group])]
    tile = np.repeat(np.arange(len(tile_group)), items[tile_group])
    pairs = _Pairs(tile, start[picked], length[picked], key_pos[picked])
    pairs = _cut(plan, pairs, tile_first, tile_rows, window)
    tile_small = small[tile_group]
    works = [
        _split(
            pairs.only(tile_small[pairs.tile] == kind), tile_first, tile_rows, kv_heads, processors
        )
        for kind in (True, False)
    ]
    return _merged(plan.num_rows, works[0], works[1])


def _cut(
    plan: AttentionPlan,
    pairs: _Pairs,
    tile_first: IntArray,
    tile_rows: IntArray,
    window: int | None,
) -> _Pairs:
    """Each pair cut to the keys that some row of its tile sees, if any; every row is to see one."""
    positions = plan.row_pos
    flat = positions[_ranges(tile_first, tile_rows)]
    bounds = np.cumsum(tile_rows) - tile_rows
    lowest = np.minimum.reduceat(flat, bounds) if len(bounds) else flat
    highest = np.maximum.reduceat(flat, bounds) if len(bounds) else flat
    low, high = lowest[pairs.tile], highest[pairs.tile]
    end = pairs.key_pos + pairs.length
    reach = np.iinfo(np.int32).max if window is None else window
    # A tile with a pair of which all its rows see a key needs no closer look.
    sure = np.zeros(len(tile_rows), dtype=np.bool_)
    sure[pairs.tile[(pairs.key_pos <= low) & (end > high - reach + 1)]] = True
    seen = np.zeros(plan.num_rows, dtype=np.bool_)
    seen[_ranges(tile_first[sure], tile_rows[sure])] = True
    unsure = np.flatnonzero(~sure[pairs.tile])
    counts = tile_rows[pairs.tile[unsure]]
    row = _ranges(tile_first[pairs.tile[unsure]], counts)
    at = np.repeat(unsure, counts)
    seen[row[(pairs.key_pos[at] <= positions[row]) & (end[at] > positions[row] - reach + 1)]] = True
    if not seen.all():
        raise ValueError(f"attention plan: row {int(seen.argmin())} sees no key")
    from_pos = np.maximum(pairs.key_pos, low - reach + 1)
    to_pos = np.minimum(end, high + 1)
    cut = _Pairs(pairs.tile, pairs.slot + from_pos - pairs.key_pos, to_pos - from_pos, from_pos)
    return cut.only(cut.length > 0)


def _split(
    pairs: _Pairs, tile_first: IntArray, tile_rows: IntArray, kv_heads: int, processors: int
) -> Work:
    """The pairs of one size of tile, as units of at most so many keys."""
    tiles = len(tile_rows)
    totals = np.bincount(pairs.tile, pairs.length, minlength=tiles).astype(np.int64)
    goal = int(totals.sum()) * kv_heads // (UNITS_EACH * processors)
    split = max(LEAST_SPLIT, power_of_two(goal))
    counts = -(-totals // split)
    first_unit = np.cumsum(counts) - counts
    before = np.cumsum(pairs.length) - pairs.length
    offset = before - (np.cumsum(totals) - totals)[pairs.tile]
    opening = offset // split
    pieces = (offset + pairs.length - 1) // split - opening + 1
    pair = np.repeat(np.arange(len(pieces)), pieces)
    number = opening[pair] + _within(pieces)
    low = np.maximum(offset[pair], number * split)
    high = np.minimum(offset[pair] + pairs.length[pair], (number + 1) * split)
    shift = low - offset[pair]
    segments = np.stack((pairs.slot[pair] + shift, high - low, pairs.key_pos[pair] + shift), 1)
    unit = first_unit[pairs.tile[pair]] + number
    sizes = np.bincount(unit, minlength=int(counts.sum()))
    ends = np.cumsum(sizes)
    tile = np.repeat(np.arange(tiles), counts)
    place = np.full(len(tile), -1, dtype=np.int64)
    units = np.stack((tile_first[tile], tile_rows[tile], ends - sizes, ends, place), 1)
    return Work(units, segments)


def _merged(num_rows: int, small: Work, large: Work) -> Units:
    """The units with places for their partial rows, where they need any."""
    both = np.concatenate((small.units, large.units))
    rows = _ranges(both[:, 0], both[:, 1])
    shared = np.bincount(rows, minlength=num_rows) > 1
    bounds = np.cumsum(both[:, 1]) - both[:, 1]
    partial = np.add.reduceat(shared[rows], bounds, dtype=np.int64) > 0 if len(both) else bounds > 0
    counts = np.where(partial, both[:, 1], 0)
    places = np.where(partial, np.cumsum(counts) - counts, -1)
    owner = _ranges(both[partial, 0], both[partial, 1])
    starts = np.zeros(num_rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=num_rows), out=starts[1:])
    small.units[:, 4] = places[: len(small.units)]
    large.units[:, 4] = places[len(small.units) :]
    return Units(small, large, len(owner), starts, np.argsort(owner, kind="stable"))


def _within(counts: IntArray) -> IntArray:
    """0, 1, … below each count, one after the other."""
    return _ranges(np.zeros_like(counts), counts)


def _ranges(starts: IntArray, counts: IntArray) -> IntArray:
    """`start … start + count - 1` for each pair, one after the other."""
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts - ends + counts, counts)
