from ramet.runtime.cache.known import EMPTY_PATH, KnownPaths, fold
from ramet.runtime.cache.origin import Origin


def test_a_path_is_known_by_all_its_tokens():
    known = KnownPaths(10)
    known.remember(fold(EMPTY_PATH, [1, 2]), [3, 4])
    assert known.lookup(fold(EMPTY_PATH, [1, 2]), [3, 4, 5]) == 2
    assert known.lookup(fold(EMPTY_PATH, [1, 2]), [3]) == 1
    assert known.lookup(fold(EMPTY_PATH, [1]), [3, 4]) == 0


def test_it_says_who_made_a_path_go():
    known = KnownPaths(10)
    who = Origin("a.py:1", "p", 1, "")
    known.remember(EMPTY_PATH, [1, 2, 3], [(2, who)])
    assert known.evictor(fold(EMPTY_PATH, [1, 2])) is who
    assert known.evictor(fold(EMPTY_PATH, [1, 2, 3])) is None
    assert known.evictor(fold(EMPTY_PATH, [2])) is None


def test_the_oldest_is_forgotten_first():
    known = KnownPaths(2)
    known.remember(EMPTY_PATH, [1, 2, 3])
    assert known.lookup(EMPTY_PATH, [1, 2, 3]) == 2
    known.remember(EMPTY_PATH, [4])
    assert known.lookup(EMPTY_PATH, [1, 2, 3]) == 1
    known.remember(EMPTY_PATH, [1])
    known.remember(EMPTY_PATH, [5])
    assert (known.lookup(EMPTY_PATH, [1]), known.lookup(EMPTY_PATH, [4])) == (1, 0)
    known.clear()
    assert len(known) == 0
