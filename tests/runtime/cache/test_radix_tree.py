import random

import pytest

from ramet.runtime.cache.audit import audit, audit_idle
from ramet.runtime.cache.node import DECODE, Node
from ramet.runtime.cache.page_pool import PagePool
from ramet.runtime.cache.radix_tree import RadixTree


def make(pages: int = 64, page_size: int = 4) -> RadixTree:
    return RadixTree(PagePool(pages, page_size))


def compute(tree: RadixTree, node: Node) -> int:
    """Compute the path as a scheduler would; the node must be held. Returns rows run."""
    rows = 0
    for step in node.missing():
        count = len(step.tokens) - step.computed
        tree.evict(tree.pool.pages_for(step.last_slot(), count))
        tree.reserve(step, count)
        tree.commit([(step, count)])
        rows += count
    return rows


def run(tree: RadixTree, ids: list[int]) -> int:
    """One whole request over `ids`; returns how many tokens were charged to it."""
    node = tree.extend(tree.root(), ids)
    charged = tree.demand(node)
    tree.hold(node)
    compute(tree, node)
    assert node.complete
    tree.unhold(node)
    tree.release(node)
    audit(tree)
    return charged


def test_a_prefix_is_computed_once():
    tree = make()
    assert run(tree, [1, 2, 3, 4, 5]) == 5
    assert run(tree, [1, 2, 3, 9]) == 1
    assert run(tree, [1, 2, 3, 4, 5]) == 0
    assert run(tree, [1, 2]) == 0
    assert tree.edge_tokens == 6
    assert tree.recomputed_tokens == tree.decode_tokens == 0


def test_a_planned_edge_is_shared_before_it_is_computed():
    tree = make()
    a = tree.extend(tree.root(), [1, 2, 3])
    b = tree.extend(tree.root(), [1, 2, 4])
    assert (tree.demand(a), tree.demand(b)) == (3, 1)
    for node in (a, b):
        tree.hold(node)
    assert compute(tree, a) + compute(tree, b) == 4
    for node in (a, b):
        tree.unhold(node)
        tree.release(node)
    audit_idle(tree)


def test_decoded_tokens_extend_a_leaf_in_place_and_siblings_share_rows():
    tree = make()
    prompt = tree.extend(tree.root(), [1, 2])
    tree.demand(prompt)
    leaf = tree.extend(tree.fork(prompt), [7], DECODE)
    other = tree.extend(tree.fork(prompt), [7], DECODE)
    assert leaf is other
    assert tree.extend(tree.fork(prompt), [8], DECODE) is not leaf
    tree.release(other)
    assert tree.extend(leaf, [9], DECODE) is leaf
    assert leaf.path_ids() == [1, 2, 7, 9]
    tree.hold(leaf)
    compute(tree, leaf)
    assert (tree.edge_tokens, tree.decode_tokens) == (2, 2)
    audit(tree)


def test_an_edge_grows_in_place_only_where_one_sequence_stands_alone():
    tree = make()
    top = tree.extend(tree.root(), [1, 2])
    alone, shared = tree.extend(tree.fork(top), [3]), tree.extend(tree.fork(top), [4])
    tree.fork(shared)
    below = tree.extend(tree.fork(top), [5])
    deeper = tree.extend(tree.fork(below), [6])
    for node in (top, alone, shared, below, deeper):
        tree.hold(node)
        compute(tree, node)
    before = tree.decode_tokens
    assert tree.grow([shared, alone, below], [7, 8, 9], [None] * 3) == [0, 2]
    assert (shared.tokens, alone.tokens, below.tokens) == ([4], [3, 8], [5])
    assert alone.marks[-1] == DECODE
    compute(tree, alone)
    assert tree.decode_tokens == before + 1
    audit(tree)


def test_sharing_is_exact_to_the_token_inside_a_page():
    tree = make(pages=3, page_size=8)
    run(tree, [1, 2, 3])
    run(tree, [1, 2, 3, 4])
    assert tree.pool.free_pages == 2, "the first branch uses the rest of its page"
    run(tree, [1, 2, 3, 5])
    assert tree.pool.free_pages == 1, "the second starts a page"
    assert tree.edge_tokens == 5


def test_an_abandoned_plan_leaves_nothing():
    tree = make()
    node = tree.extend(tree.root(), [1, 2, 3])
    tree.demand(node)
    tree.release(node)
    assert not [n for n in tree.nodes() if n.tokens]
    audit_idle(tree)


def test_eviction_takes_the_oldest_and_no_more_than_needed():
    tree = make(pages=64, page_size=1)
    for base in (100, 200, 300):
        run(tree, list(range(base, base + 20)))
    assert tree.pool.free_pages == 4
    assert tree.evict(8)
    assert tree.pool.free_pages == 8
    assert tree.evicted_tokens == 4
    assert run(tree, list(range(200, 220))) == 0
    assert run(tree, list(range(300, 320))) == 0
    before = tree.recomputed_tokens
    run(tree, list(range(100, 120)))
    assert tree.recomputed_tokens - before == 4


def test_eviction_spares_a_live_context_and_never_a_running_path():
    tree = make(pages=4, page_size=1)
    live = tree.extend(tree.root(), [1, 2])
    tree.hold(live)
    compute(tree, live)
    run(tree, [3])
    assert not tree.evict(3), "the running path stays"
    tree.unhold(live)
    run(tree, [4])
    assert tree.evict(2)
    assert live.complete, "finished paths go before those a context points at"
    assert tree.evict(4)
    assert not live.complete
    assert live.path_ids() == [1, 2]
    tree.release(live)
    audit_idle(tree)


def test_a_private_root_keeps_nothing():
    tree = make()
    run(tree, [1, 2, 3])
    node = tree.extend(tree.root(private=True), [1, 2, 3])
    assert tree.demand(node) == 3, "it does not read the shared cache"
    tree.hold(node)
    compute(tree, node)
    tree.unhold(node)
    tree.release(node)
    audit_idle(tree)
    assert tree.pool.cached_pages == 1
    assert len(list(tree.nodes())) == 2


def test_a_forked_private_program_gives_all_its_pages_back():
    tree = make(pages=16, page_size=4)
    parent = tree.extend(tree.root(private=True), list(range(40)))
    children = [tree.extend(tree.fork(parent), [100 + i]) for i in range(2)]
    for child in children:
        tree.hold(child)
        compute(tree, child)
    for child in children:
        tree.unhold(child)
        tree.release(child)
    assert tree.evict(16), "the parent's tokens can be evicted once its children are gone"
    tree.release(parent)
    audit_idle(tree)
    assert tree.pool.free_pages == 16


def test_another_namespace_computes_for_itself():
    tree = make(pages=6, page_size=4)
    run(tree, list(range(20)))
    tree.evict(6)
    for salt in ("a", None):
        node = tree.extend(tree.root(salt), list(range(20)))
        tree.demand(node)
        tree.hold(node)
        compute(tree, node)
        tree.unhold(node)
        tree.release(node)
        tree.evict(6)
    assert (tree.edge_tokens, tree.recomputed_tokens) == (40, 20)


def test_a_sampled_token_stays_one_where_a_literal_is_already_known():
    tree = make()
    prompt = tree.extend(tree.root(), [1, 2])
    literal = tree.extend(tree.fork(prompt), [7])
    tree.demand(prompt)
    sampled = tree.extend(tree.fork(prompt), [7], DECODE)
    assert sampled is literal
    assert tree.demand(literal) == 0, "the row was wanted as a decode first"
    tree.hold(sampled)
    compute(tree, sampled)
    assert (tree.edge_tokens, tree.decode_tokens) == (2, 1)


def test_salts_never_share():
    tree = make()
    for salt in ("a", "b"):
        node = tree.extend(tree.root(salt), [1, 2, 3])
        assert tree.demand(node) == 3
        tree.release(node)


def test_evicted_positions_are_known_until_flush():
    tree = make()
    run(tree, [1, 2, 3])
    tree.evict(tree.pool.num_pages)
    run(tree, [1, 2, 3, 4])
    assert (tree.recomputed_tokens, tree.edge_tokens) == (3, 4)
    tree.flush()
    assert tree.pool.free_pages == tree.pool.num_pages
    run(tree, [1, 2, 3])
    assert (tree.recomputed_tokens, tree.edge_tokens) == (3, 7)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("page_size", [1, 3, 4])
def test_a_random_walk_keeps_every_invariant(seed: int, page_size: int):
    rng = random.Random(seed)
    tree = make(pages=60 // page_size, page_size=page_size)
    live: list[tuple[Node, bool, list[int]]] = []
    computed: set[tuple[int, ...]] = set()
    for _ in range(400):
        action = rng.choice("nnefdrrxv")
        if action == "n":
            ids = [rng.randrange(3) for _ in range(rng.randrange(1, 9))]
            live.append((tree.extend(tree.root(), ids), False, ids))
        elif action == "v":
            tree.evict(rng.randrange(1, tree.pool.num_pages))
        elif action == "x" and rng.random() < 0.1:
            tree.flush()
        elif live:
            index = rng.randrange(len(live))
            node, held, ids = live[index]
            if action == "e":
                more = [rng.randrange(3) for _ in range(rng.randrange(1, 4))]
                live[index] = (tree.extend(node, more, running=held), held, ids + more)
            elif action == "f":
                live.append((tree.fork(node), False, ids))
            elif action == "d" and not held:
                tree.demand(node)
                tree.hold(node)
                need = sum(
                    tree.pool.pages_for(-1, len(n.tokens) - n.computed) for n in node.missing()
                )
                if need <= tree.pool.free_pages + tree.pool.cached_pages:
                    compute(tree, node)
                    computed.add(tuple(ids))
                    live[index] = (node, True, ids)
                else:
                    tree.unhold(node)
            elif action == "r":
                live.pop(index)
                if held:
                    tree.unhold(node)
                tree.release(node)
        for node, _, ids in live:
            assert node.path_ids() == ids
        audit(tree)
    while live:
        node, held, _ = live.pop()
        if held:
            tree.unhold(node)
        tree.release(node)
    audit_idle(tree)
    assert tree.edge_tokens + tree.recomputed_tokens + tree.decode_tokens > 0
    tree.flush()
    assert tree.pool.free_pages == tree.pool.num_pages
    assert not [n for n in tree.nodes() if n.tokens]
