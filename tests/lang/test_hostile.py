"""What nobody should write: odd names and texts, depth without end, exceptions of the wrong kinds.

Each ends in a value or a clear error, and the engine is idle afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tiny_programs import at_rest, gen, run, runtime
from watchdog import watchdog

import ramet.lang as rm

__all__ = ["at_rest", "runtime"]
pytestmark = pytest.mark.timeout(150)
State = rm.ProgramState


@pytest.mark.parametrize("name", ["\0", "\n", " ", "x" * 100_000, "\ud800", "__class__", "é", "0"])
def test_any_text_names_a_variable(name: str) -> None:
    def body(s: State) -> None:
        s += "a" + gen(name)
        s += s[name] + rm.select(name + "'", ["b", "\0"])

    state = run(body)
    assert state[name] in state.text()
    assert state[name + "'"] in ("b", "\0")
    assert name in state


@pytest.mark.parametrize(
    "make",
    [
        lambda: "a\ud800",
        lambda: rm.user("\ud800"),
        lambda: rm.special("\udfff"),
        lambda: rm.gen("x", stop="\ud800"),
        lambda: rm.select("x", ["\ud800", "b"]),
        lambda: b"bytes",
        lambda: 7,
        lambda: None,
        lambda: ["a"],
        lambda: rm.gen,
        lambda: rm.gen(3),  # type: ignore[arg-type]
        lambda: rm.gen(""),
    ],
)
def test_what_is_no_text_and_no_call_is_refused(make: Callable[[], Any]) -> None:
    def body(s: State) -> None:
        s += make()

    with pytest.raises(rm.InvalidArgument):
        run(body)


@watchdog()
def test_a_hundred_thousand_appends() -> None:
    def body(s: State) -> None:
        for _ in range(100_000):
            s += "a"
        assert len(s.text()) == 100_000

    assert run(body).text() == "a" * 100_000


@watchdog()
def test_deep_forks_and_deep_joins() -> None:
    def body(s: State) -> None:
        last = s
        for _ in range(600):
            last = last.fork(1)[0]
            last += "a"
        last += gen()
        s["deep"] = last.text()
        branches = [s]
        groups = []
        for _ in range(100):
            groups.append(branches[-1].fork(1))
            branches.append(groups[-1][0])
            branches[-1] += "b"
        for group in reversed(groups):
            group.join("concate_and_append")

    state = run(body)
    assert state["deep"].startswith("a" * 600)
    assert state.text() == "b" * 100


@pytest.mark.parametrize("n", [0, -1, "3", None, 1.5, True, 10**9])
def test_forks_of_no_number_are_refused(n: Any) -> None:
    with pytest.raises(rm.InvalidArgument, match="n="):
        run(lambda s: s.fork(n) and None)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
@watchdog()
def test_exceptions_that_are_no_errors_reach_the_caller_too(kind: type[BaseException]) -> None:
    def body(s: State, i: int) -> None:
        s += "a" + gen()
        if i == 3:
            raise kind("stop")

    program = rm.function(body)
    with pytest.raises(kind):
        program.run(3)
    with pytest.raises(kind):
        program.run(3, stream=True).text()
    results = list(program.run_batch([{"i": i} for i in range(6)], return_exceptions=True))
    assert [type(result) for result in results] == [State] * 3 + [kind] + [State] * 2


@watchdog()
def test_endless_recursion_is_an_error() -> None:
    @rm.function
    def program(s: State, read: bool) -> None:
        s += "a"
        inner = program.run(read)
        if read:
            inner.text()

    for read in (True, False):
        with pytest.raises(rm.ProgramError, match="nested more than 64 deep"):
            program.run(read)


@pytest.mark.parametrize("style", [False, True])
@watchdog()
def test_items_that_raise_let_those_in_flight_finish(style: bool) -> None:
    done: list[int] = []

    def body(s: State, i: int) -> None:
        s += f"{i}" + gen()
        done.append(i)

    def items() -> Iterator[dict[str, int]]:
        yield {"i": 1}
        yield {"i": 2}
        raise OSError("no more items")

    with pytest.raises(OSError, match="no more items"):
        list(rm.function(body).run_batch(items(), generator_style=style))
    assert sorted(done) == [1, 2]


def test_flushing_the_cache_under_a_running_batch_changes_no_result() -> None:
    stop = threading.Event()

    def flush() -> None:
        while not stop.is_set():
            rm.flush_cache()

    def body(s: State, i: int) -> None:
        s += "a beginning that all share " + f"{i % 5}" + gen("x", 4, temperature=0)

    program, items = rm.function(body), [{"i": i} for i in range(60)]
    expected = [state["x"] for state in program.run_batch(items)]
    thread = threading.Thread(target=flush)
    thread.start()
    try:
        assert [state["x"] for state in program.run_batch(items)] == expected
    finally:
        stop.set()
        thread.join()


# Below: known to go wrong.


def test_a_body_that_is_a_generator_is_refused() -> None:
    def body(s: State) -> Iterator[int]:
        s += "a" + gen()
        yield 1

    with pytest.raises(rm.RametError, match="generator"):
        run(body)


def test_a_join_in_a_loop_brings_the_values_of_each_turn() -> None:
    def body(s: State) -> None:
        for i in range(3):
            group = s.fork(2)
            group += f"{i}" + gen()
            group.join()

    assert len(run(body).history("x")) == 3


def test_an_exception_that_takes_no_note_reaches_the_caller() -> None:
    class Stubborn(Exception):
        def add_note(self, note: str) -> None:
            raise RuntimeError("no notes")

    def body(s: State) -> None:
        raise Stubborn

    with pytest.raises(Stubborn):
        rm.function(body).run_batch([{}])
