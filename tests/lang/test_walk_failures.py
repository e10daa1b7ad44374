"""Compiled runs that fail: whatever goes wrong reaches the caller, and nothing hangs or is left."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from fake_backend import FakeBackend, MakeBackend
from watchdog import watchdog

import ramet.lang as rm
from ramet.lang.compiled import CompiledFunction

pytestmark = pytest.mark.timeout(120)
State = rm.ProgramState


def compiled(body: Callable[..., Any]) -> CompiledFunction:
    return rm.function(body).compile()


class Broken(Exception):
    pass


def fails(*_: object) -> Any:
    raise Broken("in a tool")


@watchdog(60)
@pytest.mark.parametrize("way", ["run", "stream", "text_iter", "batch", "arun", "nested"])
def test_a_tools_exception_reaches_the_caller(backend: FakeBackend, way: str) -> None:
    def body(s: State, q: str) -> None:
        s += q + rm.gen("a")
        s["c"] = rm.call(fails, s["a"])
        fs = s.fork(2)
        fs += rm.gen("b")
        fs.join()
        s += str(s["c"]) + rm.gen("d")

    made = compiled(body)
    with pytest.raises(Broken, match="in a tool") as caught:
        attempt(made, way)
    assert any(entry.name == "fails" for entry in caught.traceback)


def attempt(made: CompiledFunction, way: str, **options: Any) -> None:
    """Run a program of one argument in some way, and read it."""
    if way == "run":
        made.run("x", **options)
    elif way == "stream":
        state = made.run("x", stream=True, **options)
        assert isinstance(state.error(), (Broken, rm.RametError))
        state.sync()
    elif way == "text_iter":
        assert list(made.run("x", stream=True, **options).text_iter())
    elif way == "batch":
        made.run_batch([("x",), ("y",)], **options)
    elif way == "arun":
        asyncio.run(asyncio.wait_for(made.arun("x", **options), 30))
    else:
        rm.function(lambda s: made.run("x", **options)).run()


@watchdog(60)
@pytest.mark.parametrize("way", ["run", "stream", "batch", "arun", "nested"])
@pytest.mark.parametrize("read", [True, False])
def test_a_failing_model_call_reaches_the_caller(
    make_backend: MakeBackend, way: str, read: bool
) -> None:
    def script(prompt: str, *_: object) -> str:
        if prompt.endswith("bad"):
            raise rm.PoolTooSmall("no room")
        return "ok"

    make_backend(script)

    def body(s: State, q: str) -> None:
        s += q + rm.gen("a")
        with s.copy() as twin:
            twin += "bad" + rm.gen("b")
        if read:
            s += f"{s['b'][0]}" + rm.gen("c")

    with pytest.raises(rm.PoolTooSmall, match="no room"):
        attempt(compiled(body), way)


@watchdog(60)
@pytest.mark.parametrize("way", ["run", "stream", "batch", "arun", "nested"])
def test_a_timeout(backend: FakeBackend, way: str) -> None:
    def body(s: State, q: str) -> None:
        s += q + rm.gen("a")
        s["c"] = rm.call(len, s["a"])
        s += rm.gen("b")

    backend.gate.clear()
    with pytest.raises(rm.Cancelled, match="timeout"):
        attempt(compiled(body), way, timeout=0.05)


@watchdog(60)
def test_cancel_and_a_closed_stream(backend: FakeBackend) -> None:
    def body(s: State, q: str) -> None:
        s += q + rm.gen("a")
        s += f"{s['a']}" + rm.gen("b")
        s["c"] = rm.call(len, s["b"])

    made = compiled(body)
    backend.gate.clear()
    state = made.run("first", stream=True)
    chunks = state.text_iter()
    assert next(chunks) == "first"
    chunks.close()  # type: ignore[attr-defined]
    other = made.run("x", stream=True)
    other.cancel()
    for stopped in (state, other):
        with pytest.raises(rm.Cancelled):
            stopped.sync()
        for name in ("a", "b", "c"):
            with pytest.raises(rm.Cancelled):
                stopped[name]


@watchdog(60)
def test_a_tool_that_runs_on_keeps_a_failed_run_open_and_nobody_waiting_for_ever(
    backend: FakeBackend,
) -> None:
    running, go = threading.Event(), threading.Event()
    ran: list[str] = []

    def slow() -> None:
        running.set()
        assert go.wait(20)

    def body(s: State) -> None:
        s["slow"] = rm.call(slow)
        s["late"] = rm.call(ran.append, s["slow"])
        s += rm.gen("a")

    state = compiled(body).run(stream=True)
    assert running.wait(20)
    state.cancel()
    assert not state._branch.instance.finished
    go.set()
    with pytest.raises(rm.Cancelled):
        state["late"]
    assert isinstance(state.error(), rm.Cancelled)
    assert state._branch.instance.finished
    assert not ran, "what needs a failed run's value is never started"


@watchdog(60)
def test_values_that_are_no_text_are_refused_where_they_are_appended(backend: FakeBackend) -> None:
    for body in (lambda s, q: s.__iadd__(q), lambda s, q: s.__iadd__(rm.user(q))):
        for run in (rm.function(body).run, compiled(body).run):
            with pytest.raises(rm.InvalidArgument, match="cannot append 3 of type int"):
                run(3)
            assert "text" in run("text").text()
    made = compiled(lambda s, q: s.__iadd__("x" + rm.select("c", [f"{q}", "b"])))
    with pytest.raises(rm.InvalidArgument, match="'b': is there twice"):
        made.run("b")
    assert made.run("a")["c"] == "a"


@watchdog(60)
def test_a_batch_finishes_the_others_and_says_which_failed(backend: FakeBackend) -> None:
    def tool(text: str) -> str:
        if text == "x3":
            raise Broken(text)
        return text

    made = compiled(lambda s, q: s.__iadd__(rm.call(tool, q) + rm.gen("a")))
    items = [{"q": f"x{i}"} for i in range(6)]
    with pytest.raises(Broken, match="x3") as caught:
        made.run_batch(items)
    error: Any = caught.value
    assert "item 3" in error.__notes__[0]
    assert list(error.failures) == [3]
    assert [state["a"] for i, state in enumerate(error.results) if i != 3] == ["[2]"] * 5
    mixed = made.run_batch(items, return_exceptions=True)
    assert [isinstance(item, Broken) for item in mixed] == [i == 3 for i in range(6)]
    streamed = made.run_batch(items[:3], generator_style=True, seed=[1, 2, 3])
    assert [state["a"] for state in streamed] == ["[2]"] * 3
    assert [handle.seed for handle in backend.roots[-3:]] == [1, 2, 3]


@watchdog(60)
def test_closing_a_batch_aborts_the_rest(backend: FakeBackend) -> None:
    def tool(text: str) -> str:
        if text != "x0":
            backend.gate.clear()
        return text

    made = compiled(lambda s, q: s.__iadd__(rm.gen("a") + rm.call(tool, q) + rm.gen("b")))
    # The gate stays closed: only an abort ends the later items.
    states: Any = made.run_batch(({"q": f"x{i}"} for i in range(50)), generator_style=True)
    states.close()
    one: Any = made.run_batch([{"q": "x0"}, {"q": "x0"}], generator_style=True)
    assert next(one)["a"] == "[0]"
    backend.gate.clear()
    one.close()
    backend.audit()
