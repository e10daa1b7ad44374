import random

from ramet.runtime.cache.origin import (
    Origin,
    Run,
    append_run,
    join_runs,
    names,
    origin_at,
    paint_runs,
    runs_between,
    split_runs,
)
from ramet.runtime.counters import Tally

A, B = Origin("a.py:1", "first", 1, ""), Origin("b.py:2", "second", 2, "0.3")


def flat(runs: list[Run], length: int) -> list[Origin | None]:
    """One entry per token."""
    found: list[Origin | None] = []
    for count, who in runs:
        assert count > 0
        found += [who] * count
    return found + [None] * (length - len(found))


def test_runs_say_the_same_as_one_entry_per_token():
    rng = random.Random(0)
    for _ in range(300):
        runs: list[Run] = []
        tokens: list[Origin | None] = []
        for _ in range(rng.randrange(6)):
            count, who = rng.randrange(1, 5), rng.choice([A, B, None])
            append_run(runs, count, who)
            tokens += [who] * count
        short = len(tokens)
        tokens += [None] * rng.randrange(3)  # A list may be short.
        length = len(tokens)
        low, high = sorted((rng.randrange(length + 1), rng.randrange(length + 1)))
        head, tail = split_runs(runs, low)
        assert flat(head, low) + flat(tail, length - low) == tokens
        assert flat(join_runs(head, low, tail), length) == tokens
        assert flat(runs_between(runs, low, high), high - low) == tokens[low:high]
        if low < high:
            painted = paint_runs(runs, low, high, A)
            assert flat(painted, length) == tokens[:low] + [A] * (high - low) + tokens[high:]
            assert sum(count for count, _ in painted) >= short
            assert origin_at(runs, low) is tokens[low]


def test_neighbours_of_one_origin_are_one_run():
    runs: list[Run] = []
    for _ in range(1000):
        append_run(runs, 1, A)
    assert runs == [(1000, A)]
    assert join_runs(runs, 1000, [(5, A), (1, B)]) == [(1005, A), (1, B)]
    assert paint_runs([(3, A), (3, B)], 3, 6, A) == [(6, A)]


def test_an_origin_has_names_and_an_account():
    assert names(B) == {
        "call_site": "b.py:2",
        "program": "second",
        "program_id": 2,
        "branch": "0.3",
    }
    assert set(names(None).values()) == {None}
    account = Tally()
    assert Origin("c.py:3", "third", 3, "", None, account).account is account
