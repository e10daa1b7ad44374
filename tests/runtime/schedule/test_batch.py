import copy

from ramet.runtime.cache.page_pool import PagePool
from ramet.runtime.cache.radix_tree import RadixTree
from ramet.runtime.schedule.batch import Batch, Layout, build_batch


def test_a_shared_segment_is_one_item_for_all_rows_beneath_it():
    tree = RadixTree(PagePool(16, 4))
    shared = tree.extend(tree.root(), [1, 2, 3])
    tails = [tree.extend(tree.fork(shared), [10 + i]) for i in range(3)]
    for node in tails:
        tree.hold(node)
    tree.reserve(shared, 3)
    tree.commit([(shared, 3)])
    for node in tails:
        tree.reserve(node, 1)
    batch = build_batch([(node, 1) for node in tails], [])
    items = batch.items
    assert batch.token_ids == [10, 11, 12]
    assert batch.positions == [3, 3, 3]
    wide = [i for i in range(len(items.length)) if items.row_end[i] - items.row_start[i] == 3]
    assert [items.length[i] for i in wide] == [3]
    assert len(items.length) == 4


def test_rows_are_depth_first_and_a_chain_may_run_in_one_step():
    tree = RadixTree(PagePool(16, 4))
    top = tree.extend(tree.root(), [1, 2])
    left = tree.extend(tree.fork(top), [3, 4])
    right = tree.extend(tree.fork(top), [5])
    deep = tree.extend(tree.fork(left), [6])
    for node in (right, deep, left):
        tree.hold(node)
    for node, count in ((top, 2), (left, 2), (deep, 1), (right, 1)):
        tree.reserve(node, count)
    batch = build_batch([(top, 2), (right, 1), (left, 2), (deep, 1)], [])
    assert batch.token_ids in ([1, 2, 5, 3, 4, 6], [1, 2, 3, 4, 6, 5])
    assert batch.positions[:2] == [0, 1]
    spans = list(zip(batch.items.row_start, batch.items.row_end, strict=True))
    assert (0, 6) in spans


def test_own_rows_before_a_segment_do_not_see_it():
    tree = RadixTree(PagePool(4, 2))
    node = tree.extend(tree.root(), [1, 2, 3, 4])
    tree.hold(node)
    tree.reserve(node, 2)
    assert tree.pool.take(node.last_slot(), 1) == [(node.last_slot() + 1, 1)]  # the next page
    tree.reserve(node, 2)
    assert len(node.segments) == 2
    batch = build_batch([(node, 4)], [])
    starts = dict(zip(batch.items.key_pos, batch.items.row_start, strict=True))
    assert starts == {0: 0, 2: 2}


def test_an_empty_batch_is_false():
    assert not build_batch([], [])


def test_a_layout_that_moved_on_is_the_one_laid_out_afresh():
    pool = PagePool(64, 2)
    tree = RadixTree(pool)
    shared = tree.extend(tree.root(), [1, 2, 3])
    ends = [tree.extend(tree.fork(shared), [10 + i]) for i in range(3)]
    ends.append(tree.extend(tree.fork(ends[0]), [20]))  # Its row follows that of the node above.
    for node in ends:
        tree.hold(node)
    for node, count in ((shared, 3), *((node, 1) for node in ends)):
        tree.reserve(node, count)
        tree.commit([(node, count)])
    nodes = [ends[2], ends[3], ends[1]]  # Not in the order of the rows.
    layout: Layout | None = None
    for step in range(7):
        slots = []
        for node in nodes:
            assert not tree.grow([node], [30 + step], [None])
            slot = pool.take_next(node.segments)
            if slot < 0:
                tree.reserve(node, 1)
                slot = node.last_slot()
            slots.append(slot)
        ranges = [(node, 1) for node in nodes]
        afresh = Layout(ranges, tree.version)
        if layout is None:
            layout = afresh
        else:
            before = layout.batch([])
            known = copy.deepcopy((before.items, before.slots, before.token_ids, before.positions))
            assert layout.advance(nodes, slots, tree.version)
            assert known == (before.items, before.slots, before.token_ids, before.positions)
        moved, fresh = layout.batch([]), afresh.batch([])
        assert moved.token_ids == fresh.token_ids == [30 + step] * 3
        assert (moved.positions, moved.slots) == (fresh.positions, fresh.slots)
        assert items_of(moved) == items_of(fresh)
        tree.commit(ranges)
    assert not layout.advance(nodes[:2], [0, 0], tree.version)
    tree.unhold(ends[1])
    assert not layout.advance(nodes, [0, 0, 0], tree.version)


def items_of(batch: Batch) -> list[tuple[int, ...]]:
    """The items as a sorted list of tuples."""
    i = batch.items
    fields = (i.slot_start, i.length, i.row_start, i.row_end, i.key_pos)
    return sorted(zip(*fields, strict=True))
