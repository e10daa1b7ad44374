"""The tables of a step: what is packed comes out, what a step doesn't fill is empty."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="the GPU's kernels need triton")

CPU = torch.device("cpu")


def maker(windows=(None,), heads=4, kv_heads=2, dim=64, dtype=torch.bfloat16):
    from ramet.kernels.gpu.attention_tables import PlanTables

    return PlanTables(heads, kv_heads, dim, windows, dtype, CPU)


def decoding(source, rows, length):
    """A plan of decoding rows over a shared prefix, each with a tail of its own."""
    items = [(0, length, 0, rows, 0)]
    items += [(1000 + 20 * row, source.randint(1, 9), row, row + 1, length) for row in range(rows)]
    return items, [length + item[1] - 1 for item in items[1:]]


def packed(tables, plan, rooms):
    from ramet.kernels.gpu.attention_tables import pack

    units = tables.cut(plan)
    flat = np.full(sum(sum(room.sizes) for room in rooms), 77, dtype=np.int32)
    at = 0
    for found, room in zip(units, rooms, strict=True):
        pack(found, plan.row_pos, room, flat[at : at + sum(room.sizes)])
        at += sum(room.sizes)
    tables.attach(plan, units, rooms, torch.from_numpy(flat))
    return units


def test_tables_begin_at_16_bytes_and_the_rest_is_empty(make_plan):
    from ramet.kernels.gpu.attention_tables import Capacity, table_key

    plan = make_plan(*decoding(random.Random(1), 5, 200))
    tables = maker(windows=(None, 64, None))
    assert tables.windows == (None, 64)
    rooms = [Capacity(8, 11, 21, 3, 9, 50), Capacity(8, 9, 20, 2, 7, 70)]
    for units, room, window in zip(packed(tables, plan, rooms), rooms, (None, 64), strict=True):
        assert room.holds(Capacity.of(units, plan.num_rows))
        kept, found = plan.derived[table_key(window)]
        assert kept is units
        for work, table, segments in (
            (units.small, found.small, found.small_segments),
            (units.large, found.large, found.large_segments),
        ):
            count = len(work.units)
            assert table[:count].tolist() == work.units.tolist()
            assert not bool(table[count:].any())
            assert segments[: len(work.segments)].tolist() == work.segments.tolist()
        assert found.row_pos[:5].tolist() == plan.row_pos.tolist()
        assert found.merge_start[:6].tolist() == units.merge_start.tolist()
        assert found.merge_start[6:].tolist() == [units.partials] * 3  # and so nothing to merge
        assert found.merge_from[: units.partials].tolist() == units.merge_from.tolist()
        assert (found.partials, len(found.merge_from)) == (room.partials,) * 2
        for table in (found.small, found.large, found.merge_start, found.merge_from):
            assert table.dtype == torch.int32
            assert (table.data_ptr() - found.row_pos.data_ptr()) % 16 == 0


@pytest.mark.parametrize("rows", [1, 2, 8, 64, 256])
@pytest.mark.parametrize("length", [1, 100, 4096, 100_000])
def test_a_graph_has_room_for_usual_steps(make_plan, rows, length):
    from ramet.kernels.gpu.attention_tables import Capacity

    shapes = [decoding(random.Random(rows), rows, length)]
    apart = [(row * length, length, row, row + 1, 0) for row in range(rows)]
    shapes.append((apart, [length - 1] * rows))
    tables = maker(heads=32, kv_heads=8, dim=128)
    room = tables.decode_room(rows)
    for items, row_pos in shapes:
        (units,) = tables.cut(make_plan(items, row_pos))
        assert room.holds(Capacity.of(units, rows)), (room, Capacity.of(units, rows))


@pytest.mark.parametrize("window", [None, 5, 60])
def test_attention_over_packed_tables(make_plan, window):
    """Rows beyond those of the step are computed, too, and mean nothing."""
    from ramet.kernels import reference
    from ramet.kernels.gpu.tree_attention import tree_attention

    torch.manual_seed(3)
    items, row_pos = decoding(random.Random(5), 6, 70)
    tables = maker(windows=(window,), dtype=torch.float32)
    captured = make_plan([], [0] * 16)
    room = tables.decode_room(16)
    live = make_plan(items, row_pos)
    packed(tables, live, [room])
    captured.derived.update(live.derived)
    q = torch.randn(16, 4, 64)
    k, v = torch.randn(2, 1200, 2, 64)
    got = tree_attention(q, k, v, captured, 0.125, window)
    plain = make_plan(items, row_pos)
    wanted = reference.tree_attention(q[:6].double(), k.double(), v.double(), plain, 0.125, window)
    torch.testing.assert_close(got[:6].double(), wanted, rtol=0, atol=1e-4)
