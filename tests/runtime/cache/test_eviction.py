from ramet.runtime.cache.absence import Away
from ramet.runtime.cache.eviction import (
    AWAY,
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


def drain(queue: EvictionQueue) -> list[Node]:
    """All candidates in order, each given up whole."""
    found = []
    while (item := queue.pop()) is not None:
        item.segments = []
        found.append(item)
    return found


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
    assert sum(map(len, queue._heaps.values())) <= 1100
    assert queue.pop() is item


def test_contexts_that_are_over_are_not_kept_in_mind():
    queue = EvictionQueue(now=lambda: 1.0)
    for _ in range(5000):
        item = away(0.0)
        queue.offer(item)
        item.segments = []
    assert len(queue._away) == len(queue._listed) <= 1025
    last = away(0.0)
    queue.offer(last)
    assert queue.pop() is last


def test_what_is_known_of_the_future_comes_before_recency():
    live, cached, over, awaited = node(1, refs=1), node(2), node(9), node(0, refs=1)
    over.finished = True
    add_waiting(awaited, 0, "somebody")
    order = sorted([awaited, live, cached, over], key=eviction_key)
    assert order == [over, cached, live, awaited]


def away(since: float, site: str = "a:1") -> Node:
    made = node(1, refs=1)
    made.away = Away(site, since)
    return made


def test_who_is_expected_back_last_goes_first():
    queue = EvictionQueue(now=lambda: 100.0)
    for seconds in (4.0, 6.0):
        queue.absences.record("quick:1", seconds)
        queue.absences.record("slow:1", 60.0)
    quick, late, slow, unknown = (
        away(98.0, "quick:1"),
        away(80.0, "quick:1"),
        away(99.0, "slow:1"),
        away(90.0, "new:1"),
    )
    for item in (quick, late, slow, unknown):
        assert future_of(item) == AWAY
        queue.offer(item)
    assert drain(queue) == [slow, late, unknown, quick], "in 59, 20, 10 and 3 seconds"


def test_those_away_go_after_what_is_only_cache_and_before_those_who_are_here():
    queue = EvictionQueue(now=lambda: 5.0)
    gone, cached, live = away(1.0), node(9), node(0, refs=1)
    for item in (live, gone, cached):
        queue.offer(item)
    assert drain(queue) == [cached, gone, live]


def test_in_a_crowd_the_shortest_paths_go_first_and_the_waiting_before_the_others():
    queue = EvictionQueue(now=lambda: 5.0)
    short, long = node(2, refs=1), node(1, refs=1)
    brief, far, live, cached = away(0.0), away(4.0), node(0, refs=1), node(9)
    for item, length in ((short, 3), (long, 8), (brief, 2), (far, 6)):
        item.start = length
    for number, item in enumerate((long, short)):
        add_waiting(item, 0, number)
    items = (long, short, live, far, brief, cached)

    def order(crowded: bool) -> list[Node]:
        queue.crowded = crowded
        for item in items:
            item.segments = [(0, 1)]
            queue.offer(item)
        return drain(queue)

    assert order(crowded=True) == [cached, short, long, brief, far, live]
    assert order(crowded=False) == [cached, brief, far, live, short, long]


def test_one_that_has_come_back_is_live_again():
    queue = EvictionQueue(now=lambda: 5.0)
    back, gone = away(0.0), away(4.0)
    for item in (back, gone):
        queue.offer(item)
    back.away = None
    assert queue.pop() is gone
    gone.held = 1
    assert queue.pop() is back
    back.held = 1
    assert queue.pop() is None


def test_one_that_moves_to_an_earlier_queue_is_found():
    queue = EvictionQueue()
    item = node(1, refs=1)
    add_waiting(item, 0, "somebody")
    queue.offer(item)
    item.waits.clear()
    item.refs = 0
    assert queue.pop() is item
    item.segments = []
    assert queue.pop() is None


def test_without_foresight_only_recency_counts():
    queue = EvictionQueue(foresight=False)
    live, over, gone = node(1, refs=1), node(3), away(0.0)
    over.finished = True
    gone.last_used = 2
    for item in (over, gone, live):
        queue.offer(item)
    assert drain(queue) == [live, gone, over]


def test_coming_back_to_a_finished_path_makes_it_cache_again():
    tree = RadixTree(PagePool(16, 4))
    end = tree.extend(tree.root(), [1, 2, 3])
    tree.hold(end)
    tree.reserve(end, 3)
    tree.commit([(end, 3)])
    tree.unhold(end)
    tree.release(end, finished=True)
    assert future_of(end) == FINISHED
    other = tree.extend(tree.root(), [1, 2, 3, 4])
    assert not end.finished
    tree.release(other)
    assert future_of(other) == CACHE
    tree.evict(16)
    assert tree.pool.free_pages == 16
