"""Plan: a traced program made ready to run many times, as steps per branch.

Everything that is the same in every run is prepared here once: expressions, what each step waits
for, labels. `walk.py` runs it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ramet.lang import expr
from ramet.lang.api import check_choices
from ramet.lang.branch import APPEND
from ramet.lang.choices import ChoicesMethod
from ramet.lang.tracer import Trace
from ramet.runtime import graph_passes
from ramet.runtime.errors import InvalidArgument
from ramet.runtime.graph import Call, Fork, Gen, Graph, Join, Node, Read, Select, Text
from ramet.runtime.graph_values import Opaque, Part, Ref, refs_in
from ramet.runtime.request import SamplingParams

if TYPE_CHECKING:
    from ramet.lang.walk import Walk

Action = Callable[["Walk", int], None]
"""Does a step of a walk on a branch."""

RETURN, FIRST_CALL = -2, -3
"""Numbers of the one-step branches that give the program's return value, and run functions (the
first one; the next ones go down)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One instruction of a branch, and what must be there before it."""

    act: Action
    done: tuple[int, ...] = ()
    """Nodes whose values must be known."""
    made: tuple[int, ...] = ()
    """Nodes that must have been reached, known or not."""
    over: tuple[int, ...] = ()
    """Branches that must have been walked to their end."""


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """The steps of a program."""

    graph: Graph
    branches: Mapping[int, tuple[Step, ...]]
    calls: tuple[Call, ...]
    """The calls of functions, in program order."""
    functions: tuple[Callable[..., object], ...]
    """Their functions."""
    objects: tuple[object, ...]
    """What the graph's Opaque values stand for."""
    reasoning: Mapping[int, str]
    """The generations that tell thinking apart, and their family of models."""
    state: object
    """The traced state, where it stands for the run's own."""

    @classmethod
    def of(cls, trace: Trace) -> Plan:
        """Prepare a trace, put through the passes."""
        graph = graph_passes.optimise(trace.graph)
        labels = graph_passes.labels(graph)
        branches: dict[int, list[Step]] = {0: []}
        for node in graph.nodes:
            if isinstance(node, Fork):
                branches.update({child: [] for child in node.children})
            if isinstance(node, Read) and node.edge == "return":
                branches[RETURN] = [Step(_return(node.value), done=_nodes(node.value))]
            elif not isinstance(node, Call):
                label = labels.get(node.id, graph_passes.Label(0, 1))
                # What the scheduler counts: calls before this one, and calls after it.
                place = (label.depth, label.remaining - 1)
                branches[node.branch].append(_step(graph, node, place, trace.objects))
        calls = tuple(node for node in graph.nodes if isinstance(node, Call))
        for index, node in enumerate(calls):
            branches[FIRST_CALL - index] = [Step(_compute(index), done=_nodes(node.args))]
        return cls(
            graph,
            {number: tuple(steps) for number, steps in branches.items()},
            calls,
            tuple(trace.functions),
            tuple(trace.objects),
            {n.id: n.reasoning for n in graph.nodes if isinstance(n, Gen) and n.reasoning},
            trace.state,
        )


def _step(graph: Graph, node: Node, label: tuple[int, int], objects: Sequence[object]) -> Step:
    match node:
        case Text(edge="begin", role=str(role)):
            return Step(_expression(expr.RoleBegin(role)))
        case Text(edge="end", role=str(role)):
            return Step(_expression(expr.RoleEnd(role)))
        case Text():
            if all(isinstance(part, str) for part in node.parts):
                return Step(_expression(expr.Text("".join(map(str, node.parts)), node.special)))
            return Step(_text(node.parts, node.special), done=_nodes(node.parts))
        case Gen():
            return Step(_gen(node, label, objects))
        case Select():
            return Step(_select(node, label), done=_nodes(node.choices))
        case Fork():
            return Step(_fork(node))
        case Join():
            return _join(graph, node)
        case Read():
            return _read(node)
    raise InvalidArgument(f"a branch can't hold {node!r}")


def _nodes(value: object) -> tuple[int, ...]:
    return tuple(dict.fromkeys(ref.node for ref in refs_in(value) if ref.node is not None))


def _expression(expression: expr.Expr) -> Action:
    return lambda walk, branch: walk.append(branch, expression)


def _text(parts: tuple[Part, ...], special: bool) -> Action:
    return lambda walk, branch: walk.append(branch, expr.Text(walk.text(parts), special))


def _gen(node: Gen, label: tuple[int, int], objects: Sequence[object]) -> Action:
    fields = dict(node.params)
    dtype: Any = node.dtype
    if isinstance(dtype, Opaque):
        assert dtype.index is not None
        dtype = objects[dtype.index]
    try:
        params = SamplingParams.build(fields)
    except InvalidArgument:  # It may fit together with the run's own fields.
        params = None
    expression = expr.Gen(
        node.name, fields, params, node.site, node.logprob_texts, dtype, node.reasoning
    )
    return lambda walk, branch: walk.call(branch, node.id, expression, label)


def _select(node: Select, label: tuple[int, int]) -> Action:
    method = ChoicesMethod.of(node.method)

    def act(walk: Walk, branch: int) -> None:
        choices = tuple(walk.text(parts) for parts in node.choices)
        check_choices(choices)
        made = expr.Select(node.name, choices, method, node.temperature, node.site)
        walk.call(branch, node.id, made, label)

    return act


def _fork(node: Fork) -> Action:
    return lambda walk, branch: walk.fork(branch, node.children)


def _join(graph: Graph, node: Join) -> Step:
    if node.mode == APPEND:
        children = set(node.children)
        calls = [
            inner.id
            for inner in graph.nodes
            if inner.branch in children and isinstance(inner, (Gen, Select))
        ]
        return Step(
            lambda walk, branch: walk.join_text(branch, node.children),
            done=tuple(calls),
            over=node.children,
        )
    return Step(
        lambda walk, branch: walk.join_values(branch, node.children, node.gathered),
        made=_nodes(node.gathered),
        over=node.children,
    )


def _read(node: Read) -> Step:
    name = node.name
    if node.edge is not None:
        edge = node.edge
        return Step(lambda walk, branch: walk.span(branch, node.id, str(name), edge))
    lazy = isinstance(node.value, Ref) and not node.value.text
    needs = _nodes(node.value)
    return Step(
        lambda walk, branch: walk.assign(branch, node.id, name, node.value),
        done=() if lazy else needs,
        made=needs if lazy else (),
    )


def _compute(index: int) -> Action:
    return lambda walk, _branch: walk.compute(index)


def _return(value: Any) -> Action:
    return lambda walk, _branch: walk.put_returned(value)


def unread(graph: Graph) -> Iterable[Node]:
    """The calls of a program whose values nobody can read: on a branch that is dropped."""
    return [node for node in graph_passes.unread_calls(graph) if node.branch != 0]
