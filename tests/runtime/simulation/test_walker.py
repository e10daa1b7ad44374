import pytest

from ramet.runtime.graph import Graph
from ramet.runtime.simulation.cost_model import PRESETS
from ramet.runtime.simulation.graph_writer import GraphWriter
from ramet.runtime.simulation.simulation import Simulation
from ramet.runtime.simulation.tokens import Tokens, run
from ramet.runtime.simulation.walker import Arrival, Manner, ProgramRun, World


def ops(walk: ProgramRun) -> list[str]:
    """What it has to submit, by kind."""
    kinds = [op["op"] for op in walk.ops]
    walk.ops.clear()
    return kinds


def done(walk: ProgramRun, call: int, ids: list[int]) -> None:
    result = {"output_token_ids": [*ids, 0], "kept": len(ids)}
    walk.take({"ev": "done", "call": call, "results": [result]})


def start(graph: Graph, *args: object, manner: Manner | None = None) -> ProgramRun:
    walk = ProgramRun(Arrival(0.0, graph, args), World(Tokens(), manner or Manner()))
    walk.start()
    return walk


def test_calls_on_a_context_are_queued_at_once_with_their_labels() -> None:
    g = GraphWriter("two")
    g.text(run(1, 3), run(2, 2))
    g.gen(8)
    g.text(run(3, 1))
    g.gen(8)
    walk = start(g.graph(), 4, 5)
    first, second = (op for op in walk.ops if op["op"] == "generate")
    assert (first["depth"], first["remaining"]) == (0, 1)
    assert (second["depth"], second["remaining"]) == (1, 0)
    assert len(next(op for op in walk.ops if op["op"] == "append")["ids"]) == 5
    assert ops(walk) == ["open", "append", "generate", "append", "generate"]
    for call in walk.calls:
        done(walk, call, [1])
    assert ops(walk) == ["close"]
    assert walk.over


def test_a_tool_waits_for_what_it_is_given_and_its_answer_is_text() -> None:
    g = GraphWriter("agent")
    g.text(run(1, 3))
    g.text(g.pause(g.gen(8)))
    g.gen(8)
    walk = start(g.graph(), 4, 2.5, run(9, 6), 5)
    assert ops(walk) == ["open", "append", "generate"]
    assert walk.pauses == []
    done(walk, walk.calls[0], [1])
    assert walk.pauses == [(2.5, 2)]
    assert ops(walk) == []
    walk.finish(2)
    assert len(walk.ops[0]["ids"]) == 6
    assert ops(walk) == ["append", "generate"]


def test_branches_start_together_and_the_join_waits_for_the_last() -> None:
    g = GraphWriter("forks")
    g.text(run(1, 3))
    children = g.fork(2)
    values = [g.gen(8, branch=child) for child in children]
    g.join(children)
    g.text(values[1])
    g.gen(8)
    walk = start(g.graph(), 4, 4, 4)
    assert ops(walk) == ["open", "append", "fork", "generate", "generate", "join"]
    first, second = walk.calls
    done(walk, second, [7, 8])
    assert ops(walk) == ["close"]
    done(walk, first, [5])
    assert walk.ops[1]["ids"] == [7, 8]
    assert ops(walk) == ["close", "append", "generate"]


def test_a_select_goes_on_with_its_choice() -> None:
    g = GraphWriter("judge")
    g.text(run(1, 30))
    chosen = g.select(run(2, 2), run(3, 4))
    g.text(chosen)
    g.gen(4)
    simulation = Simulation(PRESETS["uniform"], pool_tokens=512)
    simulation.add(Arrival(0.0, g.graph(), (2,)))
    outcome = simulation.finish()
    assert (outcome.errors, len(outcome.programs)) == (0, 1)
    assert outcome.stats["calls"] == 2


@pytest.mark.parametrize(
    ("manner", "expected"),
    [
        (Manner(), {"max_new_tokens": 32}),
        (Manner(share=False), {"max_new_tokens": 32, "cache": False}),
        (Manner(exact=True), {"max_new_tokens": 5, "ignore_eos": True}),
    ],
)
def test_the_manner_of_all_calls(manner: Manner, expected: dict) -> None:
    g = GraphWriter("one")
    g.text(run(1, 3))
    g.gen(32)
    walk = start(g.graph(), 5, manner=manner)
    assert next(op for op in walk.ops if op["op"] == "generate")["params"] == expected
