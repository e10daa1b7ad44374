import json

import pytest

from ramet.runtime.errors import InvalidArgument
from ramet.runtime.graph import Call, Fork, Gen, Graph, Join, Read, Ref, Select, Text, renumber

NODES = (
    Text(id=0, parts=("Q: ", Ref(arg="q")), site="p.py:1"),
    Fork(id=1, children=(1, 2)),
    Gen(id=2, branch=1, name="a", params={"temperature": 0, "stop": ("\n",)}),
    Select(id=3, branch=2, name="b", choices=(("yes",), ("no ", Ref(arg="q"))), temperature=0.5),
    Join(id=4, children=(1, 2), gathered={"a": (Ref(node=2),)}),
    Call(id=5, function="len", args=(Ref(node=2), 3, "x")),
    Read(id=6, name="c", value=Ref(node=5)),
    Text(id=7, role="user", edge="begin"),
)
GRAPH = Graph("program", ("q",), NODES)


def test_a_graph_survives_the_wire():
    data = json.loads(json.dumps(GRAPH.to_dict()))
    assert Graph.from_dict(data) == GRAPH
    assert data["version"] == 1


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"version": 2, "name": "x", "args": [], "nodes": []},
        {"version": 1, "args": [], "nodes": []},
        {"version": 1, "name": "x", "args": [], "nodes": [{"kind": "Jump", "id": 0}]},
        {"version": 1, "name": "x", "args": [], "nodes": [{"kind": "Text", "id": 0, "speed": 1}]},
    ],
)
def test_what_is_no_graph_is_refused(data: dict):
    with pytest.raises(InvalidArgument):
        Graph.from_dict(data)


def test_edges_are_order_and_data():
    edges = set(GRAPH.edges())
    assert (0, 1, "context") in edges
    assert (1, 2, "context") in edges, "a branch begins at its fork"
    assert (2, 4, "data") in edges
    assert (3, 4, "join") in edges
    assert (2, 5, "data") in edges
    assert all(start < end for start, end, _ in edges)


def test_the_chart_has_every_node_and_edge():
    chart = GRAPH.to_mermaid()
    assert chart.startswith("flowchart TD\n")
    assert 'n0["Q: {q}"]' in chart
    assert 'n4["join gather_variable"]' in chart
    assert chart.count("-.->") == sum(kind == "data" for _, _, kind in GRAPH.edges())


def test_a_notebook_shows_a_table_without_markup_from_texts():
    shown = Graph("p", (), (Text(id=0, parts=("<b>",)),))._repr_html_()
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown


def test_renumbering_moves_references_along():
    kept = renumber([NODES[2], NODES[5]])
    assert kept == (
        Gen(id=0, branch=1, name="a", params={"temperature": 0, "stop": ("\n",)}),
        Call(id=1, function="len", args=(Ref(node=0), 3, "x")),
    )
