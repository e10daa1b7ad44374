"""Tree attention's kernels against the reference in float64, over odd trees, heads and pools.

Tolerance, with u = eps / 2 the rounding of the dtype and V the largest value: the weights of a row
are rounded to the dtype, which moves their sum with v by u V at most, and the result by u V again;
a score is a float32 sum of `dim` products, whose error, a hundred of float32's steps of it at most,
moves the result by as much of V. Partial results and their merge are float32.
"""

from __future__ import annotations

import random

import pytest
import torch

pytest.importorskip("triton", reason="the GPU's kernels need triton")

from ramet.kernels import reference

SLOTS = 3000
FLOAT32 = torch.finfo(torch.float32).eps


def compare(plan, heads, kv_heads, dim, dtype, window, device, scale=None):
    from ramet.kernels.gpu.tree_attention import tree_attention

    torch.manual_seed(plan.items.shape[1])
    scale = dim**-0.5 if scale is None else scale
    qkv = torch.randn(plan.num_rows, heads + 2, dim).to(device, dtype)
    q = qkv[:, :heads]  # rows lie apart, as in a fused projection
    k, v = torch.randn(2, SLOTS, kv_heads, dim).to(device, dtype)
    got = tree_attention(q, k, v, plan, scale, window)
    wanted = reference.tree_attention(q.double(), k.double(), v.double(), plan, scale, window)
    assert got.dtype == dtype
    assert got.shape == q.shape
    largest = float(v.abs().max())
    eps = 0.0 if dtype == torch.float32 else torch.finfo(dtype).eps
    bound = (eps + 200 * FLOAT32) * largest
    torch.testing.assert_close(got.double(), wanted, rtol=0, atol=bound)


@pytest.mark.parametrize("window", [None, 1, 6, 150])
@pytest.mark.parametrize("seed", range(5))
def test_random_trees(make_plan, tree_items, seed, window, device):
    source = random.Random(seed)
    items, row_pos = tree_items(source, depth=seed + 1, long=source.choice([0, 300]), most=24)
    heads, kv_heads = source.choice([(4, 2), (3, 1), (2, 2), (10, 2)])
    dtype = source.choice([torch.float32, torch.bfloat16, torch.float16])
    compare(make_plan(items, row_pos), heads, kv_heads, 64, dtype, window, device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dim", [64, 80, 96, 128, 256])
def test_head_sizes_and_dtypes(make_plan, tree_items, dim, dtype, device):
    items, row_pos = tree_items(random.Random(dim), depth=2, long=70, most=20)
    compare(make_plan(items, row_pos), 4, 2, dim, dtype, None, device)


@pytest.mark.parametrize("group", range(1, 9))
def test_groups_of_heads(make_plan, tree_items, group, device):
    items, row_pos = tree_items(random.Random(group), depth=1, long=40, most=9)
    compare(make_plan(items, row_pos), group, 1, 64, torch.bfloat16, None, device)


@pytest.mark.parametrize("page", [1, 16])
def test_scattered_pages(make_plan, page, device):
    source = random.Random(page)
    pages = list(range(0, SLOTS - page, page))
    source.shuffle(pages)
    items = [(pages.pop(), min(page, 90 - at), 0, 3, at) for at in range(0, 90, page)] + [
        (pages.pop(), 1, row, row + 1, 90) for row in range(3)
    ]
    compare(make_plan(items, [90] * 3), 2, 1, 64, torch.float16, None, device)


@pytest.mark.parametrize("rows", [1, 17, 300])
def test_chunks_of_a_prompt(make_plan, rows, device):
    items = [(5, 100, 0, rows, 0), (200, rows, 0, rows, 100)]
    compare(make_plan(items, range(100, 100 + rows)), 2, 1, 64, torch.bfloat16, None, device)
    compare(make_plan(items, range(100, 100 + rows)), 2, 2, 64, torch.float32, 33, device)


def test_forks_and_a_prompt_in_one_step(make_plan, device):
    items = [(0, 600, 0, 40, 0)]
    items += [(700 + 4 * row, 1 + row % 4, row, row + 1, 600) for row in range(40)]
    items += [(1000, 50, 40, 90, 0)]
    row_pos = [600 + row % 4 for row in range(40)] + list(range(50))
    compare(make_plan(items, row_pos), 6, 2, 64, torch.bfloat16, None, device)


def test_empty_items_and_capacity(make_plan, device):
    """Empty items lie among the live ones, as padding would."""
    items = [(0, 0, 0, 2, 0), (4, 9, 0, 2, 0), (7, 5, 1, 1, 3), (0, 0, 0, 0, 0)]
    compare(make_plan(items, [8, 8]), 2, 1, 64, torch.float32, None, device)


def test_extreme_scores_stay_exact(make_plan, device):
    plan = make_plan([(0, 400, 0, 2, 0), (500, 3, 0, 1, 400), (600, 3, 1, 2, 400)], [402, 402])
    compare(plan, 2, 1, 64, torch.float32, None, device, scale=0.0)
    compare(plan, 2, 1, 64, torch.float32, None, device, scale=1.0)


def test_layers_share_tables_and_memory(make_plan, device):
    from ramet.kernels.gpu.tree_attention import tree_attention

    gathered = []
    items = [(0, 300, 0, 2, 0), (400, 1, 0, 1, 300), (401, 1, 1, 2, 300)]
    plan = make_plan(items, [300, 300], gathered)
    q, pool = torch.randn(2, 2, 64, device=device), torch.randn(500, 1, 64, device=device)
    first = tree_attention(q, pool, pool, plan, 0.125)
    count = len(plan.derived)
    assert torch.equal(first, tree_attention(q, pool, pool, plan, 0.125))
    assert len(plan.derived) == count
    assert sum(length for _, length in gathered) == 2 * 302
    tree_attention(q, pool, pool, plan, 0.125, 5)
    assert sum(length for _, length in gathered) == 2 * 302 + 6


def test_it_refuses_what_does_not_fit(make_plan, device):
    from ramet.kernels.gpu.tree_attention import tree_attention

    plan = make_plan([(0, 5, 0, 2, 0)], [4, 4])
    q, pool = torch.zeros(2, 4, 64), torch.zeros(9, 2, 64)
    for wrong in (
        (q[:1], pool, pool),
        (q[:, :3], pool, pool),
        (q, pool.half(), pool),
        (q, pool, pool[:8]),
        (q.double(), pool.double(), pool.double()),
        (q[:, :, :32], pool, pool),
    ):
        with pytest.raises(ValueError, match="tree_attention"):
            tree_attention(*wrong, plan, 1.0)
    with pytest.raises(ValueError, match="heads of a KV head"):
        tree_attention(torch.zeros(2, 64, 64), pool[:, :1], pool[:, :1], plan, 1.0)
    with pytest.raises(ValueError, match="sees no key"):
        tree_attention(q, pool, pool, make_plan([(0, 3, 0, 1, 0)], [4, 4]), 1.0)
    nothing = tree_attention(q[:0], pool, pool, make_plan([], []), 1.0)
    assert nothing.shape == (0, 4, 64)
