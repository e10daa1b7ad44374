"""What a call may say for itself: its place in the order, what it shares, when it is late."""

import pytest
from scripted_engine import Bench

from ramet.runtime.cache.audit import audit_idle


@pytest.fixture
def make():
    made: list[Bench] = []

    def build(**options) -> Bench:
        made.append(Bench(**options))
        return made[-1]

    yield build
    for bench in made:
        bench.run()
        audit_idle(bench.engine.room.tree)
        stats = bench.engine.stats()
        assert stats["free_tokens"] + stats["cached_pool_tokens"] == stats["pool_tokens"]
        assert stats["computed_tokens"] == len(bench.runner.rows)
        assert len(bench.engine._deadlines) == 0
        assert len(bench.engine._deadlines._heap) < 100


def cached(bench: Bench, call: int) -> int:
    return bench.done[call]["meta"]["cached_tokens"]


def tree_tokens(bench: Bench) -> list[list[int]]:
    return [node.path_ids() for node in bench.engine.room.tree.nodes() if node.tokens]


def test_a_calls_priority_goes_before_its_programs(make):
    bench = make(max_running=1)
    calls = [
        bench.generate(bench.open([1]), max_tokens=3),
        bench.generate(bench.open([2], priority=2), max_tokens=3, priority=-1),
        bench.generate(bench.open([3]), max_tokens=3, priority=5),
        bench.generate(bench.open([4], priority=1), max_tokens=3),
    ]
    order: list[int] = []
    while len(order) < 4:
        bench.step()
        order += [call for call in calls if call in bench.done and call not in order]
    assert [calls.index(call) for call in order] == [2, 3, 0, 1]


@pytest.mark.parametrize("page_size", [1, 4])
def test_a_call_without_cache_reads_and_leaves_nothing(make, page_size: int):
    bench = make(page_size=page_size)
    prompt = list(range(10))
    bench.generate(bench.open(prompt), max_tokens=1)
    bench.run()
    before = bench.engine.stats()["free_tokens"]
    context = bench.open(prompt)
    call = bench.generate(context, max_tokens=6, n=2, temperature=1.0, cache=False)
    bench.run()
    stats = bench.engine.stats()
    assert cached(bench, call) == 0
    assert bench.done[call]["meta"]["prefix"]["miss"]["nearest"] == []
    assert stats["free_tokens"] == before
    assert not bench.engine.room.tree._private
    wrote = bench.ids(call)
    assert bench.engine._contexts.live[context].node.path_ids() == [*prompt, *wrote]
    rows = len(bench.runner.rows)
    after = bench.generate(context, max_tokens=3)
    bench.run()
    assert cached(bench, after) == 10, "the context goes on where others can share it"
    assert len(bench.runner.rows) == rows + 6 + 2
    assert bench.ids(after) == bench.greedy([*prompt, *wrote], 3)
    bench.close(context)


def test_what_no_later_call_needs_is_not_computed_again(make):
    bench = make()
    context = bench.open([1, 2, 3])
    call = bench.generate(context, max_tokens=6, cache=False)
    bench.run()
    assert len(bench.runner.rows) == 3 + 5
    assert bench.ids(call) == bench.greedy([1, 2, 3], 6)
    bench.close(context)
    bench.run()
    assert tree_tokens(bench) == []


def test_calls_of_a_salt_share_among_themselves(make):
    bench = make()
    prompt = [1, 2, 3, 4]
    seen = []
    for salt in (None, "a", "a", "b", None):
        call = bench.generate(bench.open(prompt), max_tokens=3, cache_salt=salt)
        bench.run()
        seen.append(cached(bench, call))
        assert bench.ids(call) == bench.greedy(prompt, 3)
    assert seen == [0, 0, 4, 0, 4]
    program = bench.open(prompt, salt="a")
    call = bench.generate(program, max_tokens=3)
    bench.run()
    assert cached(bench, call) == 4, "a program's salt names the same place"


def test_a_call_may_share_what_its_program_does_not(make):
    bench = make()
    bench.generate(bench.open([1, 2, 3]), max_tokens=1)
    bench.run()
    private = bench.open([1, 2, 3], cache=False)
    call = bench.generate(private, max_tokens=2, cache=True)
    own = bench.generate(private, max_tokens=2, cache_salt="a")  # Without a cache it says nothing.
    bench.run()
    assert (cached(bench, call), cached(bench, own)) == (3, 0)
    again = bench.generate(private, max_tokens=1, cache=False)
    bench.run()
    assert cached(bench, again) == 6, "its program's own, where it stands already"
    bench.close(private)


def test_a_program_without_cache_computes_its_own_output_once(make):
    bench = make()
    context = bench.open([1, 2, 3], cache=False)
    for _ in range(3):
        bench.generate(context, max_tokens=4, n=2, temperature=0)
        bench.run()
    assert len(set(bench.runner.rows)) == len(bench.runner.rows) == 3 + 3 * 4 - 1
    late = bench.generate(context, max_tokens=9, n=2)
    bench.step()
    bench.abort(call=late)
    bench.close(context)
    bench.run()
    assert tree_tokens(bench) == []


def test_an_aborted_call_without_cache_leaves_nothing(make):
    bench = make(chunk_tokens=4)
    context = bench.open(range(20))
    call = bench.generate(context, max_tokens=6, n=3, cache=False)
    for _ in range(3):
        bench.step()
    bench.abort(call=call)
    bench.close(context)
    bench.run()
    assert bench.errors[call]["kind"] == "Cancelled"
    assert tree_tokens(bench) == []
    stats = bench.engine.stats()
    assert stats["free_tokens"] == stats["pool_tokens"]


def test_a_call_that_is_late_ends_with_its_deadline(make):
    now = [100.0]
    bench = make(clock=lambda: now[0])
    context = bench.open([1, 2, 3])
    first = bench.generate(context, max_tokens=50, deadline=10, stream=True)
    behind = bench.generate(context, max_tokens=5)
    other = bench.generate(bench.open([4]), max_tokens=5, deadline=10.5)
    for _ in range(4):
        bench.step()
    assert len(bench.chunks) > 0
    now[0] = 110.25
    bench.step()
    for call in (first, behind):
        assert bench.errors[call]["kind"] == "Cancelled"
        assert "deadline of 10 s" in bench.errors[call]["message"]
    bench.run()
    assert other in bench.done
    bench.close(context)


def test_a_call_that_still_waits_for_its_context_can_be_late(make):
    now = [0.0]
    bench = make(clock=lambda: now[0])
    context = bench.open([1, 2, 3])
    first = bench.generate(context, max_tokens=20)
    late = bench.generate(context, max_tokens=5, deadline=0.5)
    behind = bench.generate(context, max_tokens=5)
    bench.step()
    now[0] = 1.0
    bench.step()
    assert "deadline of 0.5 s" in bench.errors[late]["message"], "its caller hears at once"
    bench.run()
    assert bench.ids(first) == bench.greedy([1, 2, 3], 20)
    assert "deadline of 0.5 s" in bench.errors[behind]["message"]
    bench.close(context)


def test_a_call_in_time_is_not_touched(make):
    bench = make()
    calls = [bench.generate(bench.open([1, i]), max_tokens=2, deadline=1e6) for i in range(300)]
    bench.run()
    assert all(bench.ids(call) == bench.greedy([1, i], 2) for i, call in enumerate(calls))
    over = bench.generate(bench.open([1] * 600), max_tokens=2, deadline=1e6)
    bench.run()
    assert bench.errors[over]["kind"] == "PoolTooSmall"
