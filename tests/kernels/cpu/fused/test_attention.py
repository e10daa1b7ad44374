"""The fused attention against the reference, on inputs rounded to bfloat16."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fused_attention import FusedAttention, tree_attention

from ramet.kernels import reference

# An output is rounded once to bfloat16, 2^-9 of it; so are weights, of values up to about 4.
TOLERANCE = 8e-3


def random_tree(source, page_size, depth, num_slots, longest):
    """Items and row positions of a depth-first batch: `longest` slots in the longest segment."""
    step = 16 if page_size == 16 else 1
    free, long_ones = list(range(0, 2000, step)), [2000]
    source.shuffle(free)
    items, row_pos = [], []

    def segment(length, position):
        if page_size == 1 and length < 40:
            return [(free.pop(), 1, position + i) for i in range(length)]
        if length <= step:
            return [(free.pop(), length, position)]
        first = source.choice([0, 7]) if step == 1 else 0
        first, long_ones[0] = long_ones[0] + first, long_ones[0] + -(-length // 16) * 16 + 16
        return [(first, length, position)]

    def visit(level, position):
        first = len(row_pos)
        length = source.choice([1, 3, 16, 17, 33, longest if level == 0 else 5])
        segments, end = segment(length, position), position + length
        new = min(length, source.choice([0, 1, 1, 2, 40]))
        row_pos.extend(range(end - new, end))
        for _ in range(source.randint(1, 2) if level < depth else 0):
            visit(level + 1, end)
        if len(row_pos) == first:
            row_pos.append(end - 1)
        items.extend((slot, size, first, len(row_pos), pos) for slot, size, pos in segments)

    for _ in range(source.randint(1, 3)):
        visit(0, 0)
    assert long_ones[0] <= num_slots
    source.shuffle(items)
    items.insert(len(items) // 2, (3, 0, 0, len(row_pos), 0))
    return items, row_pos


def compare(plan, group, kv_heads, dim, num_slots, window=None, threads=1):
    torch.manual_seed(plan.items.shape[1])
    q = torch.randn(plan.num_rows, group * kv_heads, dim).bfloat16().float()
    k, v = torch.randn(2, num_slots, kv_heads, dim).bfloat16().float()
    wanted = reference.tree_attention(q, k, v, plan, dim**-0.5, window)
    unused = torch.ones(num_slots, dtype=torch.bool)
    for start, length, *_ in plan.items.T.tolist():
        unused[start : start + length] = False
    # Stale slots hold anything; a broken one is written as such.
    k[unused], v[unused] = 1e30, -1e30
    k[unused & (torch.arange(num_slots) % 3 == 0)] = float("nan")
    v[unused & (torch.arange(num_slots) % 5 == 0)] = float("inf")
    got = tree_attention(q, k, v, plan, dim**-0.5, window, threads)
    torch.testing.assert_close(got, wanted, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("window", [None, 1, 6, 150])
@pytest.mark.parametrize("seed", range(10))
def test_random_trees(make_plan, seed, window, page_size):
    source = random.Random(seed)
    longest = source.choice([5, 130, 300])
    items, row_pos = random_tree(source, page_size, seed % 7, 12_000, longest)
    dim, group = source.choice([16, 64, 80, 96, 128]), source.randint(1, 8)
    threads = source.choice([1, 2, 3, 16])
    compare(make_plan(items, row_pos), group, source.randint(1, 3), dim, 12_000, window, threads)


@pytest.mark.parametrize("dim", [16, 24, 64, 80, 96, 128])
@pytest.mark.parametrize("group", range(1, 9))
def test_head_sizes_and_groups(make_plan, dim, group):
    items = [(5, 70, 0, 9, 0), (80, 9, 0, 9, 70), (100, 3, 4, 5, 79), (120, 64, 8, 9, 79)]
    plan = make_plan(items, [*range(70, 74), 81, *range(76, 79), 142])
    compare(plan, group, 2, dim, 200, threads=2)


@pytest.mark.parametrize("rows", [1, 2, 13, 14, 15, 63, 64, 65, 129, 300])
def test_prefill_beside_decoding_rows(make_plan, rows):
    items = [(7, 90, 0, rows + 20, 0), (112, rows, 0, rows, 90)]
    items += [(500 + 3 * row, 3, rows + row, rows + row + 1, 90) for row in range(20)]
    plan = make_plan(items, [*range(90, 90 + rows), *[92] * 20])
    for window in (None, 40):
        compare(plan, 3, 2, 64, 600, window, threads=2)


def test_one_row_over_many_keys(make_plan):
    for threads in (1, 2, 8, 64):
        compare(make_plan([(3, 1000, 0, 1, 0)], [999]), 3, 1, 64, 1010, None, threads)


def test_a_slot_at_a_time(make_plan):
    slots = random.Random(3).sample(range(3000), 900)
    items = [(slots[i], 1, 0, 40, i) for i in range(500)]
    items += [(slots[500 + 10 * r + i], 1, r, r + 1, 500 + i) for r in range(40) for i in range(10)]
    plan = make_plan(items, [509] * 40)
    for window in (None, 30):
        compare(plan, 3, 2, 64, 3000, window, threads=2)


def test_large_scores_need_no_luck(make_plan):
    plan = make_plan([(0, 300, 0, 20, 0)], [299] * 20)
    torch.manual_seed(0)
    q = (30 * torch.randn(20, 2, 32)).bfloat16().float()
    k, v = torch.randn(2, 300, 1, 32).bfloat16().float()
    k[150:] *= 30
    got, wanted = tree_attention(q, k, v, plan, 1.0), reference.tree_attention(q, k, v, plan, 1.0)
    torch.testing.assert_close(got, wanted, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("broken", ["q", "k", "v", "v_inf"])
def test_a_broken_row_reaches_only_who_sees_it(make_plan, broken):
    items = [(0, 100, 0, 30, 0), *((100 + row, 1, row, row + 1, 100) for row in range(30))]
    plan = make_plan(items, [100] * 30)
    torch.manual_seed(0)
    q = torch.randn(30, 4, 64).bfloat16().float()
    k, v = torch.randn(2, 130, 2, 64).bfloat16().float()
    wanted = reference.tree_attention(q, k, v, plan, 0.125)
    if broken == "q":
        q[17] = float("nan")
    elif broken == "k":
        k[117, :, 5] = float("nan")
    else:
        v[117, :, 5] = float("inf" if broken == "v_inf" else "nan")
    for threads in (1, 8):
        got = tree_attention(q, k, v, plan, 0.125, None, threads)
        assert bool(got[17].isnan().all())
        others = torch.arange(30) != 17
        torch.testing.assert_close(got[others], wanted[others], rtol=TOLERANCE, atol=TOLERANCE)


def test_a_row_whose_scores_all_overflow_is_no_number(make_plan):
    plan = make_plan([(0, 100, 0, 3, 0)], [99] * 3)
    torch.manual_seed(0)
    q, (k, v) = torch.randn(3, 4, 64).bfloat16().float(), torch.randn(2, 100, 2, 64).bfloat16()
    k, v = k.float().abs(), v.float()
    wanted = reference.tree_attention(q, k, v, plan, 0.125)
    q[1] = -3e38
    for threads in (1, 8):
        got = tree_attention(q, k, v, plan, 0.125, None, threads)
        assert bool(got[1].isnan().all())
        torch.testing.assert_close(got[::2], wanted[::2], rtol=TOLERANCE, atol=TOLERANCE)


def test_a_row_without_keys_is_refused(make_plan):
    q, pool = torch.randn(2, 2, 16), torch.randn(2, 40, 1, 16)
    for items in ([(0, 3, 0, 1, 0)], [(0, 3, 0, 2, 5)], []):
        with pytest.raises(ValueError, match="sees no key"):
            tree_attention(q, *pool, make_plan(items, [4, 4]), 1.0)


def test_parts_may_be_done_in_any_order(make_plan):
    plan = make_plan([(0, 700, 0, 5, 0)], [699] * 5)
    torch.manual_seed(0)
    q, (k, v) = torch.randn(5, 6, 64), torch.randn(2, 700, 2, 64)
    one, other = (FusedAttention(q, k, v, plan, 0.1, None, 4) for _ in range(2))
    for task in reversed(range(one.tasks)):
        one.run_tasks(task, task + 1, thread=task % 2)
    one.merge()
    other.run()
    assert torch.equal(one.attended, other.attended)


def test_without_bfloat16_products():
    """The same on an older processor, as far as the compiler is concerned."""
    here = Path(__file__)
    environment = {
        **os.environ,
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+sse2,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+popcnt",
        "RAMET_TEST_INNER": "1",
    }
    if "RAMET_TEST_INNER" in os.environ:
        pytest.skip("this is the inner run")
    names = ["random_trees and 3-None", "prefill_beside and 65", "broken_row", "slot_at_a_time"]
    chosen = " or ".join(f"({name})" for name in [*names, "rounded", "80"])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", str(here.parent), "-k", chosen],
        env=environment, cwd=here.parents[4], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
