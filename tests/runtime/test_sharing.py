"""What is shared, with whom and for how long: the trace's figures, namespaces, and who stays."""

import random

import pytest
from checked_bench import checked_benches, score
from scripted_engine import Bench


@pytest.fixture
def make():
    yield from checked_benches()


def mixed_calls(bench: Bench, seed: int) -> None:
    """Chats of two turns over a few long beginnings, forks, samples and selections."""
    rng = random.Random(seed)
    beginnings = [[200 + i] * 24 for i in range(3)]
    contexts = []
    for _ in range(10):
        context = bench.open([*rng.choice(beginnings), *rng.choices(range(100), k=3)])
        bench.generate(context, n=rng.choice([1, 1, 3]), temperature=1, max_tokens=6, seed=seed)
        bench.append(context, rng.choices(range(100, 200), k=4))
        children = bench.fork(context, 2)
        bench.generate(children[0], max_tokens=3)
        score(bench, children[1], [rng.choices(range(9), k=rng.randint(1, 4)) for _ in range(3)])
        contexts += [context, *children]
        bench.step()
    bench.run()
    bench.close(*contexts)


def test_with_room_for_everything_the_optimum_is_reached(make):
    bench = make(pool_tokens=8192)
    mixed_calls(bench, 1)
    stats = bench.engine.stats()
    assert stats["hit_ratio"] == 1.0
    assert stats["hit_rate"] == stats["cached_tokens"] / stats["prompt_tokens"] > 0.5
    assert stats["optimum_tokens"] == stats["computed_tokens"] - stats["recomputed_tokens"]
    assert stats["trace_complete"]
    assert stats["logged_calls"] == stats["calls"]


@pytest.mark.parametrize("seed", range(4))
def test_with_little_room_it_is_never_passed(make, seed: int):
    bench = make(pool_tokens=64)
    mixed_calls(bench, seed)
    stats = bench.engine.stats()
    assert stats["recomputed_tokens"] > 0
    assert stats["hit_ratio"] <= 1.0


def test_what_was_evicted_in_between_is_missed(make):
    bench = make(pool_tokens=64)
    for beginning in (1, 2, 3, 1, 2, 3):
        context = bench.open([beginning] * 40)
        bench.generate(context, max_tokens=2)
        bench.run()
        bench.close(context)
    stats = bench.engine.stats()
    assert stats["optimum_hit_rate"] == 0.5
    assert stats["hit_ratio"] < 0.5


def test_private_calls_are_a_namespace_each(make):
    bench = make()
    contexts = [bench.open([5] * 20) for _ in range(3)]
    for context in contexts:
        bench.generate(context, max_tokens=3, cache=False)
        bench.run()
    bench.close(*contexts)
    stats = bench.engine.stats()
    assert (stats["hit_rate"], stats["optimum_hit_rate"], stats["hit_ratio"]) == (0.0, 0.0, 1.0)


def test_who_comes_back_soon_stays_and_who_comes_back_late_gives_way(make):
    now = [0.0]
    bench = make(pool_tokens=64, page_size=1, clock=lambda: now[0])
    rng = random.Random(3)

    def visit(context: int, site: str, seconds: float) -> None:
        """Some tokens and a call, and then nothing for a while."""
        bench.append(context, [rng.randrange(200) for _ in range(10)])
        call = bench.generate(context, max_tokens=1, site=site)
        bench.run()
        assert call in bench.done
        now[0] += seconds

    for site, seconds in (("quick:1", 1.0), ("slow:1", 30.0)):  # How long each is away.
        context = bench.open()
        visit(context, site, seconds)
        visit(context, site, seconds)
        bench.close(context)
    bench.engine.room.tree.flush()
    quick, slow = bench.open(), bench.open()
    visit(quick, "quick:1", 0.1)
    visit(slow, "slow:1", 0.1)
    paths = [bench.engine._contexts.live[context].node for context in (quick, slow)]
    other = bench.open([rng.randrange(200) for _ in range(48)])
    bench.generate(other, max_tokens=1)
    bench.run()
    assert [node.computed for node in paths] == [10, 6], "the older one stayed"
    bench.append(slow, [1])
    assert bench.engine._contexts.live[slow].away is None
    assert paths[1].away is None
    bench.close(quick, slow, other)


def test_a_context_that_is_closed_while_away_teaches_nothing(make):
    now = [0.0]
    bench = make(clock=lambda: now[0])
    context = bench.open([1, 2, 3])
    bench.generate(context, max_tokens=2, site="a:1")
    bench.run()
    away = bench.engine._contexts.live[context].away
    assert (away.site, away.since) == ("a:1", 0.0)
    now[0] = 5.0
    bench.close(context)
    assert bench.engine.room.tree.queue.absences.expected(away, 1.0) == 1.0


def test_another_tenant_is_not_named(make):
    bench = make(pool_tokens=32, page_size=1)

    def ask(salt: str, ids: list[int], **params) -> dict:
        context = bench.open(ids, salt=salt, name=f"program of {salt}")
        call = bench.generate(context, max_tokens=1, site=f"{salt}:1", **params)
        bench.run()
        bench.close(context)
        return bench.done[call]["meta"]["prefix"]["miss"]

    path = list(range(20))
    ask("a", path)
    ask("b", list(range(100, 120)))  # Needs the room of a's path.
    miss = ask("a", path)
    assert "evicted_by" in miss
    assert miss["evicted_by"] is None
    ask("a", list(range(200, 220)))
    assert ask("a", path)["evicted_by"]["call_site"] == "a:1"
    bench.engine.room.tree.flush()
    ask("a", path, cache_salt="c")
    ask("a", list(range(200, 220)), cache_salt="d")
    assert ask("a", path, cache_salt="c")["evicted_by"] is None, "the call's salt counts"


def test_what_shares_with_nobody_does_not_stay_in_the_trace(make):
    bench = make(pool_tokens=256)
    trace = bench.engine.room.trace
    for number in range(8):
        private = bench.open([1, 2, 3, number], cache=False)
        bench.generate(private, max_tokens=4)
        bench.append(private, [9])
        bench.generate(private, max_tokens=4)
        bench.run()
        bench.close(private)
        alone = bench.open([5, 6, 7])
        bench.generate(alone, max_tokens=4, cache=False)
        bench.run()
        bench.close(alone)
        bench.engine.stats()
        assert trace._tree.num_tokens == 0
    stats = bench.engine.stats()
    assert (stats["logged_calls"], stats["trace_complete"]) == (24, True)
    assert stats["hit_ratio"] == pytest.approx(1.0)
