from ramet.runtime.cache.audit import audit
from ramet.runtime.cache.node import DECODE, Node
from ramet.runtime.cache.origin import Origin, names
from ramet.runtime.cache.page_pool import PagePool
from ramet.runtime.cache.prefix import MAX_NEAREST, MAX_RUNS, describe_prefix
from ramet.runtime.cache.radix_tree import RadixTree


def make(pages: int = 64) -> RadixTree:
    return RadixTree(PagePool(pages, 1))


def origin(number: int) -> Origin:
    return Origin(f"p.py:{number}", "p", number, "")


def compute(tree: RadixTree, node: Node) -> None:
    tree.hold(node)
    for step in node.missing():
        count = len(step.tokens) - step.computed
        assert tree.evict(tree.pool.pages_for(step.last_slot(), count))
        tree.reserve(step, count)
        tree.commit([(step, count)])
    tree.unhold(node)
    audit(tree)


def ask(tree: RadixTree, ids: list[int], who: Origin, run: bool = True) -> dict:
    """One request over `ids`: what `describe_prefix` says before it, checked against `demand`."""
    node = tree.extend(tree.root(), ids)
    found = describe_prefix(tree, node)
    assert tree.demand(node, who) == found["charged"]
    assert found["cached"] == len(ids) - found["charged"]
    assert sum(entry["tokens"] for entry in found["from"]) == found["cached"]
    assert (found["miss"] is None) == (found["charged"] == 0)
    if run:
        compute(tree, node)
        tree.release(node)
    return found


def whose(found: dict) -> list[tuple[int, int | None]]:
    return [(entry["tokens"], entry["program_id"]) for entry in found["from"]]


def test_the_first_prompt_of_all_misses_from_the_start():
    found = ask(make(), [1, 2, 3], origin(1))
    miss = {"position": 0, "token": 1, "nearest": []}
    assert found == {"cached": 0, "charged": 3, "from": [], "miss": miss}


def test_the_cached_part_has_its_origins_in_path_order():
    tree = make()
    ask(tree, [1, 2, 3], origin(1))
    found = ask(tree, [1, 2, 3, 4, 5], origin(2))
    assert whose(found) == [(3, 1)]
    assert found["miss"] == {"position": 3, "token": 4, "nearest": []}
    found = ask(tree, [1, 2, 3, 4, 5], origin(3))
    assert whose(found) == [(3, 1), (2, 2)]
    assert found["from"][1] == {"tokens": 2, **names(origin(2))}
    assert found["miss"] is None
    assert whose(ask(tree, [1, 2, 3, 4], origin(3))) == [(3, 1), (1, 2)]


def test_a_miss_shows_where_cached_paths_go_on():
    tree = make()
    for token in (10, 20, 30, 40, 50, 60):
        ask(tree, [1, 2, token], origin(token))
    node = tree.extend(tree.root(), [1, 2, 99])  # Nobody computes it, nobody asks for it.
    found = ask(tree, [1, 2, 70], origin(7))
    assert found["miss"] == {"position": 2, "token": 70, "nearest": [60, 50, 40, 30]}
    assert len(found["miss"]["nearest"]) == MAX_NEAREST
    tree.release(node)


def test_what_others_wait_for_is_as_good_as_there():
    tree = make()
    ask(tree, [1, 2, 3], origin(1), run=False)
    found = ask(tree, [1, 2, 4], origin(2), run=False)
    assert whose(found) == [(2, 1)]
    assert found["miss"] == {"position": 2, "token": 4, "nearest": [3]}


def test_decoded_tokens_are_the_samplers_also_where_they_were_planned():
    tree = make()
    prompt = tree.extend(tree.root(), [1, 2])
    tree.demand(prompt, origin(1))
    literal = tree.extend(tree.fork(prompt), [7])
    leaf = tree.extend(tree.fork(prompt), [7], DECODE, who=origin(2))
    assert leaf is literal
    leaf = tree.extend(leaf, [8], DECODE, who=origin(3))
    assert whose(describe_prefix(tree, leaf)) == [(2, 1), (1, 2), (1, 3)]


def test_an_evicted_path_names_who_needed_the_pages():
    for live in (False, True):  # Remembered by its hash, or still in the tree.
        tree = make(pages=8)
        ids = [1, 2, 3, 4, 5, 6]
        pointer = tree.extend(tree.root(), ids) if live else None
        ask(tree, ids, origin(1))
        assert tree.evict(4, origin(2))
        assert tree.evict(6, origin(3))
        longer = ask(tree, [*ids, 7], origin(4), run=False)
        assert whose(longer) == [(2, 1)]
        miss = {"position": 2, "token": 3, "evicted_by": names(origin(3))}
        assert longer["miss"] == miss
        if pointer is not None:
            tree.release(pointer)


def test_who_evicted_what_survives_splits_and_regrowth():
    tree = make(pages=8)
    ids = [1, 2, 3, 4, 5, 6]
    pointer = tree.extend(tree.root(), ids)
    ask(tree, ids, origin(1))
    assert tree.evict(4, origin(2))  # Takes 5 and 6.
    assert tree.evict(6, origin(3))  # Takes 3 and 4.
    ask(tree, ids[:4], origin(4))
    found = ask(tree, ids, origin(5), run=False)
    assert whose(found) == [(2, 1), (2, 4)]
    assert found["miss"] == {"position": 4, "token": 5, "evicted_by": names(origin(2))}
    tree.release(pointer)


def test_an_eviction_that_nobody_remembers_is_still_one():
    tree = make()
    ask(tree, [1, 2], origin(1))
    assert tree.evict(64)
    assert ask(tree, [1, 2], origin(2))["miss"] == {
        "position": 0,
        "token": 1,
        "evicted_by": None,
    }
    tree.flush()
    assert "nearest" in ask(tree, [1, 2], origin(2))["miss"], "a flush forgets"


def test_a_list_of_too_many_origins_is_closed():
    tree = make()
    ids: list[int] = []
    for number in range(1, MAX_RUNS + 6):
        ids.append(number)
        ask(tree, ids, origin(number))
    found = ask(tree, ids, origin(99))
    assert len(found["from"]) == MAX_RUNS
    assert found["from"][-1] == {"tokens": 6, **names(None)}
