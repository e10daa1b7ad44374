from ramet.runtime.graph import Graph
from ramet.runtime.graph_passes import labels
from ramet.runtime.graph_values import Ref
from ramet.runtime.simulation.graph_writer import GraphWriter
from ramet.runtime.simulation.tokens import run


def written() -> Graph:
    g = GraphWriter("thinker")
    g.text(run(1, 4), g.arg())
    children = g.fork(2)
    values = [g.gen(8, branch=child) for child in children]
    g.join(children)
    g.text(g.pause(values[0]))
    g.gen(8, samples=2)
    return g.graph()


def test_it_is_a_graph_like_any_other() -> None:
    graph = written()
    assert Graph.from_dict(graph.to_dict()) == graph
    found = labels(graph)
    assert [(found[i].depth, found[i].remaining) for i in (2, 3, 5, 7)] == [
        (0, 3),
        (0, 2),
        (1, 2),
        (2, 1),
    ]


def test_arguments_stand_in_the_order_of_use() -> None:
    graph = written()
    assert graph.args == tuple(f"a{i}" for i in range(7))
    used = [ref.arg for node in graph.nodes for ref in node.refs() if ref.arg]
    assert used[0] == "a0"
    assert graph.nodes[7].params["lengths"] == (Ref(arg="a5"), Ref(arg="a6"))  # type: ignore[attr-defined]
