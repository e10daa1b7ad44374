from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from fake_backend import FakeBackend

import ramet.lang as rm
from ramet.lang.recording import KnownGraph
from ramet.runtime.graph import Call, Fork, Gen, Graph, Node, Read, Text
from ramet.runtime.graph_values import Opaque, Ref

pytestmark = pytest.mark.timeout(30)
State = rm.ProgramState


def numbered(graph: Graph) -> list[Node]:
    assert [node.id for node in graph.nodes] == list(range(len(graph.nodes)))
    return list(graph.nodes)


def test_an_interpreted_runs_graph_is_the_traced_one_with_constants(backend: FakeBackend) -> None:
    def body(s: State, q: str, n: int) -> None:
        s += rm.system("be brief") + rm.user("Q: " + q)
        s += rm.special("<|x|>")
        with s.assistant():
            s += rm.gen("a", max_tokens=n, temperature=0) + rm.gen(stop=["x", "y"], n=2)
            s += rm.select("c", [q, "no"], choices_method="exact_likelihood", temperature=0.5)
        s["set"] = [1, {"k": (q, None)}]
        fs = s.fork(2)
        fs += lambda i: f"{i}" + rm.gen("b")
        for f in fs:
            inner = f.fork(2)
            inner += rm.gen("d", return_logprob=True, return_text_in_logprobs=False)
            inner.join("concate_and_append")
            with f.var_scope("span"):
                f += "text"
        fs.join()
        with s.copy() as twin:
            twin += rm.gen("e")
        s["tool"] = 3
        rm.call(len, [q])

    program = rm.function(body)
    recorded = program.run("why", 3).graph()
    traced = program.trace(q="why", n=3)
    assert len(recorded.nodes) > 25
    assert numbered(recorded) == numbered(traced)
    assert (recorded.name, recorded.args) == ("body", ())
    assert Graph.from_dict(recorded.to_dict()) == recorded
    assert all(node.site.rpartition(":")[0] == __file__ for node in recorded.nodes)


def test_a_graph_grows_as_the_body_runs(backend: FakeBackend) -> None:
    lengths: list[int] = []

    @rm.function
    def program(s: State) -> None:
        for step in ("a", rm.gen("x"), "b"):
            s += step
            lengths.append(len(s.graph().nodes))

    state = program.run()
    assert lengths == [1, 2, 3]
    assert len(state.graph().nodes) == 3


def test_what_the_body_takes_out_is_a_read(backend: FakeBackend) -> None:
    @rm.function
    def program(s: State) -> None:
        s += "a" + rm.gen("x")
        s += f"{s['x']}!"
        s["y"] = object()
        assert s["y"] is not None

    state = program.run()
    assert state["x"] == "[1]"
    nodes = numbered(state.graph())
    assert [type(node) for node in nodes] == [Text, Gen, Read, Text, Read, Read]
    read, text, assigned, last = nodes[2:]
    assert isinstance(read, Read)
    assert (read.name, read.value) == (None, Ref(node=1))
    assert isinstance(text, Text)
    assert text.parts == ("[1]!",)
    assert isinstance(assigned, Read)
    assert isinstance(assigned.value, Opaque)
    assert isinstance(last, Read)
    assert last.value == Ref(node=4)
    assert len(state.graph().nodes) == 6, "who reads after the end is no part of the program"


def test_tools_and_sites(backend: FakeBackend) -> None:
    @rm.function
    def program(s: State) -> None:
        rm.call(lambda *args: None, "a", [object()], len)
        fs = s.fork(1)
        fs += "x"

    nodes = numbered(program.run().graph())
    tool = nodes[0]
    assert isinstance(tool, Call)
    assert "lambda" in tool.function
    assert tool.args[0] == "a"
    assert isinstance(tool.args[1][0], Opaque)
    assert isinstance(nodes[1], Fork)
    assert [node.branch for node in nodes] == [-1, 0, 1]
    lines = [int(node.site.rpartition(":")[2]) for node in nodes]
    assert lines == sorted(lines)


def test_failed_and_nested_runs_have_graphs(backend: FakeBackend) -> None:
    states: list[Any] = []

    @rm.function
    def inner(s: State) -> None:
        s += "in"

    @rm.function
    def outer(s: State) -> None:
        states.extend([s, inner.run()])
        s += "out"
        raise KeyError("x")

    with pytest.raises(KeyError):
        outer.run()
    assert [[node.kind for node in s.graph().nodes] for s in states] == [["Text"], ["Text"]]


def test_a_compiled_runs_graph_is_the_one_it_runs(backend: FakeBackend) -> None:
    made = rm.function(lambda s, q: s.__iadd__("a" + "b" + q + rm.gen("x"))).compile()
    state = made.run("q")
    state["later"] = 1
    assert state["x"] == "[3]"
    assert state.graph() == made.graph
    known = KnownGraph(made.graph)
    assert known.fork(3, 2) == [3, 3]
    known.join(0, [1], "gather_variable", ["x"])
    known.span(0, "v", "begin")
    known.call(len, ["a"])
    assert known.graph("any") is made.graph
    assert dataclasses.is_dataclass(made.graph)
