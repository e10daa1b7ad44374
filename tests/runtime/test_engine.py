import random

import pytest
from scripted_engine import Bench, Timed, decoding

from ramet.runtime.cache.audit import audit, audit_idle
from ramet.runtime.schedule.step_budget import FLOOR_ROWS


@pytest.fixture
def make():
    made: list[Bench] = []

    def build(*args, **options) -> Bench:
        made.append(Bench(*args, **options))
        return made[-1]

    yield build
    for bench in made:
        bench.run()
        stats = bench.engine.stats()
        audit_idle(bench.engine.room.tree)
        assert stats["held_tokens"] == stats["running"] == stats["waiting"] == 0
        assert stats["free_tokens"] + stats["cached_pool_tokens"] == stats["pool_tokens"]
        assert stats["computed_tokens"] == len(bench.runner.rows)
        assert (
            stats["computed_tokens"]
            == stats["edge_tokens"] + stats["decode_tokens"] + stats["recomputed_tokens"]
        )


def test_one_generation_follows_the_model(make):
    bench = make()
    context = bench.open([1, 2, 3])
    call = bench.generate(context, max_tokens=10)
    bench.run()
    assert bench.ids(call) == bench.greedy([1, 2, 3], 10)
    assert bench.done[call]["results"][0]["finish_reason"] == "length"
    stats = bench.engine.stats()
    assert (stats["edge_tokens"], stats["decode_tokens"], stats["recomputed_tokens"]) == (3, 9, 0)
    bench.close(context)


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("chunk_tokens", [7, 64])
def test_a_batch_equals_the_same_calls_alone(make, page_size: int, chunk_tokens: int):
    rng = random.Random(3)
    prompts = [[rng.randrange(5) for _ in range(rng.randrange(1, 30))] for _ in range(30)]
    bench = make(page_size=page_size, chunk_tokens=chunk_tokens, pool_tokens=4096)
    calls = [bench.generate(bench.open(p), max_tokens=8) for p in prompts]
    bench.run()
    for prompt, call in zip(prompts, calls, strict=True):
        assert bench.ids(call) == bench.greedy(prompt, 8)
    assert all(len(b.token_ids) <= chunk_tokens for b in bench.runner.batches)
    assert len(set(bench.runner.rows)) == len(bench.runner.rows), "nothing is computed twice"


@pytest.mark.parametrize("pool_tokens", [32, 48, 96])
@pytest.mark.parametrize("page_size", [1, 2, 4, 16])
def test_a_small_pool_retracts_and_still_tells_the_truth(make, pool_tokens: int, page_size: int):
    rng = random.Random(pool_tokens + page_size)
    prompts = [[rng.randrange(3) for _ in range(rng.randrange(1, 9))] for _ in range(12)]
    bench = make(pool_tokens=pool_tokens, page_size=page_size, chunk_tokens=8)
    contexts = [bench.open(p) for p in prompts]
    calls = [bench.generate(c, max_tokens=12) for c in contexts]
    while not bench.engine.idle:
        bench.step()
        audit(bench.engine.room.tree)
    for prompt, call in zip(prompts, calls, strict=True):
        assert bench.ids(call) == bench.greedy(prompt, 12)
    bench.close(*contexts)


def test_forty_equal_prefixes_are_computed_once(make):
    bench = make(pool_tokens=4096)
    prefix = list(range(40))
    for i in range(40):
        bench.generate(bench.open([*prefix, 100 + i]), max_tokens=4)
    bench.run()
    stats = bench.engine.stats()
    assert stats["edge_tokens"] == 40 + 40
    assert stats["decode_tokens"] == 40 * 3
    assert stats["recomputed_tokens"] == 0


def test_a_fork_costs_nothing_and_equal_siblings_share_rows(make):
    bench = make(pool_tokens=4096)
    parent = bench.open([1, 2, 3])
    calls = [bench.generate(c, max_tokens=6) for c in bench.fork(parent, 16)]
    bench.run()
    expected = bench.greedy([1, 2, 3], 6)
    assert all(bench.ids(call) == expected for call in calls)
    stats = bench.engine.stats()
    assert (stats["edge_tokens"], stats["decode_tokens"], stats["recomputed_tokens"]) == (3, 5, 0)


def test_samples_differ_by_stream_and_repeat_by_seed(make):
    outputs = []
    for _ in range(2):
        bench = make(pool_tokens=4096)
        call = bench.generate(bench.open([1, 2]), n=8, temperature=1.0, max_tokens=6)
        bench.generate(bench.open([7]), max_tokens=20)
        bench.run()
        outputs.append([bench.ids(call, i) for i in range(8)])
    assert outputs[0] == outputs[1]
    assert len({tuple(ids) for ids in outputs[0]}) > 4


def test_the_next_call_continues_what_was_generated(make):
    bench = make()
    context = bench.open([1, 2, 3])
    first = bench.generate(context, max_tokens=5)
    bench.append(context, [9, 9])
    second = bench.generate(context, max_tokens=5)
    bench.run()
    path = [1, 2, 3, *bench.ids(first), 9, 9]
    assert bench.ids(second) == bench.greedy(path, 5)
    meta = bench.done[second]["meta"]
    assert (meta["prompt_tokens"], meta["cached_tokens"]) == (10, 7)
    assert bench.engine.stats()["recomputed_tokens"] == 0


def test_a_warm_path_costs_no_row_at_all(make):
    bench = make()
    for _ in range(3):
        context = bench.open([1, 2, 3])
        call = bench.generate(context, max_tokens=5)
        bench.run()
        bench.close(context)
        assert bench.ids(call) == bench.greedy([1, 2, 3], 5)
    assert len(bench.runner.rows) == 7
    assert bench.done[call]["meta"]["cached_tokens"] == 3


def test_a_stop_inside_a_token_leaves_clean_ids(make):
    text = b"abcENDxyz"

    def script(path):
        import torch

        logits = torch.zeros(259)
        logits[text[min(len(path) - 1, len(text) - 1)]] = 10
        return logits

    bench = make(script)
    context = bench.open([0])
    call = bench.generate(context, stop="END", max_tokens=20, stream=True)
    bench.run()
    result = bench.done[call]["results"][0]
    assert (result["text"], result["finish_reason"], result["matched"]) == ("abc", "stop", "END")
    assert result["kept"] == 3
    assert "".join(c["text"] for c in bench.chunks) == "abc"
    assert bench.engine._contexts.live[context].node.path_ids() == [0, *b"abc"]


def test_impossible_requests_fail_at_once_with_the_numbers(make):
    bench = make(pool_tokens=64, max_context=256)
    long = bench.generate(bench.open([1] * 100), max_tokens=4)
    over = bench.generate(bench.open([1] * 256), max_tokens=4)
    exact = bench.generate(bench.open([1] * 64), max_tokens=1)
    small = bench.generate(bench.open([2] * 5), max_tokens=4)
    bench.run()
    assert bench.errors[long]["kind"] == "PoolTooSmall"
    assert "100" in bench.errors[long]["message"]
    assert "64" in bench.errors[long]["message"]
    assert bench.errors[over]["kind"] == "ContextOverflow"
    assert bench.ids(exact) == bench.greedy([1] * 64, 1)
    assert bench.ids(small) == bench.greedy([2] * 5, 4)


def test_a_lone_sequence_that_outgrows_the_pool_ends_with_length(make):
    bench = make(pool_tokens=16, page_size=4)
    call = bench.generate(bench.open([1] * 10), max_tokens=100)
    bench.run()
    result = bench.done[call]["results"][0]
    assert result["finish_reason"] == "length"
    assert result["pool_exhausted"]
    assert bench.ids(call) == bench.greedy([1] * 10, 7)
    after = bench.generate(bench.open([5]), max_tokens=2)
    bench.run()
    assert bench.ids(after) == bench.greedy([5], 2)


def test_the_context_length_ends_a_generation(make):
    bench = make(max_context=12)
    call = bench.generate(bench.open([1] * 10), max_tokens="context")
    bench.run()
    assert len(bench.ids(call)) == 2


def test_an_error_ends_the_branch_and_what_is_queued_behind_it(make):
    bench = make(pool_tokens=16)
    context = bench.open([1] * 20)
    calls = [bench.generate(context), bench.generate(context)]
    (child,) = bench.fork(context, 1)
    calls.append(bench.generate(child))
    bench.run()
    assert [bench.errors[c]["kind"] for c in calls] == ["PoolTooSmall"] * 3
    bench.close(context, child)


@pytest.mark.parametrize("seed", range(6))
def test_aborts_at_any_moment_leave_nothing(make, seed: int):
    rng = random.Random(seed)
    bench = make(
        pool_tokens=128, page_size=rng.choice([1, 4, 16]), chunk_tokens=rng.choice([5, 32])
    )
    live: dict[int, tuple[list[int], list[int]]] = {}
    for _ in range(300):
        action = rng.random()
        if action < 0.3:
            ids = [rng.randrange(3) for _ in range(rng.randrange(1, 20))]
            context = bench.open(ids)
            call = bench.generate(context, max_tokens=rng.randrange(1, 20), n=rng.randrange(1, 3))
            live[context] = (ids, [call])
            if rng.random() < 0.3:
                for child in bench.fork(context, 2):
                    live[child] = (ids, [bench.generate(child, max_tokens=5, temperature=1.0)])
        elif action < 0.4 and live:
            context = rng.choice(list(live))
            bench.abort(program=context)
        elif action < 0.5 and live:
            bench.abort(call=live[rng.choice(list(live))][1][0])
        elif action < 0.6 and live:
            context = rng.choice(list(live))
            bench.close(context)
            del live[context]
        else:
            bench.step()
            audit(bench.engine.room.tree)
    bench.run()
    bench.close(*live)
    bench.run()
    assert not bench.engine._contexts.live
    assert not bench.engine._contexts.programs
    assert not bench.engine._calls
    assert not [n for n in bench.engine.room.tree.nodes() if n.refs]
    assert bench.done


def test_a_call_that_still_waits_for_its_context_can_be_aborted(make):
    bench = make()
    context = bench.open([1, 2])
    first = bench.generate(context, max_tokens=8)
    second = bench.generate(context, max_tokens=8)
    third = bench.generate(context, max_tokens=8)
    bench.step()
    bench.abort(call=second)
    bench.abort(call=12345)
    bench.collect()
    assert bench.errors[second]["kind"] == "Cancelled", "its caller hears at once"
    bench.run()
    assert bench.ids(first) == bench.greedy([1, 2], 8)
    assert bench.errors[third]["kind"] == "Cancelled"
    assert not bench.engine._queued
    bench.close(context)


def test_decodes_are_not_stalled_by_a_long_prompt(make):
    bench = make(pool_tokens=4096, chunk_tokens=16)
    call = bench.generate(bench.open([1]), max_tokens=50, stream=True)
    bench.step()
    bench.step()
    bench.generate(bench.open([2] * 400), max_tokens=1)
    before = len(bench.engine.room.scheduler.running[0].output_ids)
    for _ in range(20):
        bench.step()
    assert len(bench.engine.room.scheduler.running[0].output_ids) == before + 20
    bench.run()
    assert len(bench.ids(call)) == 50


@pytest.mark.parametrize("target", [30, 60])
def test_a_step_with_decodes_keeps_its_target(make, target: int):
    timed = Timed(make, pool_tokens=4096, chunk_tokens=200, target_step_ms=target)
    bench = timed.bench
    for i in range(4):
        bench.generate(bench.open([i]), max_tokens=60)
    for _ in range(3):
        bench.step()
    bench.generate(bench.open([7] * 600), max_tokens=1)
    taken = []
    while len(bench.engine.room.scheduler.running) > 4 or bench.engine.room.scheduler.num_waiting:
        before = timed.now
        bench.step()
        taken.append(timed.now - before)
    floor = 0.020 + 0.001 * (4 + FLOOR_ROWS)
    assert max(taken) <= max(1.05 * target / 1e3, floor + 1e-9)
    assert taken[-2] == pytest.approx(max(target / 1e3, floor), rel=0.05)


def test_with_nobody_decoding_a_prompt_has_the_whole_chunk(make):
    timed = Timed(make, pool_tokens=4096, chunk_tokens=100, target_step_ms=1)
    bench = timed.bench
    bench.generate(bench.open([7] * 300), max_tokens=4)
    for _ in range(3):
        bench.step()
    assert [len(batch.token_ids) for batch in bench.runner.batches] == [100] * 3


@pytest.mark.parametrize("target", [None, 40])
@pytest.mark.parametrize("seed", range(4))
def test_each_step_brings_a_token_to_all_that_decode(make, seed: int, target: float | None):
    rng = random.Random(seed)
    timed = Timed(
        make,
        pool_tokens=rng.choice([192, 1024]),
        page_size=rng.choice([1, 4]),
        chunk_tokens=rng.choice([12, 64]),
        max_running=rng.choice([4, 16]),
        target_step_ms=target,
    )
    bench = timed.bench
    prompts: dict[int, list[int]] = {}
    for _ in range(120):
        if rng.random() < 0.25:
            ids = [rng.randrange(4) for _ in range(rng.choice([2, 10, 90]))]
            priority = rng.randrange(2)
            prompts[bench.generate(bench.open(ids, priority=priority), max_tokens=12)] = ids
        before = decoding(bench.engine)
        bench.step()
        for sequence, tokens in before.items():
            retracted = sequence.alive and not sequence.running
            assert retracted or len(sequence.output_ids) == tokens + 1
    bench.run()
    for call, ids in prompts.items():
        assert bench.ids(call) == bench.greedy(ids, 12)


def test_without_cache_nothing_is_read_or_left(make):
    bench = make()
    for cache, cached in ((True, 0), (False, 0), (True, 3)):
        context = bench.open([1, 2, 3], cache=cache)
        call = bench.generate(context, max_tokens=2)
        bench.run()
        bench.close(context)
        assert bench.done[call]["meta"]["cached_tokens"] == cached
        assert bench.ids(call) == bench.greedy([1, 2, 3], 2)


def test_a_broken_step_fails_its_calls_and_the_engine_goes_on(make):
    bench = make()
    context = bench.open([1, 2, 3])
    call = bench.generate(context, max_tokens=5)
    queued = bench.generate(context, max_tokens=5)
    forward = bench.runner.forward

    def broken(batch):
        raise FloatingPointError("the model broke")

    bench.runner.forward = broken
    bench.step()
    assert bench.errors[call]["kind"] == "BackendError"
    assert "the model broke" in bench.errors[call]["message"]
    assert bench.errors[queued]["kind"] == "BackendError"
    audit_idle(bench.engine.room.tree)
    bench.runner.forward = forward
    after = bench.generate(bench.open([1, 2, 3]), max_tokens=4)
    bench.run()
    assert bench.ids(after) == bench.greedy([1, 2, 3], 4)


def test_private_forks_leave_room_for_the_next(make):
    bench = make(pool_tokens=64, page_size=4)
    parent = bench.open(range(40), cache=False)
    children = bench.fork(parent, 2)
    for child in children:
        bench.generate(child, max_tokens=3)
    bench.run()
    bench.close(*children)
    call = bench.generate(bench.open([7] * 50), max_tokens=4)
    bench.run()
    assert bench.ids(call) == bench.greedy([7] * 50, 4)
    bench.close(parent)


def test_finished_entries_do_not_pile_up_in_the_queue(make):
    bench = make(pool_tokens=64, chunk_tokens=4)
    bench.generate(bench.open([1] * 40), max_tokens=20)
    bench.step()
    waiting = bench.generate(bench.open([2] * 60), max_tokens=1)
    for i in range(500):
        bench.abort(call=bench.generate(bench.open([3, i % 250]), max_tokens=2))
    assert len(bench.engine.room.scheduler._waiting) < 100
    bench.run()
    assert bench.ids(waiting) == bench.greedy([2] * 60, 1)


def test_what_comes_after_a_queued_close_is_refused_at_once(make):
    bench = make()
    context = bench.open([1, 2])
    call = bench.generate(context, max_tokens=3)
    bench.close(context)
    late = bench.generate(context, max_tokens=3)
    later = bench.generate(bench.fork(context, 1)[0], max_tokens=3)
    bench.collect()
    assert {late, later} <= set(bench.errors)
    bench.run()
    assert call in bench.done
    assert bench.engine.stats()["contexts"] == 0
