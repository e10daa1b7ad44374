"""The units of a step: each pair of a row and a key exactly once, in the order of its position."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from ramet.kernels.cpu.fused.attention import BLOCK_QUERIES
from ramet.kernels.cpu.fused.tile import PAIR
from ramet.kernels.cpu.fused.units import build_units


def random_items(source, rows, count):
    items = []
    for _ in range(count):
        first = source.randrange(rows)
        last = source.randint(first, min(rows, first + source.choice([1, 5, rows])))
        length = source.choice([0, 1, 7, 64, 300])
        items.append((source.randrange(5000), length, first, last, source.randrange(400)))
    return np.array(items, dtype=np.int64).reshape(-1, 5).T.copy()


def pairs(items, row_pos, window):
    """How often each row sees each slot, as a sorted list of (row, slot, position)."""
    found = []
    for slot, length, first, last, key_pos in items.T.tolist():
        for row in range(first, last):
            for i in range(length):
                at = key_pos + i
                if at <= row_pos[row] and (not window or at > row_pos[row] - window):
                    found.append((row, slot + i, at))
    return sorted(found)


@pytest.mark.parametrize("window", [0, 20])
@pytest.mark.parametrize("seed", range(8))
def test_units_cover_the_items_exactly(seed, window):
    source = random.Random(seed)
    rows, group, threads = source.choice([1, 9, 70, 200]), source.randint(1, 8), seed + 1
    row_pos = np.array([source.randrange(600) for _ in range(rows)], dtype=np.int64)
    # Each row sees a key: its own.
    own = [(9000 + row, 1, row, row + 1, position) for row, position in enumerate(row_pos)]
    items = np.concatenate([random_items(source, rows, 30), np.array(own).T], axis=1)
    work = build_units(items, row_pos, group, 2, window, threads)
    assert pairs(work.units.T, row_pos, window) == pairs(items, row_pos, window)
    block_rows = BLOCK_QUERIES // group
    assert work.blocks == -(-rows // block_rows)
    assert len(work.offsets) == work.blocks * work.parts + 1
    assert work.offsets[-1] == len(work.units)
    assert (np.diff(work.offsets) >= 0).all()
    for index in range(work.blocks * work.parts):
        mine = work.units[work.offsets[index] : work.offsets[index + 1]]
        first = index // work.parts * block_rows
        assert (mine[:, 1] > 0).all()
        assert (mine[:, 2] >= first).all()
        assert (mine[:, 3] <= first + block_rows).all()


def parts_of(units, row):
    """The keys that a row reads, as (slots, positions) of each unit, in the order of reading."""
    mine = [u for u in units if u[2] <= row < u[3]]
    return [(u[0], u[1], u[4]) for u in mine]


@pytest.mark.parametrize("seed", range(20))
def test_a_row_reads_its_keys_by_position_in_parts_and_pairs(seed):
    """However its path is cut to items, and whatever reads beside it."""
    source = random.Random(seed)
    ends = sorted(source.sample(range(1, 1400), source.choice([1, 4, 30])))
    rows = len(ends)
    row_pos = np.array([end - 1 for end in ends], dtype=np.int64)
    items, slot, start = [], 0, 0
    for row, end in enumerate(ends):
        # Each row ends where an item ends, and others go on: in the next slot or elsewhere.
        slot += source.choice([0, 0, 16, 33])
        items.append((slot, end - start, row, rows, start))
        slot, start = slot + end - start, end
    order = source.sample(items, len(items))
    work = build_units(np.array(order, dtype=np.int64).T.copy(), row_pos, 3, 1, 0, 2)
    for row, end in enumerate(ends):
        read = []
        for part in range(work.parts):
            # All rows are in one block.
            units = work.units[work.offsets[part] : work.offsets[part + 1]].tolist()
            mine = parts_of(units, row)
            read += [position for _, length, at in mine for position in range(at, at + length)]
            assert (
                len({min(at // 128, 4) * 1000 + at // 512 for _, _, at in mine} - {2000, 3000}) <= 1
            )
            for (_, length, at), following in itertools.zip_longest(mine, mine[1:]):
                if PAIR == 2 and following is not None and (at + length) % 2 == 1:
                    # An odd end: the two keys of a pair, which `run_of` copies to a tile.
                    assert length == following[1] == 1
        assert [position for position in read if position < end] == list(range(end))


def test_keys_that_no_row_sees_are_left_out():
    items = np.array([[0, 500, 0, 1, 0], [600, 100, 0, 1, 500]], dtype=np.int64).T.copy()
    work = build_units(items, np.array([520]), 1, 1, 30, 1)
    assert work.units.tolist() == [[491, 9, 0, 1, 491], [600, 12, 0, 1, 500], [612, 9, 0, 1, 512]]


@pytest.mark.parametrize("threads", [1, 2, 4, 16])
def test_few_rows_over_many_keys_are_split(threads):
    items = np.array([[3, 4000, 0, 1, 0]], dtype=np.int64).T.copy()
    work = build_units(items, np.array([3999]), 3, 3, 0, threads)
    lengths = [0] * work.splits
    for part, (a, b) in enumerate(itertools.pairwise(work.offsets)):
        lengths[max(0, part - work.folded + 1)] += int(work.units[a:b, 1].sum())
    assert sum(lengths) == 4000
    if threads == 1:
        assert work.splits == 1
    else:
        # Three KV heads: no thread has more than its share and a part.
        assert max(lengths) <= max(512, 3 * 4000 // threads // 2)


def test_short_contexts_and_many_rows_are_not_split():
    items = np.array([[0, 60, 0, 1, 0]], dtype=np.int64).T.copy()
    assert build_units(items, np.array([59]), 3, 3, 0, 8).splits == 1
    items = np.array([[0, 600, 0, 600, 0]], dtype=np.int64).T.copy()
    assert build_units(items, np.arange(600), 3, 3, 0, 2).splits == 1


@pytest.mark.parametrize(
    ("items", "window"),
    [([], 0), ([[0, 3, 0, 1, 0]], 0), ([[0, 3, 0, 2, 5]], 0), ([[0, 2, 0, 2, 0]], 3)],
)
def test_a_row_that_sees_no_key_is_refused(items, window):
    items = np.array(items, dtype=np.int64).reshape(-1, 5).T.copy()
    with pytest.raises(ValueError, match="a row sees no key"):
        build_units(items, np.array([4, 4]), 2, 1, window, 4)
