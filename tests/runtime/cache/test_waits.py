import random

from ramet.runtime.cache.audit import audit
from ramet.runtime.cache.node import Node
from ramet.runtime.cache.page_pool import PagePool
from ramet.runtime.cache.radix_tree import RadixTree
from ramet.runtime.cache.waits import add_waiting, nearest_waiting, remove_waiting


def test_everybody_is_counted_on_the_whole_path():
    tree = RadixTree(PagePool(64, 4))
    first = tree.extend(tree.root(), [1, 2, 3])
    second = tree.extend(tree.root(), [1, 2, 4])
    add_waiting(first, 0, "a")
    add_waiting(second, 0, "b")
    add_waiting(second, 7, "c")
    shared = first.parent
    assert isinstance(shared, Node)
    assert {lane: waits.count for lane, waits in shared.waits.items()} == {0: 2, 7: 1}
    assert list(shared.waits[0].below) == [3, 4]
    assert nearest_waiting(first, 7) is shared
    remove_waiting(first, 0, "a")
    assert list(shared.waits[0].below) == [4]
    assert nearest_waiting(first, 0) is shared
    for lane, who in ((0, "b"), (7, "c")):
        remove_waiting(second, lane, who)
    assert not any(node.waits for node in tree.nodes())
    assert nearest_waiting(first, 0) is None


def test_counts_stay_true_while_edges_split_and_merge():
    source = random.Random(5)
    tree = RadixTree(PagePool(512, 4))
    waiting: list[tuple[Node, int, int]] = []
    for number in range(1500):
        if len(waiting) < 3 or source.random() < 0.5:
            ids = [source.randrange(2) for _ in range(source.randrange(1, 12))]
            node = tree.extend(tree.root(), ids)
            lane = source.randrange(2)
            add_waiting(node, lane, number)
            waiting.append((node, lane, number))
        else:
            node, lane, who = waiting.pop(source.randrange(len(waiting)))
            remove_waiting(node, lane, who)
            tree.release(node)
        if number % 20 == 0:
            audit(tree)
    for node, lane, who in waiting:
        remove_waiting(node, lane, who)
        tree.release(node)
    assert not any(node.waits for node in tree.nodes())
    audit(tree)
