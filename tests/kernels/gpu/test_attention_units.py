"""How a plan is cut into units: each key once for each row, long segments split, tiles shared."""

from __future__ import annotations

import random

import numpy as np
import pytest

pytest.importorskip("triton", reason="the GPU's kernels need triton")


def seen_by_plan(plan, window):
    """(row, slot) of every visible key, by the plan's words."""
    seen = []
    for start, length, first, last, key_pos in plan.items.T.tolist():
        for row in range(first, last):
            position = int(plan.row_pos[row])
            for key in range(length):
                stand = key_pos + key
                if stand <= position and (window is None or stand > position - window):
                    seen.append((row, start + key))
    return sorted(seen)


def seen_by_units(units, plan, window):
    """The same, by the units."""
    seen = []
    for work in (units.small, units.large):
        for first, rows, begin, end, _ in work.units.tolist():
            for slot, length, key_pos in work.segments[begin:end].tolist():
                for row in range(first, first + rows):
                    position = int(plan.row_pos[row])
                    for key in range(length):
                        stand = key_pos + key
                        if stand <= position and (window is None or stand > position - window):
                            seen.append((row, slot + key))
    return sorted(seen)


@pytest.mark.parametrize("window", [None, 1, 7, 300])
@pytest.mark.parametrize("seed", range(8))
def test_every_visible_key_is_in_one_unit(make_plan, tree_items, seed, window):
    from ramet.kernels.gpu.attention_units import build_units

    source = random.Random(seed)
    items, row_pos = tree_items(source, depth=source.randint(0, 6), long=source.choice([0, 700]))
    plan = make_plan(items, row_pos)
    group = source.randint(1, 8)
    units = build_units(plan, group, 2, window, (16, 64), 4)
    assert seen_by_units(units, plan, window) == seen_by_plan(plan, window)
    for work, lines in ((units.small, 16), (units.large, 64)):
        assert (work.units[:, 1] * group <= lines).all()
        assert (work.units[:, 3] > work.units[:, 2]).all()
        assert (work.segments[:, 1] > 0).all()
    counts = np.zeros(plan.num_rows, dtype=int)
    final = np.zeros(plan.num_rows, dtype=int)
    for first, rows, _, _, place in np.concatenate((units.small.units, units.large.units)).tolist():
        (final if place < 0 else counts)[first : first + rows] += 1
        for row in range(first, first + rows if place >= 0 else first):
            begin, end = units.merge_start[row : row + 2]
            assert place + row - first in units.merge_from[begin:end]
    assert ((counts == 0) == (final == 1)).all()
    assert (np.diff(units.merge_start) == counts).all()
    assert sorted(units.merge_from.tolist()) == list(range(units.partials))


def test_a_long_segment_is_split_over_the_processors(make_plan):
    from ramet.kernels.gpu import attention_units

    plan = make_plan([(0, 4096, 0, 1, 0)], [4095])
    many = attention_units.build_units(plan, 4, 8, None, (16, 64), 132)
    assert len(many.small.units) == 4096 // attention_units.LEAST_SPLIT
    few = attention_units.build_units(plan, 4, 8, None, (16, 64), 4)
    assert len(few.small.units) == 2
    short = attention_units.build_units(make_plan([(0, 9, 0, 1, 0)], [8]), 4, 8, None, (16, 64), 4)
    assert (len(short.small.units), short.partials) == (1, 0)


def test_a_shared_segment_is_read_once_for_a_tile(make_plan):
    from ramet.kernels.gpu.attention_units import build_units

    items = [(0, 200, 0, 64, 0), *((300 + row, 1, row, row + 1, 200) for row in range(64))]
    units = build_units(make_plan(items, [200] * 64), 2, 2, None, (16, 128), 4)
    assert sorted(units.read()) == sorted((slot, length) for slot, length, *_ in items)
    assert (len(units.large.units), len(units.small.units), units.partials) == (1, 64, 128)


def test_a_lone_prefill_is_causal_and_needs_no_merge(make_plan):
    from ramet.kernels.gpu.attention_units import build_units

    units = build_units(make_plan([(10, 100, 0, 100, 0)], range(100)), 1, 1, None, (16, 64), 4)
    assert units.large.units.tolist() == [[0, 64, 0, 1, -1], [64, 36, 1, 2, -1]]
    assert units.large.segments.tolist() == [[10, 64, 0], [10, 100, 0]]
    assert units.partials == 0


def test_a_row_without_keys_is_refused(make_plan):
    from ramet.kernels.gpu.attention_units import build_units

    for items in ([(0, 3, 0, 1, 0)], [(0, 3, 0, 2, 5)], [], [(0, 0, 0, 2, 0)]):
        with pytest.raises(ValueError, match="sees no key"):
            build_units(make_plan(items, [4, 4]), 1, 1, None, (16, 64), 4)
    for items in ([(0, 3, 0, 2, 0)], [(0, 3, 0, 2, 0), (5, 1, 0, 1, 4)]):
        with pytest.raises(ValueError, match=r"row [01] sees no key"):
            build_units(make_plan(items, [4, 4]), 1, 1, 2, (16, 64), 4)
    # A tile some of whose rows see a key and some don't.
    with pytest.raises(ValueError, match="row 0 sees no key"):
        build_units(make_plan([(0, 3, 0, 2, 4)], [3, 5]), 1, 1, None, (16, 64), 4)
