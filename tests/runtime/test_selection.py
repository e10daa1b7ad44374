import math
import random

import pytest
import torch
from scripted_engine import Bench

from ramet.runtime.cache.audit import audit, audit_idle
from ramet.runtime.sampling.streams import uniform


def score(bench: Bench, context: int, choices: list[dict], **fields: object) -> int:
    call = bench.number()
    op = {
        "op": "score",
        "ctx": context,
        "call": call,
        "choices": choices,
        "rest": [],
        "method": "token_length_normalized",
        "temperature": 0.0,
        "key": 1,
        "prefix": [],
    }
    bench.engine.submit([{**op, **fields}])
    return call


def choice(ids: list[int], first: int = 0, append: list[int] | None = None) -> dict:
    return {"ids": ids, "first": first, "append": ids if append is None else append}


def logprobs(bench: Bench, path: list[int], ids: list[int]) -> list[float]:
    """The model's log-probabilities of `ids` after `path`, without any engine."""
    found = []
    for token in ids:
        found.append(float(torch.log_softmax(bench.runner.script(tuple(path)), 0)[token]))
        path = [*path, token]
    return found


def outcome(bench: Bench, call: int) -> dict:
    return bench.done[call]["results"][0]


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
        assert stats["computed_tokens"] == len(bench.runner.rows)


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("chunk_tokens", [3, 64])
def test_entries_are_the_models_own_logprobs(make, page_size: int, chunk_tokens: int):
    bench = make(page_size=page_size, chunk_tokens=chunk_tokens)
    context = bench.open([1, 2])
    choices = [[5], [5, 6], [5, 6, 7], [8, 6, 7], [9, 9, 9, 9]]
    call = score(bench, context, [choice(ids) for ids in choices])
    bench.run()
    expected = [logprobs(bench, [1, 2], ids) for ids in choices]
    for got, want in zip(outcome(bench, call)["entries"], expected, strict=True):
        assert got == pytest.approx(want, abs=1e-6)
    means = [sum(e) / len(e) for e in expected]
    best = max(range(5), key=means.__getitem__)
    assert outcome(bench, call)["index"] == best
    assert bench.engine._contexts.live[context].node.path_ids() == [1, 2, *choices[best]]
    # The two prompt tokens, and of the choices, without their last: 5, 56, 8, 86, 9, 99, 999.
    assert bench.engine.stats()["edge_tokens"] == 2 + 7


def test_the_first_entry_is_given_the_prompts_rest(make):
    bench = make()
    context = bench.open([65])
    rest = b"ab"
    ids = [*rest, 99]
    call = score(bench, context, [choice(ids, first=2), choice([*rest, 98], first=2)], rest=[*rest])
    bench.run()
    first = torch.log_softmax(bench.runner.script((65,)), 0)
    compatible = float(first[ord("a")])  # the byte tokens that begin "ab"
    want = sum(logprobs(bench, [65], ids)) - compatible
    assert outcome(bench, call)["entries"][0] == pytest.approx([want], abs=1e-6)


def test_unconditional_entries_count_the_first_as_nothing(make):
    bench = make()
    context = bench.open([1])
    choices = [[5, 6, 7], [8, 9]]
    call = score(
        bench,
        context,
        [choice(ids) for ids in choices],
        method="unconditional_likelihood_normalized",
    )
    bench.run()
    for got, ids in zip(outcome(bench, call)["unconditional"], choices, strict=True):
        assert got == pytest.approx([0.0, *logprobs(bench, ids[:1], ids[1:])], abs=1e-6)


def test_exact_likelihood_is_a_distribution_over_what_the_model_writes(make):
    bench = make()
    context = bench.open([1])
    choices = [[5], [5, 6], [5, 6, 7], [8]]
    call = score(
        bench, context, [choice(i) for i in choices], method="exact_likelihood", temperature=1.0
    )
    bench.run()
    sums = [sum(logprobs(bench, [1], ids)) for ids in choices]
    p6 = math.exp(logprobs(bench, [1, 5], [6])[0])
    p7 = math.exp(logprobs(bench, [1, 5, 6], [7])[0])
    masses = [
        math.exp(sums[0]) * (1 - p6),
        math.exp(sums[1]) * (1 - p7),
        math.exp(sums[2]),
        math.exp(sums[3]),
    ]
    total = sum(masses)
    got = outcome(bench, call)
    assert got["probabilities"] == pytest.approx([m / total for m in masses], rel=1e-5)
    draw, index = uniform(1, 0), 0
    while draw >= masses[index] / total:
        draw -= masses[index] / total
        index += 1
    assert got["index"] == index


def test_a_hundred_choices_cost_their_trie_and_repeat_for_free(make):
    bench = make(pool_tokens=4096)
    choices = [[int(c) for c in str(i)] for i in range(100)]
    for _ in range(2):
        context = bench.open([200, 201])
        score(bench, context, [choice(ids) for ids in choices])
        bench.run()
        bench.close(context)
    assert bench.engine.stats()["edge_tokens"] == 2 + 9
    assert bench.engine.stats()["recomputed_tokens"] == 0


def test_a_trie_larger_than_the_pool_still_works(make):
    rng = random.Random(1)
    bench = make(pool_tokens=32, page_size=4, chunk_tokens=8)
    context = bench.open([1, 2, 3])
    choices = [[i, *(rng.randrange(250) for _ in range(6))] for i in range(40)]
    call = score(bench, context, [choice(ids) for ids in choices])
    while not bench.engine.idle:
        bench.step()
        audit(bench.engine.room.tree)
    for got, ids in zip(outcome(bench, call)["entries"], choices, strict=True):
        assert got == pytest.approx(logprobs(bench, [1, 2, 3], ids), abs=1e-6)


def test_a_call_after_the_choice_continues_from_it(make):
    bench = make()
    context = bench.open([1, 2])
    call = score(bench, context, [choice([5, 6]), choice([7])])
    after = bench.generate(context, max_tokens=3)
    bench.run()
    chosen = outcome(bench, call)["append"]
    assert bench.ids(after) == bench.greedy([1, 2, *chosen], 3)


def test_the_empty_choice_appends_nothing(make):
    bench = make()
    context = bench.open([1, 2])
    call = score(bench, context, [choice([258], append=[])])
    bench.run()
    assert outcome(bench, call)["append"] == []
    assert bench.engine._contexts.live[context].node.path_ids() == [1, 2]


def test_a_choice_that_cannot_fit_fails_at_once(make):
    bench = make(pool_tokens=16)
    call = score(bench, bench.open([1] * 10), [choice([2] * 10)])
    bench.run()
    assert bench.errors[call]["kind"] == "PoolTooSmall"


def test_an_aborted_score_leaves_nothing(make):
    bench = make(chunk_tokens=4)
    context = bench.open([1] * 10)
    call = score(bench, context, [choice([i] * 8) for i in range(20)])
    for _ in range(4):
        bench.step()
    bench.abort(call=call)
    bench.close(context)
    bench.run()
    assert bench.errors[call]["kind"] == "Cancelled"
    assert not [n for n in bench.engine.room.tree.nodes() if n.refs]
