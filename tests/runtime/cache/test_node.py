import random

from ramet.runtime.cache.known import fold
from ramet.runtime.cache.node import MILE, Node


def path(*lengths: int) -> Node:
    """The last of a chain of nodes below a root, with random tokens."""
    rng = random.Random(0)
    node = Node(None, [], 0, private=False)
    node.path_hash = 5
    for length in lengths:
        node = Node(node, [rng.randrange(1000) for _ in range(length)], node.end, private=False)
    return node


def test_the_hash_inside_an_edge_is_that_of_the_tokens_so_far() -> None:
    node = path(10, 5 * MILE + 3)
    above = fold(5, node.path_ids()[:10])
    for count in (3 * MILE + 7, 2 * MILE, 2 * MILE + 1, 0, 5, MILE, 5 * MILE + 3):
        assert node.hashed(count) == fold(above, node.tokens[:count])
    assert node.hashed() == node.hashed(len(node.tokens))


def test_no_hash_outlives_its_tokens() -> None:
    node = path(10, 3 * MILE)
    node.hashed(3 * MILE)
    node.computed = MILE + 1
    node.drop_planned()
    node.append([7] * MILE, bytes(MILE), None)
    assert node.hashed(2 * MILE) == fold(5, node.path_ids()[: 10 + 2 * MILE])
    upper = node.parent
    assert upper is not None
    assert upper.parent is not None
    node.prepend(upper)
    node.parent = upper.parent
    assert node.hashed(MILE) == fold(5, node.tokens[:MILE])
