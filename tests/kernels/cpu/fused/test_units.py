"""The units of a step: each pair of a row and a key exactly once, in parts of like cost."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from ramet.kernels.cpu.fused.attention import BLOCK_QUERIES
from ramet.kernels.cpu.fused.units import build_units, most_parts


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
    items = random_items(source, rows, 30)
    units, offsets, splits = build_units(items, row_pos, group, 2, window, threads)
    assert pairs(units.T, row_pos, window) == pairs(items, row_pos, window)
    block_rows = BLOCK_QUERIES // group
    assert (len(offsets) - 1) == splits * -(-rows // block_rows)
    assert offsets[-1] == len(units)
    assert (np.diff(offsets) >= 0).all()
    for part in range(len(offsets) - 1):
        mine = units[offsets[part] : offsets[part + 1]]
        mine = mine[mine[:, 1] > 0]
        assert (mine[:, 2:4] - part // splits * block_rows >= 0).all()
        assert (mine[:, 3] - part // splits * block_rows <= block_rows).all()
    assert splits * 2 * rows * group <= most_parts(threads, 2, group, rows)


def test_keys_that_no_row_sees_are_left_out():
    items = np.array([[0, 500, 0, 1, 0], [600, 100, 0, 1, 500]], dtype=np.int64).T.copy()
    units, _, _ = build_units(items, np.array([520]), 1, 1, 30, 1)
    live = units[units[:, 1] > 0]
    assert live.tolist() == [[491, 9, 0, 1, 491], [600, 21, 0, 1, 500]]


@pytest.mark.parametrize("threads", [1, 2, 4, 16])
def test_few_rows_over_many_keys_are_split_evenly(threads):
    items = np.array([[3, 4000, 0, 1, 0]], dtype=np.int64).T.copy()
    units, offsets, splits = build_units(items, np.array([3999]), 3, 3, 0, threads)
    assert splits == 1 if threads == 1 else 3 * splits >= 4 * threads
    lengths = [int(units[a:b, 1].sum()) for a, b in itertools.pairwise(offsets)]
    assert max(lengths) - min(lengths) <= 4000 // splits // 2 + 64
    assert all(unit[0] % 64 == 0 for unit in units[1:] if unit[1])


def test_short_contexts_and_many_rows_are_not_split():
    items = np.array([[0, 60, 0, 1, 0]], dtype=np.int64).T.copy()
    assert build_units(items, np.array([59]), 3, 3, 0, 8)[2] == 1
    items = np.array([[0, 600, 0, 600, 0]], dtype=np.int64).T.copy()
    assert build_units(items, np.arange(600), 3, 3, 0, 2)[2] == 1


def test_no_items_and_no_rows():
    nothing = np.zeros((5, 0), dtype=np.int64)
    units, offsets, splits = build_units(nothing, np.array([3, 4]), 2, 1, 0, 4)
    assert (units[:, 1].sum(), len(offsets), splits) == (0, 2, 1)
    assert build_units(nothing, nothing[0], 2, 1, 0, 4)[1].tolist() == [0]
