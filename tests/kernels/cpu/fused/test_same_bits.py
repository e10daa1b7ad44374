"""A row's attention is the same, to the bit, in whatever batch, slots, parts and threads."""

from __future__ import annotations

import random

import pytest
import torch
from fused_attention import FusedAttention


class Tree:
    """A random tree of tokens, each with keys, values and queries of its own."""

    def __init__(self, source, depth, longest, kv_heads, group, dim):
        self.parents, self.lengths, self.starts = [], [], []
        self._grow(source, -1, 0, depth, longest)
        torch.manual_seed(source.randrange(1000))
        self.k, self.v = [
            [3 * torch.randn(n, kv_heads, dim).bfloat16().float() for n in self.lengths]
            for _ in range(2)
        ]
        self.q = [torch.randn(n, kv_heads * group, dim).bfloat16().float() for n in self.lengths]

    def _grow(self, source, parent, start, depth, longest):
        length = source.choice([1, 2, 3, 15, 16, 33, longest])
        self.parents.append(parent)
        self.lengths.append(length)
        self.starts.append(start)
        node = len(self.parents) - 1
        for _ in range(source.randint(1, 3) if depth else 0):
            self._grow(source, node, start + length, depth - 1, longest)

    def path(self, node):
        """The nodes from the root to this one."""
        return [] if node < 0 else [*self.path(self.parents[node]), node]


def scattered(source, tree, most):
    """Where each node's tokens lie, as lists of (slot, count): in pieces of up to `most` tokens,
    in any order, even positions at even slots if `most` is even."""
    segments = [[(0, 0)] * -(-length // most) for length in tree.lengths]
    pieces = [(node, i) for node in range(len(segments)) for i in range(len(segments[node]))]
    slot = 0
    for node, i in source.sample(pieces, len(pieces)):
        position = tree.starts[node] + i * most
        slot += source.choice([0, 1, 16])
        slot += (slot - position) % 2 if most % 2 == 0 else 0
        count = min(most, tree.lengths[node] - i * most)
        segments[node][i] = (slot, count)
        slot += count
    return segments


def in_a_row(tree, node):
    """One path in consecutive slots, as one that is computed alone."""
    found, slot = {}, 0
    for step in tree.path(node):
        found[step] = [(slot, tree.lengths[step])]
        slot += tree.lengths[step]
    return found


def run(make_plan, tree, segments, rows, window, threads):
    """{(node, token): the attention of that row} for the last `rows[node]` tokens of nodes."""
    owners = [
        (node, token)
        for node in sorted(rows)
        for token in range(tree.lengths[node] - rows[node], tree.lengths[node])
    ]
    row_pos = [tree.starts[node] + token for node, token in owners]
    items, shown = [], {n for leaf in rows for n in tree.path(leaf)}
    for node in shown:
        mine = [i for i, (owner, _) in enumerate(owners) if node in tree.path(owner)]
        at = tree.starts[node]
        for slot, count in segments[node]:
            items.append((slot, count, mine[0], mine[-1] + 1, at))
            at += count
    slots = max(slot + count for slot, count, *_ in items)
    k, v = torch.randn(2, slots, *tree.k[0].shape[1:])
    for node in shown:
        at = 0
        for slot, count in segments[node]:
            k[slot : slot + count] = tree.k[node][at : at + count]
            v[slot : slot + count] = tree.v[node][at : at + count]
            at += count
    q = torch.stack([tree.q[node][token] for node, token in owners])
    done = FusedAttention(q, k, v, make_plan(items, row_pos), 0.3, window, threads)
    return dict(zip(owners, done.run(), strict=True))


@pytest.mark.parametrize("most", [1, 7, 16, 10_000])
@pytest.mark.parametrize("window", [None, 7, 100])
@pytest.mark.parametrize("seed", range(6))
def test_alone_or_in_a_batch(make_plan, seed, window, most):
    source = random.Random(f"{seed}{window}{most}")
    group, dim = source.choice([(1, 32), (3, 64), (4, 96), (8, 80)])
    tree = Tree(source, source.randint(1, 4), source.choice([40, 140, 700]), 2, group, dim)
    segments = scattered(source, tree, most)
    rows = {
        node: source.randint(1, min(length, 90))
        for node, length in enumerate(tree.lengths)
        if node not in tree.parents or source.random() < 0.4
    }
    together = run(make_plan, tree, segments, rows, window, 2)
    for threads in (1, 16):
        again = run(make_plan, tree, segments, rows, window, threads)
        assert all(torch.equal(again[key], together[key]) for key in together)
    for node in source.sample(sorted(rows), min(len(rows), 6)):
        alone = run(make_plan, tree, in_a_row(tree, node), {node: rows[node]}, window, 1)
        for key, row in alone.items():
            assert torch.equal(row, together[key]), key
        last = tree.lengths[node] - 1
        single = run(make_plan, tree, in_a_row(tree, node), {node: 1}, window, 2)
        assert torch.equal(single[node, last], together[node, last])
