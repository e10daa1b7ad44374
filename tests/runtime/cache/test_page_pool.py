import random

import pytest

from ramet.runtime.cache.page_pool import PagePool, append_segment, split_segments
from ramet.runtime.errors import PoolTooSmall


def test_a_chain_fills_its_page_before_it_takes_another():
    pool = PagePool(4, 4)
    ((start, count),) = pool.take(-1, 3)
    assert (start % 4, count) == (0, 3)
    assert pool.room_after(start + 2) == 1
    assert pool.take(start + 2, 3) == [(start + 3, 3)], "consecutive pages join into one segment"
    assert pool.free_pages == 2


def test_only_the_first_branch_uses_the_rest_of_a_page():
    pool = PagePool(4, 4)
    ((start, _),) = pool.take(-1, 2)
    assert pool.take(start + 1, 1) == [(start + 2, 1)]
    assert pool.room_after(start + 1) == 0
    assert pool.take(start + 1, 1) == [(start + 4, 1)]


def test_an_odd_branch_leaves_out_a_slot():
    pool = PagePool(5, 4)
    ((start, _),) = pool.take(-1, 3)
    pool.take(start + 2, 1)
    assert pool.pages_for(start + 2, 3) == 1
    assert pool.pages_for(start + 2, 4) == 2
    assert pool.most_after(start + 2) == 4 * 4 - 1
    (segment,) = pool.take(start + 2, 3)
    assert segment == (start + 5, 3)
    assert (pool.fill_of(segment[0] // 4), pool.room_after(segment[0])) == (3, 0)
    pool.give_back((segment[0] + 1, 2))
    assert pool.take(segment[0], 2) == [(segment[0] + 1, 2)]
    pool.give_back(segment)
    assert pool.free_pages == 4
    assert sum(count for _, count in pool.take(-1, 16)) == 16


def test_odd_pages_leave_out_nothing():
    pool = PagePool(4, 3)
    ((start, _),) = pool.take(-1, 1)
    pool.take(start, 2)
    assert pool.take(start, 3)[0][0] % 3 == 0


def test_a_page_is_free_when_its_last_slot_comes_back():
    pool = PagePool(2, 4)
    ((start, _),) = pool.take(-1, 2)
    pool.take(start + 1, 2)
    pool.give_back((start + 2, 2))
    assert pool.free_pages == 1
    assert pool.room_after(start + 1) == 2
    pool.give_back((start, 2))
    assert pool.free_pages == 2


def test_slots_come_back_from_the_top_only():
    pool = PagePool(2, 4)
    pool.take(-1, 4)
    with pytest.raises(AssertionError, match="below the top"):
        pool.give_back((0, 2))


def test_asking_too_much_takes_nothing():
    pool = PagePool(2, 4)
    with pytest.raises(PoolTooSmall):
        pool.take(-1, 9)
    assert pool.free_pages == 2


def test_held_pages_count_once():
    pool = PagePool(4, 4)
    (segment,) = pool.take(-1, 6)
    pages = pool.pages_of(segment)
    pool.hold(pages)
    pool.hold(pages)
    assert (pool.held_pages, pool.cached_pages, pool.free_pages) == (2, 0, 2)
    pool.unhold(pages)
    pool.unhold(pages)
    assert (pool.held_pages, pool.cached_pages) == (0, 2)
    pool.give_back(segment)
    assert pool.free_pages == 4


def test_a_held_page_cannot_be_freed():
    pool = PagePool(1, 4)
    (segment,) = pool.take(-1, 1)
    pool.hold(pool.pages_of(segment))
    with pytest.raises(AssertionError, match="while held"):
        pool.give_back(segment)


@pytest.mark.parametrize("page_size", [1, 3, 16])
def test_chains_grow_and_shrink_without_losing_a_page(page_size: int):
    rng = random.Random(page_size)
    pool = PagePool(48 // page_size, page_size)
    chains: list[list[tuple[int, int]]] = [[] for _ in range(5)]
    for _ in range(2000):
        chain = rng.choice(chains)
        last = chain[-1][0] + chain[-1][1] - 1 if chain else -1
        if rng.random() < 0.5:
            count = rng.randrange(1, 6)
            if pool.pages_for(last, count) <= pool.free_pages:
                for segment in pool.take(last, count):
                    append_segment(chain, segment)
        elif chain:
            total = sum(n for _, n in chain)
            keep, drop = split_segments(chain, rng.randrange(total))
            for segment in reversed(drop):
                pool.give_back(segment)
            chain[:] = keep
        slots = [s for c in chains for start, n in c for s in range(start, start + n)]
        assert len(slots) == len(set(slots))
        if page_size == 16:
            assert all(
                slot % 2 == position % 2
                for chain in chains
                for position, slot in enumerate(s for at, n in chain for s in range(at, at + n))
            )
        used = {s // page_size for s in slots}
        assert pool.free_pages == pool.num_pages - len(used)


def test_chains_that_grow_side_by_side_stay_in_one_piece_each():
    pool = PagePool(64, 4)
    chains = [pool.take(-1, 4) for _ in range(4)]
    for _ in range(28):
        for chain in chains:
            for segment in pool.take(chain[-1][0] + chain[-1][1] - 1, 1):
                append_segment(chain, segment)
    assert [len(chain) for chain in chains] == [1, 1, 1, 1]


def test_chains_grow_at_once_as_one_after_the_other():
    rng = random.Random(0)
    together, apart = PagePool(32, 4), PagePool(32, 4)
    chains = [together.take(-1, rng.randrange(1, 6)) for _ in range(5)]
    copies = [apart.take(-1, sum(count for _, count in chain)) for chain in chains]
    assert copies == chains
    for _ in range(4):
        assert together.take_each(chains) == [apart.take_next(chain) for chain in copies]
        assert copies == chains
    assert [together.fill_of(p) for p in range(32)] == [apart.fill_of(p) for p in range(32)]
    assert together.take_each(chains) == [-1] * 5


def test_split_segments_cuts_inside_a_segment():
    assert split_segments([(0, 3), (8, 4)], 5) == ([(0, 3), (8, 2)], [(10, 2)])
    assert split_segments([(0, 3)], 0) == ([], [(0, 3)])
