from __future__ import annotations

import asyncio
import json
import threading
import warnings
from typing import Any

import pytest
from fake_backend import FakeBackend, FakeHandle, MakeBackend
from watchdog import watchdog

import ramet.lang as rm
from ramet.runtime.graph import Graph

pytestmark = pytest.mark.timeout(60)
State = rm.ProgramState


@rm.function
def answer(s: State, question: str, style: str = "short", *, mark: str = "?") -> str:
    """Answers."""
    s += f"{style}: {question}{mark}" + rm.gen("a", max_tokens=8)
    return str(s["a"])


@watchdog(30)
def test_arguments_are_constants_or_open(backend: FakeBackend) -> None:
    made = answer.compile(style="long")
    assert made.arg_names == ["question", "mark"]
    assert repr(made) == "<compiled program answer(question, mark)>"
    assert made.run("why").text() == "long: why?[10]"
    assert made(question="why", mark="!").text() == "long: why![10]"
    assert answer.compile().run("why").text() == "short: why?[11]"
    assert answer.bind(question="so").compile().run().text() == "short: so?[10]"
    assert answer.compile(question="q", style="s", mark="m").run()["a"] == "[5]"
    for call in (
        lambda: made.run(),
        lambda: made.run("why", style="short"),
        lambda: made.run("why", typo=1),
        lambda: made.run("a", "b", "c"),
        lambda: answer.compile(typo=1),
        lambda: made.run_batch([{"style": "x"}]),
    ):
        with pytest.raises(rm.InvalidArgument, match="answer"):
            call()


@watchdog(30)
def test_its_state_is_a_state(backend: FakeBackend) -> None:
    state = answer.compile().run("why", temperature=0, seed=7)
    assert state["a"] == state.ret_value == "[11]"
    assert state.meta("a")["finish_reason"] == "eos"
    assert "a" in state
    assert backend.params[0].temperature == 0
    assert backend.params[0].max_new_tokens == 8
    assert backend.roots[0].seed == 7
    state["more"] = 1
    assert state.get_var("more") == 1
    with pytest.raises(rm.ProgramError, match="ended"):
        state += "x"
    with pytest.raises(rm.ProgramError, match="no variable 'b'; the variables are: a, more"):
        state["b"]


@watchdog(30)
def test_its_graph_is_what_it_runs(backend: FakeBackend) -> None:
    made = answer.compile(style="long")
    assert made.graph.args == ("question", "mark")
    assert Graph.from_dict(json.loads(json.dumps(made.to_dict()))) == made.graph
    assert made.to_mermaid() == made.graph.to_mermaid()
    assert "long: {question}{mark}" in made.to_mermaid()
    assert "<table>" in made._repr_html_()
    assert [node.kind for node in made.graph.nodes] == ["Text", "Gen", "Read"]


@watchdog(30)
def test_streams(make_backend: MakeBackend) -> None:
    backend = make_backend(lambda prompt, *_: "abcd")

    @rm.function
    def program(s: State, q: str) -> None:
        s += q + rm.gen("a") + "-"
        s += f"{s['a']}" + rm.gen("b")

    state = program.compile().run("q", stream=True)
    chunks = list(state.text_iter())
    assert "".join(chunks) == state.text() == "qabcd-abcdabcd"
    assert len(chunks) >= 4
    assert all(chunks)
    backend.gate.clear()
    other = program.compile().run("q", stream=True)
    reader = threading.Thread(target=lambda: chunks.append(other["b"]))
    reader.start()
    backend.gate.set()
    reader.join()
    assert chunks[-1] == "abcd"
    assert "".join(other.text_iter("b")) == "abcd"


@watchdog(30)
def test_nested_in_a_program(backend: FakeBackend) -> None:
    made = answer.compile()

    @rm.function
    def outer(s: State) -> None:
        one = made.run("one")
        many = made.run_batch([("a",), ("bc",)])
        s += "all " + one["a"] + "".join(state["a"] for state in many)

    assert outer.run().text() == "all [11][9][10]"

    @rm.function
    def fails(s: State) -> None:
        made.run("x", timeout=0.05)

    backend.gate.clear()
    with pytest.raises(rm.Cancelled, match="timeout"):
        fails.run()
    backend.gate.set()


@watchdog(30)
def test_a_tool_that_is_given_the_state_gets_the_runs_own(backend: FakeBackend) -> None:
    states: list[State] = []

    def keep(state: State, text: str) -> str:
        states.append(state)
        return text

    @rm.function
    def program(s: State) -> Any:
        s += rm.gen("a")
        s["c"] = rm.call(keep, s, s["a"])
        return s

    made = program.compile()
    first, second = made.run(), made.run()
    assert states == [first, second]
    assert first.ret_value is first
    assert second["c"] == "[0]"


@watchdog(30)
def test_wrong_sampling_of_a_run_is_refused(backend: FakeBackend) -> None:
    @rm.function
    def program(s: State) -> None:
        s += rm.gen("a", min_tokens=5)

    made = program.compile()
    with pytest.raises(rm.InvalidArgument):
        made.run(max_tokens=3)
    with pytest.raises(rm.InvalidArgument):
        program.run(max_tokens=3)
    assert made.run(max_tokens=9)["a"] == "[0]"


@watchdog(30)
def test_async_runs(backend: FakeBackend) -> None:
    @rm.function
    async def program(s: State, q: str) -> Any:
        s += q + rm.gen("a")
        s += "x" + await s.get("a") + rm.gen("b")
        return "r" + s["b"]

    made = program.compile()

    async def main() -> list[State]:
        one = await made.arun("q", seed=3)
        many = await made.arun_batch([("a",), ("bc",)], seed=[4, 5])
        return [one, *many]

    states = asyncio.run(asyncio.wait_for(main(), 20))
    assert [state.text() for state in states] == ["q[1]x[1][8]", "a[1]x[1][8]", "bc[2]x[2][9]"]
    assert [handle.seed for handle in backend.roots] == [3, 4, 5]
    assert [state.ret_value for state in states] == ["r[8]", "r[8]", "r[9]"]
    assert made.run("q").text() == "q[1]x[1][8]", "a compiled async body needs no event loop"


@watchdog(30)
def test_compiling_calls_no_model_and_no_tool(backend: FakeBackend) -> None:
    @rm.function
    def program(s: State) -> None:
        s += rm.gen("a")
        s["b"] = rm.call(pytest.fail, "a tool ran")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program.compile()
    assert not backend.roots


def test_the_scheduler_is_told_what_stands_before_and_after_each_call(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(s: Any) -> None:
        s += "a" + rm.gen("x")
        forks = s.fork(2)
        forks += rm.gen("y")
        forks[0] += rm.gen("z")
        forks.join()
        s += "b" + rm.select("w", ["c", "d"])

    labels: list[tuple[int, int] | None] = []
    for name in ("generate", "select"):
        plain = getattr(FakeHandle, name)

        def noting(self: Any, *args: Any, _plain: Any = plain, **kwargs: Any) -> Any:
            labels.append(kwargs["label"])
            return _plain(self, *args, **kwargs)

        monkeypatch.setattr(FakeHandle, name, noting)
    rm.function(program).compile().run()
    assert sorted(labels) == [(0, 3), (1, 1), (1, 2), (2, 1), (3, 0)]
    labels.clear()
    rm.function(program).run()
    assert labels == [None] * 5


def test_arguments_may_be_bound_and_threads_named(backend: FakeBackend) -> None:
    def program(s: Any, a: Any, b: Any) -> None:
        s += a + b + rm.gen("x")

    compiled = rm.function(program).compile()
    bound = compiled.bind(a="1")
    assert bound.run(b="2").text() == "12[2]"
    assert (bound.arg_names, compiled.arg_names) == (["a", "b"], ["a", "b"])
    states = bound.run_batch([{"b": "3"}, {"a": "4", "b": "5"}], num_threads=3)
    assert [state.text() for state in states] == ["13[2]", "45[2]"]
    with pytest.raises(rm.InvalidArgument, match="'c'"):
        compiled.bind(c=1)
