from ramet.runtime.graph import Call, Fork, Gen, Graph, Join, Node, Read, Select, Text
from ramet.runtime.graph_passes import (
    Label,
    constant_prefix,
    labels,
    merge_equal_branches,
    merge_literals,
    optimise,
    unread_calls,
)
from ramet.runtime.graph_values import Ref


def graph(*nodes: Node) -> Graph:
    return Graph("p", ("q",), nodes)


def test_literals_that_follow_each_other_become_one():
    before = graph(
        Text(id=0, parts=("a",)),
        Text(id=1, parts=("b", Ref(arg="q"))),
        Text(id=2, parts=("c",)),
        Gen(id=3, name="x"),
        Text(id=4, parts=("d",)),
    )
    after = merge_literals(before)
    assert [n.kind for n in after.nodes] == ["Text", "Gen", "Text"]
    assert after.nodes[0].parts == ("ab", Ref(arg="q"), "c")


def test_literals_do_not_merge_across_a_fork_a_role_or_special_text():
    before = graph(
        Text(id=0, parts=("a",)),
        Fork(id=1, children=(1,)),
        Text(id=2, parts=("b",)),
        Text(id=3, branch=1, parts=("c",)),
        Text(id=4, role="user", edge="begin"),
        Text(id=5, parts=("d",)),
        Text(id=6, parts=("<|x|>",), special=True),
    )
    assert merge_literals(before) == before


def test_a_merged_text_still_stands_after_the_values_it_reads():
    before = graph(
        Text(id=0, parts=("a",)),
        Fork(id=1, children=(1,)),
        Gen(id=2, branch=1, name="x"),
        Text(id=3, parts=("b",)),
        Text(id=4, parts=(Ref(node=2),)),
    )
    after = merge_literals(before)
    seen: set[int] = set()
    for node in after.nodes:
        assert {ref.node for ref in node.refs()} <= seen
        seen.add(node.id)


def test_the_constant_prefix_ends_at_the_first_value_or_call():
    nodes = (Text(id=0, parts=("a",)), Text(id=1, parts=("b", Ref(arg="q"), "c")), Gen(id=2))
    assert constant_prefix(graph(*nodes)) == "ab"
    assert constant_prefix(graph(Gen(id=0), Text(id=1, parts=("a",)))) == ""


def equal_branches(params: dict) -> Graph:
    return graph(
        Fork(id=0, children=(1, 2)),
        Text(id=1, branch=1, parts=("x",)),
        Gen(id=2, branch=1, name="a", params=params),
        Text(id=3, branch=2, parts=("x",)),
        Gen(id=4, branch=2, name="a", params=params),
        Join(id=5, children=(1, 2), gathered={"a": (Ref(node=2), Ref(node=4))}),
    )


def test_equal_deterministic_branches_are_run_once():
    after = merge_equal_branches(equal_branches({"temperature": 0}))
    assert [n.kind for n in after.nodes] == ["Fork", "Text", "Gen", "Join"]
    assert after.nodes[0].children == (1, 2), "places name random streams, so they stay"
    assert after.nodes[-1].children == (1, 1)
    assert after.nodes[-1].gathered == {"a": (Ref(node=2), Ref(node=2))}


def test_branches_that_sample_or_differ_stay():
    for params in ({}, {"temperature": 0.5}, {"temperature": 0, "n": 2}):
        before = equal_branches(params)
        assert merge_equal_branches(before) == before
    before = graph(
        Fork(id=0, children=(1, 2)),
        Gen(id=1, branch=1, params={"temperature": 0}),
        Gen(id=2, branch=2, params={"temperature": 0, "max_new_tokens": 3}),
    )
    assert merge_equal_branches(before) == before


def test_calls_that_nobody_reads_are_reported():
    nodes = (
        Gen(id=0, name="x"),
        Gen(id=1),
        Fork(id=2, children=(1,)),
        Gen(id=3, branch=1),
        Gen(id=4),
    )
    assert [n.id for n in unread_calls(graph(*nodes))] == [3, 4]
    named = (Fork(id=0, children=(1, 2)), Gen(id=1, branch=1, name="x"), Gen(id=2, name="y"))
    assert [n.id for n in unread_calls(graph(*named))] == [1], "a fork's names are lost"
    gathered = (*named[:2], Join(id=2, children=(1, 2), gathered={"x": (Ref(node=1),)}))
    assert unread_calls(graph(*gathered)) == []
    joined = (*nodes[:4], Join(id=4, children=(1,), mode="concate_and_append"))
    assert unread_calls(graph(*joined)) == []


def test_labels_count_calls_on_the_longest_way():
    nodes = (
        Gen(id=0),
        Fork(id=1, children=(1, 2)),
        Gen(id=2, branch=1, name="a"),
        Gen(id=3, branch=1, name="b"),
        Gen(id=4, branch=2, name="a"),
        Join(id=5, children=(1, 2), gathered={"a": (Ref(node=2), Ref(node=4))}),
        Call(id=6, function="f", args=(Ref(node=4),)),
    )
    assert labels(graph(*nodes)) == {
        0: Label(0, 3),
        2: Label(1, 2),
        3: Label(2, 1),
        4: Label(1, 2),
        6: Label(2, 1),
    }


def test_optimise_is_both():
    after = optimise(equal_branches({"temperature": 0}))
    assert [n.kind for n in after.nodes] == ["Fork", "Text", "Gen", "Join"]


def test_branches_that_set_or_read_differently_stay():
    greedy = {"temperature": 0}
    for second in (
        [Gen(id=2, branch=2, name="b", params=greedy)],
        [Text(id=2, branch=2, parts=("x",), special=True)],
        [Read(id=2, branch=2, name="a", value=1)],
        [Gen(id=2, branch=2, name="a", params=greedy), Text(id=3, branch=2, parts=("x",))],
        [Select(id=2, branch=2, name="a", temperature=1.0)],
        [],
    ):
        first = Gen(id=1, branch=1, name="a", params=greedy)
        before = graph(Fork(id=0, children=(1, 2)), first, *second)
        assert merge_equal_branches(before) == before


def test_equal_branches_may_read_their_own_calls_and_each_fork_is_its_own():
    def branch(number: int, first: int) -> tuple[Node, ...]:
        return (
            Gen(id=first, branch=number, name="a", params={"temperature": 0}),
            Text(id=first + 1, branch=number, parts=(Ref(node=first, text=True), Ref(arg="q"))),
            Select(id=first + 2, branch=number, choices=(("a", Ref(node=first)), ("b",))),
        )

    fork = Fork(id=0, children=(1, 2, 3))
    after = merge_equal_branches(graph(fork, *branch(1, 1), *branch(2, 4), *branch(3, 7)))
    assert [n.branch for n in after.nodes] == [0, 1, 1, 1]
    apart = graph(
        Fork(id=0, children=(1,)), *branch(1, 1), Fork(id=4, children=(2,)), *branch(2, 5)
    )
    assert merge_equal_branches(apart) == apart, "the context may have grown between"


def test_passes_leave_their_graph_alone():
    before = equal_branches({"temperature": 0})
    for run in (merge_literals, merge_equal_branches, optimise):
        run(before)
        assert before == equal_branches({"temperature": 0})
