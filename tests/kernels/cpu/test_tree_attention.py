"""The CPU's tree attention against the reference, over random trees and every kind of part."""

from __future__ import annotations

import random

import pytest
import torch

from ramet.kernels import reference
from ramet.kernels.cpu import tree_attention as cpu

TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}


def random_tree(source, num_slots, long=1):
    """Items and row positions of a random depth-first batch over scattered segments."""
    free = list(range(0, num_slots, 8))
    source.shuffle(free)
    items, row_pos = [], []

    def visit(depth, position):
        first = len(row_pos)
        segments, end = [], position
        for _ in range(source.randint(1, 3)):
            length = source.randint(1, 8)
            segments.append((free.pop(), length, end))
            end += length
        if depth == 0 and long > 1:
            segments.append((num_slots, long, end))
            end += long
        new = source.choice([0, 1, 1, 2, min(40, end - position)])
        row_pos.extend(range(end - new, end))
        for _ in range(source.randint(0, 3) if depth < 3 else 0):
            visit(depth + 1, end)
        if len(row_pos) == first:
            row_pos.append(end - 1)
        items.extend((slot, length, first, len(row_pos), pos) for slot, length, pos in segments)

    for _ in range(source.randint(1, 4)):
        visit(0, 0)
        long = 1
    source.shuffle(items)
    return items, row_pos


def compare(plan, heads, kv_heads, dim, num_slots, dtype, window):
    torch.manual_seed(plan.items.shape[1])
    q = torch.randn(plan.num_rows, heads, dim).to(dtype)
    k, v = torch.randn(2, num_slots, kv_heads, dim).to(dtype)
    got = cpu.tree_attention(q, k, v, plan, dim**-0.5, window)
    wanted = reference.tree_attention(q, k, v, plan, dim**-0.5, window)
    assert got.dtype == dtype
    torch.testing.assert_close(got, wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("window", [None, 1, 6, 150])
@pytest.mark.parametrize("seed", range(12))
def test_random_trees(make_plan, seed, window):
    source = random.Random(seed)
    items, row_pos = random_tree(source, 4000, long=source.choice([1, 130, 300]))
    plan = make_plan(items, row_pos)
    heads, kv_heads = source.choice([(4, 2), (3, 1), (2, 2)])
    compare(plan, heads, kv_heads, 8, 4400, torch.float64, window)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_dtypes(make_plan, dtype):
    items, row_pos = random_tree(random.Random(5), 4000, long=200)
    compare(make_plan(items, row_pos), 6, 2, 16, 4400, dtype, None)


def test_many_private_segments_share_calls(make_plan):
    items = [(0, 300, 0, 64, 0)]
    for row in range(64):
        items += [(400 + 40 * row, 9, row, row + 1, 300), (420 + 40 * row, 7, row, row + 1, 309)]
    plan = make_plan(items, [315] * 64)
    layout = cpu.build_layout(plan, None, 3, torch.float32)
    assert len(layout.parts) <= 2
    assert layout.depth == 2
    assert layout.bias is None
    compare(plan, 6, 2, 8, 3000, torch.float32, None)


def test_a_lone_prefill_needs_no_merge_and_no_copy(make_plan):
    plan = make_plan([(10, 40, 0, 40, 0)], range(40))
    layout = cpu.build_layout(plan, None, 1, torch.float32)
    assert (len(layout.parts), layout.index, layout.bias) == (1, None, None)
    assert layout.parts[0].keys == slice(10, 50)
    assert layout.parts[0].mask is not None
    compare(plan, 2, 2, 8, 60, torch.float32, None)


def test_keys_beyond_the_window_are_not_read(make_plan):
    gathered = []
    plan = make_plan([(0, 500, 0, 2, 0), (600, 4, 0, 2, 500)], [502, 503], gathered)
    compare(plan, 2, 1, 8, 700, torch.float64, 3)
    assert gathered[:1] == [(600, 4)]
    plan = make_plan([(0, 500, 0, 2, 0), (600, 2, 0, 2, 500)], [500, 501], gathered)
    gathered.clear()
    compare(plan, 2, 1, 8, 700, torch.float64, 3)
    assert sorted(gathered[:2]) == [(498, 2), (600, 2)]


def test_a_shared_segment_is_read_once(make_plan):
    gathered = []
    items = [(0, 20, 0, 30, 0), *((100 + row, 1, row, row + 1, 20) for row in range(30))]
    plan = make_plan(items, [20] * 30, gathered)
    cpu.tree_attention(torch.randn(30, 2, 8), *torch.randn(2, 200, 1, 8), plan, 1.0)
    assert sorted(gathered) == sorted((slot, length) for slot, length, *_ in items)


def test_a_row_without_keys_is_refused(make_plan):
    for items in ([(0, 3, 0, 1, 0)], [(0, 3, 0, 2, 5)], []):
        with pytest.raises(ValueError, match="sees no key"):
            cpu.build_layout(make_plan(items, [4, 4]), None, 1, torch.float32)
