"""Audit: recount the whole cache from first principles and compare with the books.

For tests and for whoever debugs a leak; costs a walk over every node.
"""

from __future__ import annotations

from collections import Counter

from ramet.runtime.cache.node import EVER, Node
from ramet.runtime.cache.radix_tree import RadixTree


def audit(tree: RadixTree, in_flight: bool = False) -> None:
    """Raise AssertionError naming the first broken invariant of the tree or the ledger.

    `in_flight` allows slots that are reserved by a step whose results are not in yet.
    """
    pool = tree.pool
    used: Counter[int] = Counter()
    holds: Counter[int] = Counter()
    for node in tree.nodes():
        _check_node(node, in_flight)
        pages = {page for segment in node.segments for page in pool.pages_of(segment)}
        position = node.start
        for start, count in node.segments:
            odd = (start - position) % 2 and pool.page_size % 2 == 0
            assert not odd, f"{node}: position {position} has slot {start}"
            position += count
            for slot in range(start, start + count):
                used[slot] += 1
        if node.held:
            holds.update(pages)
    assert all(count == 1 for count in used.values()), "a slot has two owners"
    fills: Counter[int] = Counter(slot // pool.page_size for slot in used)
    for page in range(pool.num_pages):
        assert pool.fill_of(page) == fills[page], f"page {page}: fill {pool.fill_of(page)}"
        slots = [s for s in used if s // pool.page_size == page]
        if slots:
            first = min(slots) % pool.page_size
            assert first <= 1, f"page {page} begins with a hole"
            assert max(slots) - min(slots) < len(slots), f"page {page} has holes"
        assert pool.holds_of(page) == holds[page], f"page {page}: holds {pool.holds_of(page)}"
    assert pool.held_pages == len(+holds)
    assert pool.free_pages == pool.num_pages - len(fills)


def audit_idle(tree: RadixTree) -> None:
    """`audit`, and: nothing is held, so free + cached = total."""
    audit(tree)
    assert tree.pool.held_pages == 0, f"{tree.pool.held_pages} pages are held at idle"
    assert tree.pool.free_pages + tree.pool.cached_pages == tree.pool.num_pages
    assert all(node.held == 0 for node in tree.nodes())


def _check_node(node: Node, in_flight: bool) -> None:
    slots = sum(count for _, count in node.segments)
    assert slots == node.computed or (in_flight and slots > node.computed), f"{node}: {slots} slots"
    assert len(node.marks) == len(node.tokens), f"{node}: {len(node.marks)} marks"
    assert sum(count for count, _ in node.origins) == len(node.tokens), f"{node}: {node.origins}"
    assert sum(count for count, _ in node.evictors) <= len(node.tokens), f"{node}: {node.evictors}"
    assert node.computed <= len(node.tokens)
    assert all(mark & EVER for mark in node.marks[: node.computed]), f"{node}: uncounted tokens"
    assert node.kv_children == sum(bool(c.segments) for c in node.children.values()), f"{node}"
    for lane in {lane for step in (node, *node.children.values()) for lane in step.waits}:
        waits = node.waits[lane]
        under = {
            first: c.waits[lane].count for first, c in node.children.items() if lane in c.waits
        }
        assert waits.count == len(waits.here) + sum(under.values()) > 0, f"{node}: {waits}"
        assert set(waits.below) == set(under), f"{node}: {waits}"
    below = sum(child.held for child in node.children.values())
    assert 0 <= below <= node.held, f"{node}: {below} held below"
    for first, child in node.children.items():
        assert child.parent is node
        assert child.tokens, f"{child} is empty"
        assert child.tokens[0] == first
        assert child.start == node.end
        assert not child.segments or node.computed == len(node.tokens) or in_flight, (
            f"{child} is computed below {node}"
        )
    if node.parent is not None and not node.refs:
        assert len(node.children) != 1, f"{node} should be merged with its child"
        assert node.children or node.computed == len(node.tokens), f"{node} plans for nobody"
