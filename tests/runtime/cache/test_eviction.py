from ramet.runtime.cache.eviction import (
    CACHE,
    FINISHED,
    EvictionQueue,
    evictable,
    eviction_key,
    future_of,
)
from ramet.runtime.cache.node import Node
from ramet.runtime.cache.page_pool import PagePool
from ramet.runtime.cache.radix_tree import RadixTree
from ramet.runtime.cache.waits import add_waiting


def node(last_used: int, refs: int = 0, held: int = 0, kv_children: int = 0) -> Node:
    made = Node(Node(None, [], 0, False), [1], 0, False)
    made.segments = [(0, 1)]
    made.last_used, made.refs, made.held, made.kv_children = last_used, refs, held, kv_children
    return made


def test_finished_paths_go_before_live_ones_then_the_least_recently_used():
    nodes = [node(5), node(1, refs=1), node(3), node(9)]
    order = sorted(nodes, key=eviction_key)
    assert [n.last_used for n in order] == [3, 5, 9, 1]


def test_what_runs_or_carries_others_is_no_candidate():
    assert evictable(node(0))
    assert not evictable(node(0, held=1))
    assert not evictable(node(0, kv_children=1))
    empty = node(0)
    empty.segments = []
    assert not evictable(empty)


def test_a_key_that_grew_is_put_back_in_order():
    queue = EvictionQueue()
    first, second = node(1), node(2)
    for item in (first, second):
        queue.offer(item)
    first.last_used = 3
    assert queue.pop() is second
    assert queue.pop() is first
    assert queue.pop() is None


def test_stale_entries_are_swept():
    queue = EvictionQueue()
    item = node(1)
    for _ in range(5000):
        queue.offer(item)
    assert len(queue._heap) <= 1100
    assert queue.pop() is item


def test_what_is_known_of_the_future_comes_before_recency():
    live, cached, over, awaited = node(1, refs=1), node(2), node(9), node(0, refs=1)
    over.finished = True
    add_waiting(awaited, 0, "somebody")
    order = sorted([awaited, live, cached, over], key=eviction_key)
    assert order == [over, cached, live, awaited]


def test_coming_back_to_a_finished_path_makes_it_cache_again():
    tree = RadixTree(PagePool(16, 4))
    end = tree.extend(tree.root(), [1, 2, 3])
    tree.hold(end)
    tree.reserve(end, 3)
    tree.commit(end, 3)
    tree.unhold(end)
    tree.release(end, finished=True)
    assert future_of(end) == FINISHED
    other = tree.extend(tree.root(), [1, 2, 3, 4])
    assert not end.finished
    tree.release(other)
    assert future_of(other) == CACHE
    tree.evict(16)
    assert tree.pool.free_pages == 16
