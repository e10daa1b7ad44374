"""What careless or hostile use did once: captured symbols, closed loops, odd graphs."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fake_backend import FakeBackend
from watchdog import watchdog

import ramet.lang as rm
from ramet.runtime.errors import InvalidArgument
from ramet.runtime.graph import Graph

State = Any


@watchdog(60)
def test_symbols_do_not_hide_in_functions_and_objects(backend: FakeBackend) -> None:
    def tool(text: object = None, *_: object) -> str:
        return f"{text}!"

    bodies: list[Callable[[State], object]] = [
        lambda s: rm.call(lambda: s["a"] + "!"),
        lambda s: rm.call(functools.partial(tool, s["a"])),
        lambda s: rm.call(tool, SimpleNamespace(value=s["a"])),
        lambda s: SimpleNamespace(value=s["a"]),
    ]
    for body in bodies[1:]:

        def program(s: State, body: Callable[[State], object] = body) -> object:
            s += "q" + rm.gen("a")
            return body(s)

        with pytest.raises(rm.ProgramError):
            rm.function(program).compile(body=body)

    def closure(s: State) -> object:
        s += "q" + rm.gen("a")
        a = s["a"]
        return rm.call(lambda: a + "!")

    with pytest.raises(rm.ProgramError, match="uses a value that is not known"):
        rm.function(closure).compile()


@watchdog(60)
def test_a_run_whose_loop_is_gone_ends(backend: FakeBackend) -> None:
    @rm.function
    async def program(s: State) -> None:
        s += "a" + rm.gen("x")
        await s.get("x")
        await asyncio.sleep(100)

    loop = asyncio.new_event_loop()
    state = loop.run_until_complete(program.arun(stream=True))
    loop.run_until_complete(asyncio.sleep(0.05))
    loop.close()
    with pytest.raises(rm.Cancelled, match="event loop of its body was closed"):
        state.text()


@watchdog(60)
def test_looking_at_the_costs_swallows_no_error(backend: FakeBackend) -> None:
    def fail(*_: object) -> str:
        raise rm.PoolTooSmall("no room")

    backend.script = fail
    reports: list[str] = []

    @rm.function
    def program(s: State) -> None:
        s += "a" + rm.gen("x")
        while "PoolTooSmall" not in (report := s.explain()):
            assert "still running" in report
        reports.append(report)

    with pytest.raises(rm.PoolTooSmall):
        program.run()
    assert "no room" in reports[0]


@watchdog(60)
def test_a_failed_run_can_be_explained(backend: FakeBackend) -> None:
    @rm.function
    def program(s: State) -> None:
        s += "a" + rm.gen("x")
        s["x"]
        raise KeyError("mine")

    (state,) = program.run_batch([{}], generator_style=False, return_exceptions=True)
    assert isinstance(state, KeyError)
    state = program.run(stream=True)
    assert 'gen "x"' in state.explain()
    assert isinstance(state.error(), KeyError)


@watchdog(60)
def test_values_gathered_through_many_forks_can_be_read(backend: FakeBackend) -> None:
    @rm.function
    def program(s: State) -> None:
        forks = [s.fork(1)]
        for _ in range(1200):
            forks.append(forks[-1][0].fork(1))
        forks[-1][0] += "a" + rm.gen("x")
        for fork in reversed(forks):
            fork.join()

    value = program.run()["x"]
    depth = 0
    while isinstance(value, list):
        (value,), depth = value, depth + 1
    assert (value, depth) == ("[1]", 1201)


@watchdog(60)
def test_the_first_of_endless_items_is_given_out_at_once(backend: FakeBackend) -> None:
    drawn = itertools.count()
    items = ({"q": str(number)} for number in drawn)
    states = rm.function(lambda s, q: s.__iadd__(q + rm.gen("x"))).run_batch(
        items, generator_style=True
    )
    assert next(states)["x"] == "[1]"
    states.close()
    assert next(drawn) < 900


def test_closing_a_stream_before_its_first_chunk_ends_the_run(backend: FakeBackend) -> None:
    backend.gate.clear()
    state = rm.function(lambda s: s.__iadd__("a" + rm.gen("x"))).run(stream=True)
    state.text_iter().close()
    backend.gate.set()
    with pytest.raises(rm.Cancelled):
        state["x"]


@pytest.mark.parametrize(
    "node",
    [
        {"kind": "Text", "id": '0"]\n click', "parts": ["a"]},
        {"kind": "Text", "id": 0, "branch": "<script>"},
        {"kind": "Text", "id": 0, "parts": [{"ref": 0}]},
        {"kind": "Fork", "id": 0, "children": 3},
        {"kind": "Gen", "id": 0, "name": 5},
        {"kind": "Text", "id": 1},
        {"kind": "Text", "id": 0, "site": ["x"]},
    ],
)
def test_graphs_that_no_program_has_are_refused(node: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="not a graph"):
        Graph.from_dict({"version": 1, "name": "x", "args": [], "nodes": [node]})


def test_a_graph_is_plain_data_whatever_it_was_given(backend: FakeBackend) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError("no name")

    @rm.function
    def program(s: State) -> None:
        s["v"] = {Odd: 1, ("a", 2): Odd()}

    for graph in (program.trace(), program.run().graph()):
        assert json.loads(json.dumps(graph.to_dict()))["name"] == "program"
