"""Many programs at once, deep nesting, and bulk calls in a row: all come to an end."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from scripted_runtime import idle
from tiny_programs import at_rest, runtime
from watchdog import watchdog

import ramet.lang as rm
from ramet.runtime.runtime import Runtime

__all__ = ["at_rest", "runtime"]
pytestmark = pytest.mark.timeout(240)
LIMIT = 120.0
"""Seconds for the watchdog: many times what a loaded machine of two cores needs."""


def bodies() -> int:
    """Threads that the language runs bodies on now."""
    return sum(thread.name.startswith("ramet-body") for thread in threading.enumerate())


@watchdog(LIMIT)
def test_two_hundred_programs_of_twenty_forks_under_64_threads() -> None:
    peak = 0

    @rm.function
    def program(s: rm.ProgramState, i: int) -> None:
        nonlocal peak
        s += f"{i}:"
        forks = s.fork(20)
        forks += lambda j: f"{j}" + rm.gen("x", max_tokens=1, ignore_eos=True)
        forks.join()
        peak = max(peak, bodies())
        s += "all: " + ",".join(s["x"]) + rm.gen("end", max_tokens=1, ignore_eos=True)

    states = program.run_batch([{"i": i} for i in range(200)], num_threads=64)
    assert [len(state["x"]) for state in states] == [20] * 200
    assert [state.meta("end")["completion_tokens"] for state in states] == [1] * 200
    assert all(state.text().startswith(f"{i}:all: ") for i, state in enumerate(states))
    assert 1 <= peak <= 64


@watchdog(LIMIT)
@pytest.mark.parametrize("depth", [50])
@pytest.mark.parametrize("way", ["wait", "read", "batch", "stream", "ignore"])
def test_nested_programs_under_two_threads(
    max_threads: Callable[[int], None], depth: int, way: str
) -> None:
    max_threads(2)

    @rm.function
    def program(s: rm.ProgramState, depth: int) -> int:
        s += f"level {depth}:" + rm.gen("x", max_tokens=1, ignore_eos=True)
        if not depth:
            return 1
        if way == "batch":
            (inner,) = program.run_batch([{"depth": depth - 1}])
        else:
            inner = program.run(depth - 1, stream=way == "stream")
        if way == "stream":
            assert "".join(inner.text_iter("x")) == inner["x"]
        elif way == "read":
            s += inner["x"]
        if way == "ignore":
            return 1
        inner.sync()
        return inner.ret_value + 1

    state = program.run(depth)
    assert state.meta("x")["completion_tokens"] == 1
    assert state.ret_value == (1 if way == "ignore" else depth + 1)


@watchdog(LIMIT)
def test_a_tree_of_nested_programs_under_two_threads(max_threads: Callable[[int], None]) -> None:
    max_threads(2)

    @rm.function
    def program(s: rm.ProgramState, depth: int) -> None:
        s += rm.gen("x", max_tokens=1, ignore_eos=True)
        inner = program.run_batch([{"depth": depth - 1}] * 3) if depth else []
        s["leaves"] = sum(state["leaves"] for state in inner) if depth else 1

    assert program.run(5)["leaves"] == 3**5


@watchdog(LIMIT)
def test_nested_programs_in_a_batch_under_two_threads(max_threads: Callable[[int], None]) -> None:
    max_threads(2)

    @rm.function
    def inner(s: rm.ProgramState, i: int) -> None:
        s += f"{i}" + rm.gen("x", max_tokens=1, ignore_eos=True)

    @rm.function
    def outer(s: rm.ProgramState, i: int) -> None:
        inners = inner.run_batch([{"i": 10 * i + j} for j in range(5)])
        s += "".join(state["x"] for state in inners) + rm.gen("y", max_tokens=1, ignore_eos=True)
        s["texts"] = [state.text()[: len(f"{10 * i}")] for state in inners]

    states = outer.run_batch([{"i": i} for i in range(1, 40)])
    expected = [[f"{10 * i + j}" for j in range(5)] for i in range(1, 40)]
    assert [state["texts"] for state in states] == expected


@watchdog(LIMIT)
def test_bulk_batches_in_a_row_and_one_after_an_exception(runtime: Runtime) -> None:
    @rm.function
    def program(s: rm.ProgramState, i: int, bad: int) -> None:
        s += "a beginning that all share; " + f"item {i}:"
        forks = s.fork(2)
        forks += rm.gen("x", max_tokens=2, ignore_eos=True)
        if i == bad:
            raise LookupError(f"item {i}")
        forks.join()

    for bad in (-1, -1, 123, -1):
        items = [{"i": i, "bad": bad} for i in range(300)]
        if bad < 0:
            assert [len(state["x"]) for state in program.run_batch(items)] == [2] * 300
        else:
            with pytest.raises(LookupError, match="item 123") as caught:
                program.run_batch(items)
            results = caught.value.results  # type: ignore[attr-defined]
            assert sum(isinstance(result, rm.ProgramState) for result in results) == 299
        idle(runtime)
        assert bodies() == 0 or within_linger()


def within_linger() -> bool:
    """Whether the idle body threads end by themselves."""
    for thread in threading.enumerate():
        if thread.name.startswith("ramet-body"):
            thread.join(5)
    return bodies() == 0


@watchdog(LIMIT)
def test_batches_from_many_threads_of_the_user(max_threads: Callable[[int], None]) -> None:
    max_threads(4)

    @rm.function
    def program(s: rm.ProgramState, i: int) -> None:
        s += f"{i}:" + rm.gen("x", max_tokens=1, ignore_eos=True)
        s += s["x"] + rm.gen("y", max_tokens=1, ignore_eos=True)

    done: dict[int, list[str]] = {}

    def one(number: int) -> None:
        states = program.run_batch([{"i": 100 * number + j} for j in range(25)])
        done[number] = [state.text().partition(":")[0] for state in states]

    threads = [threading.Thread(target=one, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == {n: [f"{100 * n + j}" for j in range(25)] for n in range(12)}


@watchdog(LIMIT)
def test_a_wide_and_deep_tree_of_forks(runtime: Runtime) -> None:
    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += "root:"
        level = [s]
        for depth in range(9):
            level = [child for state in level for child in state.fork(2)]
            for i, state in enumerate(level):
                state += f"{i % 2}" + rm.gen(f"x{depth}", max_tokens=1, ignore_eos=True)
        s["lengths"] = [len(state.text()) >= len("root:") + 9 for state in level]

    state = program.run()
    assert state["lengths"] == [True] * 512
    assert runtime.stats()["peak_running"] <= runtime.config.max_running
