import json
import re

import pytest

from ramet.runtime.errors import InvalidArgument
from ramet.runtime.graph import Call, Fork, Gen, Graph, Join, Read, Select, Text, label_of, renumber
from ramet.runtime.graph_values import Ref

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
        {"version": 1, "name": "x", "args": [], "nodes": [{"kind": "Text"}]},
        {"version": 1, "name": "x", "args": [], "nodes": ["Text"]},
        {"version": 1, "name": "x", "args": [], "nodes": [{"kind": "Read", "id": 0, "value": {}}]},
        {"version": 1, "name": "x", "args": 3, "nodes": []},
        {"version": "1", "name": "x", "args": [], "nodes": []},
        [],
        "graph",
        None,
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


def test_a_chart_shows_any_text_as_it_is():
    text = 'a"b\nc`d]e<br>f&lt;g#h;i\\j\x00k{#3}'
    chart = Graph("p", (), (Text(id=0, parts=(text,)), Call(id=1, function="f.<lambda>")))
    lines = chart.to_mermaid().splitlines()
    assert lines[0] == "flowchart TD"
    assert len(lines) == 3, "a box is one line"
    labels = [line.split('["')[1].removesuffix('"]') for line in lines[1:]]
    for label in labels:
        assert not set('"`<>&') & set(label)
    shown = unescaped(labels[0])
    assert shown == text.replace("\n", "⏎").replace("\x00", "\ufffd")
    assert unescaped(labels[1]) == "call f.<lambda>"


def unescaped(label: str) -> str:
    return re.sub(r"#(\d+);", lambda code: chr(int(code[1])), label)


def test_a_notebook_shows_a_table_without_markup_from_texts():
    nodes = (Text(id=0, parts=("<b>&amp;\n",), site="<i>:1"), Call(id=1, function="<lambda>"))
    shown = Graph("<u>", (), nodes)._repr_html_()
    for text in ("&lt;b&gt;&amp;amp;", "&lt;i&gt;:1", "&lt;lambda&gt;", "&lt;u&gt;"):
        assert text in shown
    assert not re.search("<[bui]>|<lambda>", shown)


def test_labels_are_short_and_say_what_a_node_does():
    cases = [
        (Text(id=0, parts=("a" * 50,)), "a" * 39 + "…"),
        (Text(id=0, role="user", edge="end"), "end user"),
        (Gen(id=0), "gen"),
        (Gen(id=0, name="x"), "gen x"),
        (Select(id=0, name="c", choices=(("a",), ("b",))), "select c of 2"),
        (Fork(id=0, children=(1, 2)), "fork 2"),
        (Join(id=0), "join gather_variable"),
        (Call(id=0, function="f"), "call f"),
        (Read(id=0, name="x", edge="begin"), "read begin x"),
        (Read(id=0, value=Ref(node=3), edge="return"), "read return {#3}"),
    ]
    assert [label_of(node) for node, _ in cases] == [label for _, label in cases]


def test_renumbering_moves_references_along():
    kept = renumber([NODES[2], NODES[5]])
    assert kept == (
        Gen(id=0, branch=1, name="a", params={"temperature": 0, "stop": ("\n",)}),
        Call(id=1, function="len", args=(Ref(node=0), 3, "x")),
    )
