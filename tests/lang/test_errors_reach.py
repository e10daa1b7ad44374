"""Wherever a program fails and however it was started: the caller gets the very exception, what was
produced before it is delivered, the rest finishes, nothing hangs, and nothing is left."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest
from scripted_runtime import idle
from tiny_programs import at_rest, runtime
from watchdog import watchdog

import ramet.lang as rm
from ramet.runtime.runtime import Runtime

__all__ = ["at_rest", "runtime"]
pytestmark = pytest.mark.timeout(150)
LIMIT = 60.0


class Boom(Exception):
    """What the programs raise."""


class Log:
    """What a test's programs did: the errors they raised, and the states of failing ones."""

    def __init__(self) -> None:
        self.errors: list[Boom] = []
        self.states: list[rm.ProgramState] = []
        self.finished = 0

    def boom(self, *_: object) -> NoReturn:
        self.errors.append(Boom("boom"))
        raise self.errors[-1]


def begin(s: rm.ProgramState, log: Log, fail: bool) -> None:
    """What each program does before it fails, and that it has done it."""
    s += "so far " + rm.gen("x", max_tokens=4, ignore_eos=True)
    assert s.meta("x")["completion_tokens"] == 4
    if fail:
        log.states.append(s)


def end(s: rm.ProgramState, log: Log) -> None:
    s += " rest " + rm.gen("y", max_tokens=2, ignore_eos=True)
    log.finished += 1


@rm.function
def in_the_body(s: rm.ProgramState, log: Log, fail: bool) -> None:
    begin(s, log, fail)
    if fail:
        log.boom()
    end(s, log)


@rm.function
def in_one_of_four_forks(s: rm.ProgramState, log: Log, fail: bool) -> None:
    begin(s, log, fail)

    def item(i: int) -> Any:
        if fail and i == 2:
            log.boom()
        return f"{i}" + rm.gen("f", max_tokens=2, ignore_eos=True)

    forks = s.fork(4)
    forks += rm.gen("before", max_tokens=2, ignore_eos=True)
    forks += item
    forks.join()
    assert len(s["f"]) == 4
    end(s, log)


@rm.function
def in_a_tool(s: rm.ProgramState, log: Log, fail: bool) -> None:
    begin(s, log, fail)
    s += rm.call(log.boom if fail else str, s["x"])
    end(s, log)


@rm.function
def in_a_nested_program(s: rm.ProgramState, log: Log, fail: bool) -> None:
    begin(s, log, fail)
    inner = in_the_body.run(Log() if not fail else log, fail)
    s += inner["y"]
    end(s, log)


@rm.function
def in_an_unread_nested_program(s: rm.ProgramState, log: Log, fail: bool) -> None:
    begin(s, log, fail)
    in_the_body.run(Log() if not fail else log, fail)
    end(s, log)
    s["y"]


@rm.function
def in_item_7_of_20(s: rm.ProgramState, log: Log, fail: bool) -> None:
    begin(s, log, fail)
    items = [{"log": log, "fail": fail and i == 7} for i in range(20)]
    states = in_the_body.run_batch(items)
    fine = [state for i, state in enumerate(states) if i != 7]
    assert [len(state.meta("y")["output_token_ids"]) for state in fine] == [2] * 19
    s += states[7]["y"]
    end(s, log)


@rm.function
def while_it_reads_a_stream(s: rm.ProgramState, log: Log, fail: bool) -> None:
    begin(s, log, fail)
    inner = talk.run(4000 if fail else 6, stream=True)
    for number, _ in enumerate(inner.text_iter("long")):
        if fail and number == 2:
            log.boom()
    end(s, log)


@rm.function
def talk(s: rm.ProgramState, length: int = 4000) -> None:
    s += "so far " + rm.gen("long", max_tokens=length, ignore_eos=True)


PROGRAMS = [
    in_the_body,
    in_one_of_four_forks,
    in_a_tool,
    in_a_nested_program,
    in_an_unread_nested_program,
    in_item_7_of_20,
    while_it_reads_a_stream,
]
every_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)


def collect(stream: Iterator[str], chunks: list[str]) -> None:
    for chunk in stream:
        chunks.append(chunk)


def check(error: BaseException, log: Log) -> None:
    """The very exception, with the line that raised it, and what was produced before."""
    assert error is log.errors[0]
    assert len(log.errors) == 1
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert "boom" in frames
    assert error.__cause__ is None
    for state in log.states:
        assert len(state.meta("x")["output_token_ids"]) == 4
        assert isinstance(state["x"], str)
        with pytest.raises(Boom):
            state["never"]


@every_program
@watchdog(LIMIT)
def test_by_run(program: rm.Function, runtime: Runtime) -> None:
    log = Log()
    with pytest.raises(Boom) as caught:
        program.run(log, True)
    idle(runtime)
    check(caught.value, log)
    assert program.run(Log(), False)["y"] is not None


@every_program
@pytest.mark.parametrize("name", [None, "x", "never"])
@watchdog(LIMIT)
def test_by_a_stream(program: rm.Function, name: str | None) -> None:
    log = Log()
    state = program.run(log, True, stream=True)
    chunks: list[str] = []
    if name == "x":
        chunks += state.text_iter("x")
        assert "".join(chunks) == state["x"]
    if name == "never" and program is in_an_unread_nested_program:
        state.error()  # The nested program may fail after this one's body has ended.
    with pytest.raises(Boom) as caught:
        chunks += ["".join(state.text_iter(None if name == "x" else name))]
    check(caught.value, log)
    assert state.error() is log.errors[0]
    for read in (state.text, state.sync, state.messages):
        with pytest.raises(Boom):
            read()


@every_program
@watchdog(LIMIT)
def test_chunks_come_before_the_error(program: rm.Function) -> None:
    log = Log()
    state = program.run(log, True, stream=True)
    chunks: list[str] = []
    with pytest.raises(Boom):
        collect(state.text_iter(), chunks)
    assert "".join(chunks).startswith("so far " + state["x"])


@every_program
@pytest.mark.parametrize("threads", ["auto", 1])
@watchdog(LIMIT)
def test_by_run_batch(program: rm.Function, threads: Any, runtime: Runtime) -> None:
    log = Log()
    items = [{"log": log if i == 3 else Log(), "fail": i == 3} for i in range(8)]
    with pytest.raises(Boom) as caught:
        program.run_batch(items, num_threads=threads)
    idle(runtime)
    check(caught.value, log)
    error: Any = caught.value
    assert "item 3 of run_batch" in "".join(error.__notes__)
    assert error.failures == {3: error}
    assert error.results[3] is error
    others = [state for i, state in enumerate(error.results) if i != 3]
    assert [len(state.meta("y")["output_token_ids"]) for state in others] == [2] * 7


@every_program
@watchdog(LIMIT)
def test_by_run_batch_with_exceptions_at_their_places(program: rm.Function) -> None:
    log = Log()
    items = [{"log": log if i == 3 else Log(), "fail": i == 3} for i in range(6)]
    results = list(program.run_batch(items, return_exceptions=True))
    check(results.pop(3), log)
    assert all(len(state.meta("y")["output_token_ids"]) == 2 for state in results)


@every_program
@watchdog(LIMIT)
def test_by_run_batch_as_a_generator(program: rm.Function) -> None:
    log = Log()
    items = [{"log": log if i == 3 else Log(), "fail": i == 3} for i in range(6)]
    states: list[rm.ProgramState] = []
    with pytest.raises(Boom) as caught:
        states += program.run_batch(items, generator_style=True)
    check(caught.value, log)


@every_program
@pytest.mark.parametrize("way", ["run", "stream", "batch"])
@watchdog(LIMIT)
def test_by_a_program_that_runs_it(program: rm.Function, way: str) -> None:
    log = Log()
    outers: list[rm.ProgramState] = []

    @rm.function
    def outer(s: rm.ProgramState) -> None:
        outers.append(s)
        s += "outer " + rm.gen("z", max_tokens=3, ignore_eos=True)
        if way == "batch":
            (inner,) = program.run_batch([(log, True)])
        else:
            inner = program.run(log, True, stream=way == "stream")
        s += "never " + ("".join(inner.text_iter()) if way == "stream" else inner.text())

    with pytest.raises(Boom) as caught:
        outer.run()
    check(caught.value, log)
    assert len(outers[0].meta("z")["output_token_ids"]) == 3


@every_program
@watchdog(LIMIT)
def test_a_program_may_catch_it_and_go_on(program: rm.Function) -> None:
    log = Log()

    @rm.function
    def outer(s: rm.ProgramState) -> None:
        assert program.run(log, True).error() is log.errors[0]
        s += "on " + rm.gen("z", max_tokens=3, ignore_eos=True)

    assert len(outer.run().meta("z")["output_token_ids"]) == 3


# With timeout=


START: dict[str, Callable[..., Any]] = {
    "run": lambda seconds: talk.run(timeout=seconds),
    "stream": lambda seconds: "".join(talk.run(timeout=seconds, stream=True).text_iter()),
    "variable": lambda seconds: "".join(talk.run(timeout=seconds, stream=True).text_iter("long")),
    "read": lambda seconds: talk.run(timeout=seconds, stream=True)["long"],
    "batch": lambda seconds: talk.run_batch([{}] * 3, timeout=seconds),
    "generator": lambda seconds: list(
        talk.run_batch([{}] * 3, timeout=seconds, generator_style=True)
    ),
}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("way", START)
@watchdog(LIMIT)
def test_a_timeout(way: str, nested: bool) -> None:
    @rm.function
    def outer(s: rm.ProgramState) -> None:
        s += "outer " + rm.gen("z", max_tokens=3, ignore_eos=True)
        found = START[way](0.2)
        for state in found if isinstance(found, list) else [found]:
            state.sync()

    with pytest.raises(rm.Cancelled, match=r"talk: .*timeout of 0\.2 s"):
        outer.run() if nested else START[way](0.2)


@watchdog(LIMIT)
def test_a_timeout_of_one_item_lets_the_others_finish() -> None:
    @rm.function
    def program(s: rm.ProgramState, i: int) -> None:
        limit = 16_000 if i == 3 else 2
        s += f"{i}" + rm.gen("x", max_tokens=limit, ignore_eos=True)

    results = list(
        program.run_batch([{"i": i} for i in range(8)], timeout=1.5, return_exceptions=True)
    )
    assert isinstance(results.pop(3), rm.Cancelled)
    assert [state.meta("x")["completion_tokens"] for state in results] == [2] * 7


@watchdog(LIMIT)
def test_what_came_before_a_timeout_is_delivered() -> None:
    chunks: list[str] = []
    state = talk.run(timeout=1.0, stream=True)
    with pytest.raises(rm.Cancelled):
        collect(state.text_iter(), chunks)
    assert "".join(chunks).startswith("so far ")
    assert len(chunks) > 1


@watchdog(LIMIT)
def test_a_timeout_of_the_outer_program_ends_the_inner_ones() -> None:
    inners: list[rm.ProgramState] = []

    @rm.function
    def outer(s: rm.ProgramState) -> None:
        inners.extend(talk.run_batch([{}] * 3))
        for inner in inners:
            inner.sync()

    with pytest.raises(rm.Cancelled, match="outer"):
        outer.run(timeout=0.2)
    for inner in inners:
        with pytest.raises(rm.Cancelled):
            inner.text()
