from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import ramet.lang as rm
from ramet.lang.arguments import Arguments
from ramet.lang.plan import FIRST_CALL, RETURN, Plan, unread
from ramet.lang.tracer import Trace, trace
from ramet.runtime.graph import Call, Read, Text
from ramet.runtime.graph_values import Opaque


def traced(body: Callable[..., Any], **constants: Any) -> Trace:
    arguments = Arguments("prog", inspect.signature(body))
    open_args = [name for name in arguments.names if name not in constants]
    return trace(arguments, body, constants, open_args)


def test_each_branch_has_its_steps_and_waits_for_what_it_reads() -> None:
    def body(s: rm.ProgramState, q: str) -> Any:
        s += "a" + "b" + q + rm.gen("x")
        fs = s.fork(2)
        fs += f"{s['x']}" + rm.gen("y")
        fs.join("concate_and_append")
        s += f"{q}" + rm.gen("z")
        s["kept"] = s["z"]
        s["text"] = f"{s['z']}"
        s["tool"] = rm.call(len, s["z"])
        return s["tool"]

    plan = Plan.of(traced(body))
    by_kind = {node.id: node.kind for node in plan.graph.nodes}
    assert list(plan.branches) == [0, 1, 2, RETURN, FIRST_CALL]
    root = plan.branches[0]
    # Text, Gen, Fork, Join, Text, Gen, and two variables that are set before the tool's.
    assert len(root) == 9
    x, y1, y2, z = (node.id for node in plan.graph.nodes if node.kind == "Gen")
    assert [by_kind[x], by_kind[z]] == ["Gen", "Gen"]
    assert root[0].done == root[1].done == root[2].done == ()
    assert (root[3].done, root[3].over) == ((y1, y2), (1, 2))
    assert [step.done for step in plan.branches[1]] == [(x,), ()]
    assert (root[6].made, root[6].done) == ((z,), ()), "a variable of a value doesn't wait for it"
    assert root[7].done == (z,)
    (tool,) = plan.calls
    assert plan.functions == (len,)
    assert [step.done for step in plan.branches[FIRST_CALL]] == [(z,)]
    assert [step.done for step in plan.branches[RETURN]] == [(tool.id,)]


def test_gathering_waits_for_its_calls_to_be_made_only() -> None:
    def body(s: rm.ProgramState) -> None:
        fs = s.fork(2)
        fs += rm.gen("y")
        fs.join()

    plan = Plan.of(traced(body))
    join = plan.branches[0][-1]
    assert (len(join.made), join.done, join.over) == (2, (), (1, 2))


def test_the_passes_have_run() -> None:
    def body(s: rm.ProgramState) -> None:
        s += "a"
        s += "b"
        fs = s.fork(2)
        fs += "x" + rm.gen("y", temperature=0)
        fs.join()

    plan = Plan.of(traced(body))
    texts = [node for node in plan.graph.nodes if isinstance(node, Text)]
    assert [node.parts for node in texts] == [("ab",), ("x",)]
    assert plan.branches[2] == ()


def test_objects_and_functions_keep_their_order() -> None:
    things = [object(), {1, 2}]

    def body(s: rm.ProgramState) -> Any:
        first = rm.call(repr, things[0])
        rm.call(len, things[1], s)
        s += str(first)
        return s

    plan = Plan.of(traced(body))
    assert plan.functions == (repr, len)
    assert plan.objects[0] is things[0]
    assert plan.objects[1] is things[1]
    assert plan.objects[2] is plan.state
    calls = [node for node in plan.graph.nodes if isinstance(node, Call)]
    assert tuple(calls) == plan.calls
    assert [arg.index for node in calls for arg in node.args] == [0, 1, 2]
    returned = plan.graph.nodes[-1]
    assert isinstance(returned, Read)
    assert isinstance(returned.value, Opaque)


def test_calls_whose_values_nobody_can_have_are_warned_of_at_compile() -> None:
    @rm.function
    def lost(s: rm.ProgramState) -> None:
        fs = s.fork(3)
        fs[0] += rm.gen("joined")
        fs[1] += rm.gen()
        fs[2] += rm.gen("read")
        s["copy"] = fs[2]["read"]
        fs.join()
        dropped = s.fork(1)
        dropped += rm.gen("dropped")
        s += rm.gen()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = lost.compile()
    assert [str(w.message).split(": ")[1][:40] for w in caught] == [
        "nobody can read what gen at " + f"{__file__}"[:12],
        "nobody can read what gen dropped at " + f"{__file__}"[:4],
    ]
    assert all(w.filename == __file__ for w in caught)
    assert len(list(unread(made.graph))) == 2
    assert sum(node.kind == "Gen" for node in made.graph.nodes) == 5, "they still run"
