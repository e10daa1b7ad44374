import random

import pytest

from ramet.runtime.cache.free_runs import FreeRuns


def test_a_new_chain_begins_in_the_middle_of_a_long_run() -> None:
    runs = FreeRuns(16)
    assert runs.take(2) == (8, 2)
    assert runs.take(1) == (4, 1)
    assert runs.take_at(10, 3) == 3
    assert runs.total == 10


def test_a_request_longer_than_half_a_run_begins_at_its_start() -> None:
    runs = FreeRuns(8)
    assert runs.take(5) == (0, 5)
    assert runs.take(9) == (5, 3), "as much as there is"
    assert runs.total == 0
    with pytest.raises(IndexError, match="no page is free"):
        runs.take(1)


def test_pages_that_come_back_join_their_neighbours() -> None:
    runs = FreeRuns(8)
    assert runs.take(8) == (0, 8)
    for page in (1, 3, 2, 6):
        runs.give(page)
    assert runs.take_at(1, 9) == 3
    assert runs.take_at(0, 1) == 0, "in use"
    assert runs.take(1) == (6, 1)


def test_no_pages_are_no_error_until_one_is_wanted() -> None:
    runs = FreeRuns(0)
    assert runs.total == 0
    assert runs.take_at(0, 1) == 0


@pytest.mark.parametrize("seed", range(6))
def test_it_agrees_with_a_set_of_pages(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.choice([1, 2, 37, 64])
    runs, free = FreeRuns(size), set(range(size))
    for _ in range(3000):
        choice = rng.random()
        if choice < 0.4 and len(free) < size:
            page = rng.choice(sorted(set(range(size)) - free))
            runs.give(page)
            free.add(page)
        elif choice < 0.7 and free:
            first, count = runs.take(rng.randrange(1, 6))
            assert count >= 1
            taken = set(range(first, first + count))
            assert taken <= free
            free -= taken
        else:
            used = sorted(set(range(size)) - free)
            if used:
                first, want = rng.choice(used) + 1, rng.randrange(1, 6)
                count = runs.take_at(first, want)
                taken = set(range(first, first + count))
                assert taken <= free
                free -= taken
                assert count == want or first + count not in free
        assert runs.total == len(free)
