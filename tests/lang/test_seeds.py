"""Random streams: seeded programs give equal results however they are run, unseeded ones differ.

`RUNNERS` are the ways to run a program; a new way is one more entry.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from scripted_runtime import idle
from watchdog import within

import ramet.lang as rm
from ramet.runtime.runtime import Runtime

pytestmark = pytest.mark.timeout(200)

Kwargs = Mapping[str, Any]
Runner = Callable[[rm.Function, Kwargs, int], Any]
"""(program, its arguments, seed) to the state, or what can be read as one."""


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    # Double precision: what runs beside a call must not decide a draw by rounding.
    with Runtime("tiny", dtype="float64", pool_tokens=32768, seed=7) as runtime:
        yield runtime


@pytest.fixture(autouse=True)
def at_rest(runtime: Runtime) -> Iterator[None]:
    rm.set_default_backend(runtime)
    yield
    rm.set_default_backend(None)
    idle(runtime)


# The programs


def gen(name: str, **options: Any) -> Any:
    return rm.gen(name, **{"max_tokens": 4, "temperature": 1.0, "ignore_eos": True, **options})


@rm.function
def flat(s: rm.ProgramState, topic: str) -> None:
    s += topic + gen("a") + " and " + gen("b", top_p=0.9, top_k=50)


@rm.function
def samples(s: rm.ProgramState, topic: str) -> None:
    s += topic + gen("a", n=3) + gen("b", n=2)


@rm.function
def choosing(s: rm.ProgramState, topic: str) -> None:
    options = {"choices_method": rm.exact_likelihood, "temperature": 1.0}
    for i in range(4):
        s += topic + rm.select(f"c{i}", ["ab", "cd", "ef", "gh"], **options)
    s += gen("a")


@rm.function
def forking(s: rm.ProgramState, topic: str) -> None:
    s += topic + gen("a")
    forks = s.fork(3)
    forks += gen("f")
    forks.join()
    s += "".join(s["f"]) + gen("b")
    more = s.fork(2)
    more += gen("g")
    more.join("concate_and_append")


@rm.function
def nested_forks(s: rm.ProgramState, topic: str) -> None:
    s += topic
    outer = s.fork(2)
    for branch in outer:
        branch += gen("a")
        inner = branch.fork(2)
        inner += gen("b")
        inner.join()
        branch += gen("c")
    outer.join()
    with s.copy() as twin:
        twin += gen("d")


@rm.function
def looping(s: rm.ProgramState, topic: str) -> None:
    for i in range(12):
        s += f"{topic} {i}" + gen("a", max_tokens=2)
        if "e" in s["a"]:
            s += "again" + gen("b", max_tokens=1)


@rm.function
def nesting(s: rm.ProgramState, topic: str) -> None:
    first = flat.run(topic)
    others = forking.run_batch([{"topic": topic}, {"topic": topic + "!"}])
    s += gen("a")
    s["inner"] = [first.text(), *(state.text() for state in others)]


@rm.function
def own_seeds(s: rm.ProgramState, topic: str) -> None:
    s += topic + gen("a", seed=3) + gen("b")
    forks = s.fork(2)
    forks += gen("c", seed=3)
    forks.join()


PROGRAMS = [flat, samples, choosing, forking, nested_forks, looping, nesting, own_seeds]


def outcome(state: Any) -> dict[str, Any]:
    """All that a program made."""
    names = ["a", "b", "c", "d", "f", "g", "inner", *(f"c{i}" for i in range(4))]
    return {"text": state.text()} | {name: state[name] for name in names if name in state}


# The ways to run them


def alone(program: rm.Function, kwargs: Kwargs, seed: int) -> Any:
    return program.run(**kwargs, seed=seed)


def streamed(program: rm.Function, kwargs: Kwargs, seed: int) -> Any:
    state = program.run(**kwargs, seed=seed, stream=True)
    assert "".join(state.text_iter()) == state.text()
    return state


def in_a_batch(place: int, num_threads: Any = "auto") -> Runner:
    """Among others of the same program, some with the same seed."""

    def run(program: rm.Function, kwargs: Kwargs, seed: int) -> Any:
        items = [{"topic": f"other {i}"} for i in range(6)]
        items.insert(place, dict(kwargs))
        seeds = [seed if i == place or i % 2 else 1000 + i for i in range(7)]
        return list(program.run_batch(items, seed=seeds, num_threads=num_threads))[place]

    return run


def as_they_finish(program: rm.Function, kwargs: Kwargs, seed: int) -> Any:
    states = program.run_batch([dict(kwargs)] * 3, seed=seed, generator_style=True)
    found = list(states)
    assert len({str(outcome(state)) for state in found}) == 1
    return found[-1]


def inside_another(program: rm.Function, kwargs: Kwargs, seed: int) -> Any:
    found: list[Any] = []

    @rm.function
    def outer(s: rm.ProgramState) -> None:
        s += gen("z")
        found.append(program.run(**kwargs, seed=seed))
        s += gen("z")

    outer.run(seed=99)
    return found[0]


def beside_others(program: rm.Function, kwargs: Kwargs, seed: int) -> Any:
    others = threading.Thread(target=lambda: flat.run_batch([{"topic": "noise"}] * 40))
    others.start()
    try:
        return program.run(**kwargs, seed=seed)
    finally:
        others.join()


def after_a_flush(program: rm.Function, kwargs: Kwargs, seed: int) -> Any:
    rm.flush_cache()
    return program.run(**kwargs, seed=seed)


def awaited(program: rm.Function, kwargs: Kwargs, seed: int) -> Any:
    return asyncio.run(program.arun(**kwargs, seed=seed))


def awaited_in_a_batch(program: rm.Function, kwargs: Kwargs, seed: int) -> Any:
    items = [{"topic": f"other {number}"} for number in range(4)] + [dict(kwargs)]
    return asyncio.run(program.arun_batch(items, seed=[9, 8, 7, 6, seed]))[4]


def compiled(program: rm.Function, kwargs: Kwargs, seed: int) -> Any:
    try:
        fast = program.compile()
    except rm.RametError:  # It looks at what its calls gave, so it has no graph ahead of time.
        return program.run(**kwargs, seed=seed)
    return fast.run_batch([{"topic": "other"}, dict(kwargs)], seed=[5, seed])[1]


def awaited_compiled(program: rm.Function, kwargs: Kwargs, seed: int) -> Any:
    try:
        fast = program.compile()
    except rm.RametError:
        return program.run(**kwargs, seed=seed)
    return asyncio.run(fast.arun(**kwargs, seed=seed))


RUNNERS: dict[str, Runner] = {
    "awaited": awaited,
    "awaited in a batch": awaited_in_a_batch,
    "compiled": compiled,
    "awaited and compiled": awaited_compiled,
    "alone": alone,
    "streamed": streamed,
    "first of a batch": in_a_batch(0),
    "last of a batch": in_a_batch(6),
    "in a batch on one thread": in_a_batch(3, 1),
    "in a batch on two threads": in_a_batch(3, 2),
    "as they finish": as_they_finish,
    "inside another": inside_another,
    "beside others": beside_others,
    "after a flush": after_a_flush,
}


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_seed_decides_everything(program: rm.Function, runner: str) -> None:
    for seed in (1, 2**40):
        kwargs = {"topic": "The lake"}
        expected = outcome(alone(program, kwargs, seed))
        found = within(60, lambda: RUNNERS[runner](program, kwargs, seed))  # noqa: B023
        assert outcome(found) == expected


def test_most_of_these_programs_can_be_compiled() -> None:
    def compiles(program: rm.Function) -> bool:
        try:
            program.compile()
        except rm.RametError:
            return False
        return True

    assert sum(map(compiles, PROGRAMS)) >= 3


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_seeds_differ(program: rm.Function) -> None:
    texts = {str(outcome(program.run("The lake", seed=seed))) for seed in range(4)}
    assert len(texts) == 4


@pytest.mark.parametrize("runner", RUNNERS)
def test_branches_calls_and_samples_have_streams_of_their_own(runner: str) -> None:
    @rm.function
    def program(s: rm.ProgramState, topic: str) -> None:
        s += topic
        forks = s.fork(3)
        forks += gen("f", max_tokens=12, n=2)
        forks.join()
        s += gen("a", max_tokens=12)

    state = RUNNERS[runner](program, {"topic": "The lake"}, 4)
    # The same context for all of them: any two that are equal would share a stream.
    texts = [state["a"], *itertools.chain(*state["f"])]
    assert len(set(texts)) == len(texts) == 7


def test_a_calls_own_seed_replaces_only_the_programs() -> None:
    first, second = (own_seeds.run("The lake", seed=seed) for seed in (1, 2))
    assert first["a"] == second["a"]
    assert first["b"] != second["b"]
    assert first["c"][0] != first["c"][1]


def test_nested_programs_in_any_order_have_the_seeds_of_their_order() -> None:
    def run(num_threads: int) -> list[str]:
        before = rm.global_config.max_threads
        rm.global_config.max_threads = num_threads
        try:

            @rm.function
            def outer(s: rm.ProgramState) -> None:
                inner = flat.run_batch([{"topic": "The lake"}] * 8)
                s["texts"] = [state.text() for state in inner]

            return list(outer.run(seed=3)["texts"])
        finally:
            rm.global_config.max_threads = before

    assert run(1) == run(8)
    assert len(set(run(8))) == 8


# Without seeds


@pytest.mark.parametrize("way", ["batch", "one by one", "nested"])
def test_a_hundred_unseeded_items_are_independent_samples(way: str) -> None:
    """One token each, from a distribution that is read from the model: their counts fit it.

    The statistic is the likelihood-ratio G of the counts of five groups of tokens, chi-squared with
    4 degrees of freedom: above 40 with a probability under 1e-7 (and the Runtime's seed is fixed).
    """

    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += "The lake is " + rm.gen("x", max_tokens=1, temperature=1.0, ignore_eos=True)

    def ids(states: Any) -> list[int]:
        return [state.meta("x")["output_token_ids"][0] for state in states]

    if way == "batch":
        drawn = ids(program.run_batch([{}] * 100))
    elif way == "one by one":
        drawn = ids(program.run() for _ in range(100))
    else:

        @rm.function
        def outer(s: rm.ProgramState) -> None:
            s["ids"] = ids(program.run_batch([{}] * 100))

        drawn = outer.run()["ids"]
    reference = program.run(return_logprob=True, top_logprobs_num=100)
    probable = {t: math.exp(p) for p, t, _ in reference.meta("x")["output_top_logprobs"][0]}
    groups = grouped(probable, 5)
    counts = [sum(token in group for token in drawn) for group in groups[:-1]]
    counts.append(100 - sum(counts))
    shares = [sum(probable[t] for t in group) for group in groups[:-1]]
    shares.append(1 - sum(shares))
    found = [(c, 100 * p) for c, p in zip(counts, shares, strict=True) if c]
    assert 2 * sum(c * math.log(c / e) for c, e in found) < 40
    # And neighbours are as different as strangers: equal pairs are no more than chance allows.
    equal = sum(a == b for a, b in itertools.pairwise(drawn))
    chance = sum(p * p for p in probable.values())
    assert equal <= 99 * chance + 7 * math.sqrt(99 * chance) + 3
    assert len(set(drawn)) > 5


def grouped(probable: Mapping[int, float], count: int) -> list[set[int]]:
    """Tokens in `count` groups of about equal probability; the last one is everything else."""
    groups: list[set[int]] = [set()]
    share = 0.0
    for token, p in sorted(probable.items(), key=lambda item: -item[1]):
        if share >= len(groups) / count and len(groups) < count:
            groups.append(set())
        groups[-1].add(token)
        share += p
    assert len(groups) == count
    return groups


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_unseeded_items_all_differ(program: rm.Function) -> None:
    found = [outcome(state) for state in program.run_batch([{"topic": "The lake"}] * 20)]
    # Of twenty draws of four tokens; texts may be equal where tokens are no whole characters.
    assert len({str(item) for item in found}) >= 19


def test_the_runtimes_seed_and_the_order_of_submission_decide_unseeded_programs() -> None:
    def run(seed: int) -> list[str]:
        with Runtime(
            "tiny", dtype="float64", pool_tokens=4096, seed=seed, isolation="thread"
        ) as runtime:
            states = forking.run_batch([{"topic": "The lake"}] * 10, backend=runtime)
            return [state.text() for state in states]

    assert run(1) == run(1)
    assert set(run(1)).isdisjoint(run(2))
