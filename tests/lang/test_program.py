from __future__ import annotations

import threading
import time
import traceback
from typing import Any

import pytest
from fake_backend import FakeBackend, MakeBackend

import ramet.lang as rm

pytestmark = pytest.mark.timeout(60)
State = rm.ProgramState


@rm.function
def ask(s: State, question: str, times: int = 1) -> str:
    """Asks."""
    for _ in range(times):
        s += question + rm.gen("answer", stop="\n")
    return s["answer"]


def test_a_program_is_called_or_run(backend: FakeBackend) -> None:
    assert ask("hi")["answer"] == ask.run(question="hi")["answer"] == "[2]"
    state = ask.run("hi", times=2)
    assert state.history("answer") == ["[2]", "[7]"]
    assert state.ret_value == "[7]"
    assert (ask.name, ask.arg_names, ask.__doc__) == ("ask", ["question", "times"], "Asks.")
    assert repr(ask) == "<program ask(question, times)>"


def test_bound_arguments_can_be_replaced(backend: FakeBackend) -> None:
    bound = ask.bind(question="four", times=2)
    assert bound.run()["answer"] == "[11]"
    assert bound.run(times=1)["answer"] == "[4]"
    assert bound.run("x", times=1)["answer"] == "[1]"
    assert ask.run("x")["answer"] == "[1]"
    with pytest.raises(rm.InvalidArgument, match=r"'quetsion'.*question"):
        ask.bind(quetsion="x")


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({}, "question"),
        ({"question": "x", "qestion": "y"}, "'qestion'"),
        ({"question": "x", "seed": 2**70}, "seed"),
        ({"question": "x", "stream": 1}, "stream"),
        ({"question": "x", "timeout": 0}, "timeout"),
        ({"question": "x", "timeout": float("nan")}, "timeout"),
        ({"question": "x", "temperature": -1}, "temperature"),
        ({"question": "x", "max_tokens": 0}, "max_tokens=0"),
        ({"question": "x", "max_tokens": 1, "max_new_tokens": 2}, "given twice"),
        ({"question": "x", "backend": "gpt"}, "backend"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_sent(
    backend: FakeBackend, kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(rm.InvalidArgument, match=message):
        ask.run(**kwargs)
    assert backend.num_calls == 0


def test_what_the_body_declares_is_the_bodys_and_the_rest_the_runs(backend: FakeBackend) -> None:
    @rm.function
    def program(s: State, n: int, stop: str, seed: int = 0, **more: int) -> None:
        s["got"] = (n, stop, seed, more)
        s += rm.gen("x") + rm.gen("y", temperature=0, max_tokens=3)

    state = program.run(2, stop="!", seed=2**80, temperature=0.5, max_tokens=7, extra=1)
    assert state["got"] == (2, "!", 2**80, {"extra": 1})
    assert [(p.temperature, p.max_new_tokens, p.n, p.stop) for p in backend.params] == [
        (0.5, 7, 1, ()),
        (0, 3, 1, ()),
    ]
    assert backend.roots[0].seed is None


def test_defaults_and_seeds(backend: FakeBackend) -> None:
    ask.run("x", seed=7)
    params = backend.params[0]
    assert (params.max_new_tokens, params.temperature, params.top_p) == (128, 1.0, 1.0)
    assert (params.top_k, params.min_p, params.seed) == (-1, 0.0, None)
    assert backend.roots[0].seed == 7


def test_what_is_no_program_is_refused(backend: FakeBackend) -> None:
    with pytest.raises(rm.InvalidArgument, match="first parameter"):
        rm.function(lambda: None)
    with pytest.raises(rm.InvalidArgument, match="num_api_spec_tokens=0"):
        rm.function(num_api_spec_tokens=0)
    speculative = rm.function(num_api_spec_tokens=64)(lambda s: None)
    with pytest.raises(rm.UnsupportedFeature, match="num_api_spec_tokens=64"):
        speculative.run()

    async def later(s: State) -> None: ...

    with pytest.raises(rm.ProgramError, match=r"await later\.arun"):
        rm.function(later).run()
    assert isinstance(rm.function()(ask._body), rm.Function)


def test_another_backend_than_the_default(backend: FakeBackend, make_backend: MakeBackend) -> None:
    other = make_backend()
    rm.set_default_backend(backend)
    ask.run("x", backend=other)
    assert (backend.num_calls, other.num_calls) == (0, 1)


def test_an_exception_keeps_its_type_and_place_and_leaves_nothing(backend: FakeBackend) -> None:
    @rm.function
    def program(s: State) -> None:
        backend.gate.clear()
        s += rm.gen("x")
        fork = s.fork(4)
        fork += lambda i: rm.gen("y") if i < 3 else 1 // 0

    with pytest.raises(ZeroDivisionError) as caught:
        program.run()
    assert traceback.extract_tb(caught.value.__traceback__)[-1].line.endswith("1 // 0")
    assert caught.value.__cause__ is None
    assert backend.num_running == 0


def test_an_interrupt_aborts_the_run(backend: FakeBackend) -> None:
    @rm.function
    def program(s: State) -> None:
        backend.gate.clear()
        s += rm.gen("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program.run()


def test_a_timeout_ends_a_run_that_reads_and_one_that_does_not(backend: FakeBackend) -> None:
    backend.gate.clear()
    for read in (True, False):

        @rm.function
        def program(s: State, read: bool) -> None:
            s += rm.gen("x")
            if read:
                _ = s["x"]

        with pytest.raises(rm.Cancelled, match=r"timeout of 0.05 s"):
            program.run(read=read, timeout=0.05)
    state = ask.run("x", timeout=0.05, stream=True)
    with pytest.raises(rm.Cancelled, match="timeout"):
        list(state.text_iter())


def test_a_timeout_that_does_not_pass_changes_nothing(backend: FakeBackend) -> None:
    assert ask.run("x", timeout=60)["answer"] == "[1]"


# Programs in programs.


def test_a_nested_program_returns_at_once_and_its_readers_wait(backend: FakeBackend) -> None:
    @rm.function
    def outer(s: State) -> None:
        backend.gate.clear()
        states = [ask.run(question="q" * i) for i in range(3)]
        backend.gate.set()
        s += "".join(state["answer"] for state in states) + rm.gen("x")
        assert [state.text() for state in states] == ["[0]", "q[1]", "qq[2]"]

    assert outer.run()["x"] == "[9]"


def test_nested_programs_without_a_free_thread_run_on_their_readers(
    backend: FakeBackend, max_threads: Any
) -> None:
    max_threads(2)

    @rm.function
    def deep(s: State, depth: int) -> None:
        s += f"{depth}" + rm.gen("x")
        if depth:
            inner = deep.run(depth=depth - 1)
            s["sum"] = inner["sum"] + 1
        else:
            s["sum"] = 0

    assert deep.run(depth=50)["sum"] == 50
    states = deep.run_batch([{"depth": 20}] * 8)
    assert [state["sum"] for state in states] == [20] * 8


def test_a_nested_programs_state_waits_to_its_end(backend: FakeBackend) -> None:
    go = threading.Event()

    @rm.function
    def inner(s: State) -> None:
        assert go.wait(10)
        s += "late" + rm.gen("x")

    @rm.function
    def outer(s: State) -> None:
        state = inner.run()
        threading.Timer(0.02, go.set).start()
        assert state.text() == "late[4]"
        assert "y" not in state
        with pytest.raises(rm.ProgramError, match="'y'"):
            _ = state["y"]

    outer.run()


def test_an_unread_nested_program_is_waited_for_and_its_error_raised(
    backend: FakeBackend, max_threads: Any
) -> None:
    max_threads(1)
    ran = []

    @rm.function
    def inner(s: State, fail: bool) -> None:
        time.sleep(0.01)
        ran.append(fail)
        if fail:
            raise KeyError("inner")

    @rm.function
    def outer(s: State, fail: bool) -> None:
        for _ in range(3):
            inner.run(fail=fail)

    outer.run(fail=False)
    assert ran == [False] * 3
    with pytest.raises(KeyError, match="inner"):
        outer.run(fail=True)


def test_an_error_that_the_outer_body_handled_is_over(backend: FakeBackend) -> None:
    @rm.function
    def inner(s: State) -> None:
        s += "a" + rm.gen("x")
        raise KeyError("inner")

    @rm.function
    def outer(s: State) -> None:
        state = inner.run()
        with pytest.raises(KeyError, match="inner"):
            _ = state["y"]
        s += rm.gen("z")

    assert outer.run()["z"] == "[0]"


def test_a_failing_program_ends_its_nested_ones(backend: FakeBackend) -> None:
    states = []

    @rm.function
    def outer(s: State) -> None:
        backend.gate.clear()
        states.append(ask.run("x"))
        raise KeyError("outer")

    with pytest.raises(KeyError, match="outer"):
        outer.run()
    with pytest.raises(KeyError, match="outer"):
        _ = states[0]["answer"]


def test_nested_seeds_derive_from_the_outer_seed(backend: FakeBackend) -> None:
    @rm.function
    def outer(s: State, own: int | None) -> None:
        ask.run("a").sync()
        ask.run("b", seed=own).sync()

    def seeds(seed: int | None, own: int | None = None) -> list[int | None]:
        backend.roots.clear()
        outer.run(own=own, seed=seed)
        return [handle.seed for handle in backend.roots]

    first = seeds(3)
    assert first == seeds(3)
    assert len({*first, *seeds(4)}) == 6
    assert seeds(None) == [None] * 3
    assert seeds(3, own=5)[2] == 5


def test_a_batch_inside_a_program(backend: FakeBackend) -> None:
    @rm.function
    def outer(s: State) -> None:
        backend.gate.clear()
        states = ask.run_batch([{"question": "q" * i} for i in range(5)])
        backend.gate.set()
        assert [state["answer"] for state in states] == [f"[{i}]" for i in range(5)]
        waiting = ask.run_batch([{"question": "x"}] * 3, return_exceptions=True)
        assert [state["answer"] for state in waiting] == ["[1]"] * 3

    outer.run()


def test_programs_of_many_forks_under_the_thread_limit(backend: FakeBackend) -> None:
    @rm.function
    def program(s: State, i: int) -> None:
        fork = s.fork(20)
        fork += rm.gen("x")
        fork.join()
        s["all"] = s["x"]

    states = program.run_batch([{"i": i} for i in range(200)])
    assert all(len(state["all"]) == 20 for state in states)
