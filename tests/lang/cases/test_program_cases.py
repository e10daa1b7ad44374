"""Reported cases of programs: B10, B12, B14, B17, B18, B19 and B20."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest
from scripted_runtime import idle, writes
from stub_server import Reply, StubServer
from watchdog import watchdog

import ramet.lang as rm
from ramet.runtime.runtime import Runtime

Start = Callable[..., Runtime]


@pytest.fixture
def stub() -> Iterator[StubServer]:
    server = StubServer()
    yield server
    server.close()


def test_several_samples_in_one_gen_are_a_list_and_the_first_enters_the_text(start: Start) -> None:
    """B10: asking for three samples broke the interpreter, which expected one text."""

    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += rm.user("One?")
        s += rm.assistant(rm.gen("a", n=3, temperature=1, max_tokens=8))
        s += rm.user("Two?")
        s += rm.assistant(rm.gen("b", max_tokens=8))

    state = program.run(backend=start(writes({}, list("samples!"))), seed=3)
    assert isinstance(state["a"], list)
    assert len(state["a"]) == 3
    assert len(state.meta("a")) == 3
    assert isinstance(state["b"], str)
    contents = [message["content"] for message in state.messages()]
    assert contents == ["One?", state["a"][0], "Two?", state["b"]]
    others = {text for text in state["a"][1:] if text != state["a"][0]}
    assert not any(text in state.text() for text in others)


@watchdog(60)
def test_bulk_calls_follow_each_other_on_one_engine(start: Start) -> None:
    """B12: the second large call in a process stalled with nothing running."""
    runtime = start(writes({}, list("word")), pool_tokens=256, chunk_tokens=16)
    prompts = ["shared beginning " + f"{i:02d}" * 12 for i in range(50)]
    params = {"max_tokens": 3, "temperature": 0}
    for _ in range(2):
        outputs = runtime.generate(prompts, params)
        assert [output["text"] for output in outputs] == ["wor"] * 50  # type: ignore[index]
        idle(runtime)


@watchdog(60)
def test_bulk_batches_follow_each_other_and_an_exception(start: Start) -> None:
    """B12: also two run_batch calls, and one after an exception in the first."""
    runtime = start(writes({}, list("word")), pool_tokens=256, chunk_tokens=16)

    @rm.function
    def program(s: rm.ProgramState, i: int, bad: int) -> None:
        s += "shared beginning " + f"{i:02d}" * 12 + rm.gen("x", max_tokens=3)
        if i == bad:
            raise ZeroDivisionError(f"item {i}")

    def run(bad: int) -> list[rm.ProgramState]:
        items = [{"i": i, "bad": bad} for i in range(50)]
        return list(program.run_batch(items, backend=runtime, temperature=0))

    for bad in (-1, -1, 7, -1):
        if bad < 0:
            assert [state["x"] for state in run(bad)] == ["wor"] * 50
        else:
            with pytest.raises(ZeroDivisionError, match="item 7"):
                run(bad)
        idle(runtime)


@pytest.mark.parametrize(
    ("reply", "said"),
    [(Reply(500, ["out of pages"], "text/plain"), r"500.*out of pages"), (Reply(502), r"502")],
)
def test_a_servers_own_words_are_in_the_error(stub: StubServer, reply: Reply, said: str) -> None:
    """B14: a JSON decoder's error hid the server's."""
    stub.script += [reply, reply]

    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += "a" + rm.gen("x")

    with (
        rm.OpenAI(stub.url, "stub", max_retries=1, backoff=0.001) as backend,
        pytest.raises(rm.BackendError, match=said),
    ):
        program.run(backend=backend)


def test_successive_appends_of_a_streamed_program_all_arrive_once(start: Start) -> None:
    """B17: several appends before the iteration kept only the last one."""
    runtime = start(writes({"A": ["1", "2", "3"], "B": ["4", "5", "6"]}))

    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += "A"
        s += rm.gen("x", max_tokens=2)
        s += "B"
        s += rm.gen("y", max_tokens=2)

    def run() -> rm.ProgramState:
        return program.run(backend=runtime, stream=True, temperature=0)

    state = run()
    chunks = list(state.text_iter())
    assert "".join(chunks) == state.text() == "A12B45"
    assert all(chunks)
    state = run()
    assert "".join(state.text_iter("y")) == "45"
    assert state.text() == "A12B45"


def test_a_name_in_a_loop_keeps_all_its_values(start: Start) -> None:
    """B18: only the last value survived, and users expected the list."""
    runtime = start(writes({"a": ["1"], "b": ["2"], "c": ["3"]}))
    forks: list[rm.ProgramState] = []

    @rm.function
    def program(s: rm.ProgramState) -> None:
        for question in ["a", "b", "c"]:
            s += question + rm.gen("j", max_tokens=1)
            forks.append(s.fork(1)[0])
            assert s.history("j")[-1] == s["j"]

    state = program.run(backend=runtime, temperature=0)
    assert state["j"] == "3"
    assert state.history("j") == ["1", "2", "3"]
    assert state.text() == "a1b2c3"
    assert [fork["j"] for fork in forks] == ["1", "2", "3"]
    assert [len(fork.history("j")) for fork in forks] == [1, 2, 3]


def test_the_default_limit_shows_in_the_finish_reason(start: Start) -> None:
    """B19: answers were cut at a default limit without a sign."""
    runtime = start(writes({}, ["z"] * 400), max_context=1024)

    def run(**options: object) -> rm.ProgramState:
        @rm.function
        def program(s: rm.ProgramState) -> None:
            s += "Go:" + rm.gen("a", **options)

        return program.run(backend=runtime, temperature=0)

    cut = run()
    assert cut.meta("a")["finish_reason"] == "length"
    assert cut.meta("a")["completion_tokens"] == len(cut["a"]) == 128
    assert "128" in (rm.gen.__doc__ or "")
    whole = run(max_tokens="context")
    assert whole.meta("a")["finish_reason"] == "eos"
    assert whole["a"] == "z" * 400


def test_up_to_the_context_ends_there(start: Start) -> None:
    """B19: the explicit setting for "as long as it goes"."""
    runtime = start(writes({}, ["z"] * 400), max_context=128)

    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += "Go:" + rm.gen("a", max_tokens="context")

    state = program.run(backend=runtime, temperature=0)
    meta = state.meta("a")
    assert meta["finish_reason"] == "length"
    assert len("Go:") + meta["completion_tokens"] == 128


_TWO_CORES = """
    import os
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    import ramet.lang as rm

    @rm.function
    def program(s, i):
        s += f"{i}:" + rm.gen("x", max_tokens=1)

    with rm.Runtime("tiny", isolation="thread", pool_tokens=4096) as runtime:
        states = program.run_batch(
            [{"i": i} for i in range(64)], backend=runtime, progress_bar=True
        )
        print(len(states), int(runtime.stats()["peak_running"]))
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "sched_setaffinity"), reason="needs Linux")
def test_concurrency_does_not_depend_on_the_number_of_cores() -> None:
    """B20: on two cores the batch ran two programs at a time, and its progress display broke."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_TWO_CORES)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    count, peak = map(int, done.stdout.split())  # Nothing else is on standard output.
    assert count == 64
    assert peak > 2
    assert "64/64" in done.stderr.splitlines()[-1]
    assert "\x1b" not in done.stderr
