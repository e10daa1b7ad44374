"""States and iterators used at the wrong time, by many threads, or not at all.

Each use ends in a value or a clear error, and the engine is idle afterwards.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest
from tiny_programs import at_rest, gen, run, runtime
from watchdog import watchdog

import ramet.lang as rm
from ramet.runtime.runtime import Runtime

__all__ = ["at_rest", "runtime"]
pytestmark = pytest.mark.timeout(150)
State = rm.ProgramState


@pytest.mark.parametrize("name", [None, "x"])
@watchdog()
def test_closing_an_iterator_halfway_aborts_the_program(name: str | None) -> None:
    def body(s: State) -> None:
        s += "a" + gen("x", 8000) + gen("y")

    state = run(body, stream=True)
    stream = state.text_iter(name)
    assert next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert isinstance(state.error(), rm.Cancelled)
    with pytest.raises(rm.Cancelled, match="stream was closed"):
        state["y"]


def test_closing_an_iterator_of_a_finished_program_changes_nothing() -> None:
    state = run(lambda s: s.__iadd__("a" + gen()) and None)
    stream = state.text_iter()
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert state.error() is None
    assert state.text() == "a" + state["x"]


@watchdog()
def test_many_readers_of_one_stream_all_get_all() -> None:
    state = run(lambda s: s.__iadd__("a" + gen("x", 200)) and None, stream=True)
    found: list[tuple[str | None, str]] = []

    def read(name: str | None) -> None:
        found.append((name, "".join(state.text_iter(name))))

    threads = [threading.Thread(target=read, args=(name,)) for name in ("x", None) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found, key=str) == sorted([("x", state["x"]), (None, state.text())] * 4, key=str)


@watchdog()
def test_threads_that_write_to_one_state() -> None:
    def body(s: State) -> None:
        def write(number: int) -> None:
            for _ in range(25):
                s.__iadd__(f"<{number}>" + gen("x", 1))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    state = run(body)
    assert len(state.history("x")) == 200
    assert sum(state.text().count(f"<{number}>") for number in range(8)) >= 200


@watchdog()
def test_dropped_states_and_generators_leave_nothing() -> None:
    program = rm.function(lambda s, i: s.__iadd__(f"{i}" + gen("x", 20)) and None)
    for i in range(20):
        program.run(i, stream=True)
    states = program.run_batch([{"i": i} for i in range(20)], generator_style=True)
    assert next(iter(states))["x"] is not None
    del states
    program.run_batch([{"i": 0}], generator_style=True)
    assert program.run(1)["x"] is not None


def test_forks_that_nobody_joins_run_to_their_end() -> None:
    groups: list[Any] = []

    def body(s: State) -> None:
        group = s.fork(3)
        group += "f" + gen()
        groups.append(group)
        s.fork(2)

    state = run(body)
    assert state.text() == ""
    assert [branch.text() for branch in groups[0]] == [f"f{branch['x']}" for branch in groups[0]]


def test_a_joined_fork_is_read_but_not_written() -> None:
    def body(s: State) -> None:
        group = s.fork(2)
        group += "f" + gen()
        group.join()
        assert group[0].text() == "f" + group[0]["x"]
        group[0]["mine"] = 1
        assert group[0]["mine"] == 1
        for use in (lambda: group[0].__iadd__("more"), lambda: group[0].fork(2)):
            with pytest.raises(rm.ProgramError, match="has been joined"):
                use()
        with pytest.raises(rm.ProgramError, match="joined already"):
            group.join()

    assert len(run(body)["x"]) == 2


def test_a_finished_state_takes_variables_but_no_text() -> None:
    kept: list[Any] = []

    def body(s: State) -> None:
        s += "a" + gen()
        kept.append(s.fork(2))

    state = run(body)
    state["later"] = 1
    assert state["later"] == 1
    uses = [
        lambda: state.__iadd__("more"),
        lambda: state.fork(2),
        lambda: state.user("hi"),
        lambda: kept[0][0].__iadd__("more"),
        lambda: kept[0].join("concate_and_append"),
    ]
    for use in uses:
        with pytest.raises(rm.ProgramError, match="ended"):
            use()


@watchdog()
def test_states_outlive_their_runtime() -> None:
    with Runtime("tiny", pool_tokens=4096, isolation="thread") as other:
        done = run(lambda s: s.__iadd__("a" + gen()) and None, backend=other)
        busy = run(lambda s: s.__iadd__("a" + gen("x", 4000)) and None, backend=other, stream=True)
        next(busy.text_iter("x"))
    assert done.text() == "a" + done["x"]
    assert done.meta("x")["finish_reason"] == "length"
    for read in (busy.text, lambda: busy["x"], lambda: list(busy.text_iter())):
        with pytest.raises(rm.RametError):
            read()
    with pytest.raises(rm.BackendError, match="shut down"):
        run(lambda s: s.__iadd__("a" + gen()) and None, backend=other)


def test_finished_programs_are_freed() -> None:
    def body(s: State, i: int) -> None:
        s += f"{i}" + gen()
        group = s.fork(2)
        group += gen("y")
        group.join()
        if i % 10 == 3:
            raise ValueError(i)

    rm.function(body).run_batch([{"i": i} for i in range(50)], return_exceptions=True)
    gc.collect()
    names = {"Instance", "Branch", "Handle", "CallValue"}
    kinds = {type(found) for found in gc.get_objects()}  # Numba has a Branch of its own.
    ours = {kind for kind in kinds if str(getattr(kind, "__module__", "")).startswith("ramet.")}
    assert not {kind.__name__ for kind in ours} & names


@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal's signals")
@watchdog(120)
def test_an_interrupt_of_a_waiting_caller_ends_what_it_waits_for() -> None:
    code = """
        import signal, threading
        import ramet.lang as rm

        def interrupt():
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        with rm.Runtime("tiny", pool_tokens=32768, isolation="thread") as runtime:
            rm.set_default_backend(runtime)
            program = rm.function(
                lambda s: s.__iadd__("a" + rm.gen("x", 8000, ignore_eos=True)) and None
            )
            for start in (program.run, lambda: program.run_batch([{}] * 5)):
                threading.Timer(0.3, interrupt).start()
                try:
                    start()
                except KeyboardInterrupt:
                    print("interrupted")
            stats = runtime.stats()
            print(int(stats["running"] + stats["waiting"] + stats["contexts"]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.stdout.split() == ["interrupted", "interrupted", "0"], done.stderr


# Below: known to go wrong.


@pytest.mark.parametrize("way", ["cancel", "close"])
def test_a_nested_program_that_is_ended_on_purpose_is_no_failure(way: str) -> None:
    inner = rm.function(lambda s: s.__iadd__("a" + gen("x", 4000)) and None)

    def body(s: State) -> None:
        nested = inner.run(stream=True)
        if way == "cancel":
            nested.cancel()
        else:
            next(stream := nested.text_iter("x"))
            stream.close()  # type: ignore[attr-defined]
        s += "b" + gen()

    assert run(body).text().startswith("b")


def test_what_a_nested_program_returns_can_be_read() -> None:
    inner = rm.function(lambda s: (s.__iadd__("a" + gen()), s["x"], 7)[-1])
    assert inner.run().ret_value == 7
    assert run(lambda s: inner.run().ret_value).ret_value == 7
