"""ProgramRun: one program instance, as a request graph that is walked without its user's code.

It hands operations to an engine and takes events, as a client does. Texts are runs of made-up
tokens (`tokens`), a call of a function is a pause with a result.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

from ramet.runtime.graph import NO_BRANCH, Call, Fork, Gen, Graph, Join, Node, Select, Text
from ramet.runtime.graph_passes import Label, labels
from ramet.runtime.graph_values import Ref
from ramet.runtime.request import SamplingParams
from ramet.runtime.simulation.tokens import Tokens, make_key

Op = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Arrival:
    """A program instance that comes at some second."""

    at: float
    graph: Graph
    args: tuple[Any, ...] = ()
    """Of the graph's arguments, in order: runs, lengths and seconds."""
    salt: str | None = None
    """Its tenant, who shares with nobody else."""
    priority: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Manner:
    """How all programs of a simulation make their calls."""

    share: bool = True
    """False makes each call compute its whole prompt."""
    exact: bool = False
    """Lengths are the calls' limits, as for a model whose end tokens aren't known beforehand."""


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """A graph, prepared for many walks."""

    graph: Graph
    branches: dict[int, list[tuple[Node, tuple[int, ...]]]]
    """Branch → (node, the nodes whose values it needs); functions have a negative branch each."""
    labels: dict[int, Label]

    @classmethod
    def of(cls, graph: Graph) -> Plan:
        """Prepare a graph."""
        branches: dict[int, list[tuple[Node, tuple[int, ...]]]] = {}
        for node in graph.nodes:
            branch = node.branch if node.branch != NO_BRANCH else -1 - node.id
            needs = tuple(ref.node for ref in node.refs() if ref.node is not None)
            branches.setdefault(branch, []).append((node, needs))
            if isinstance(node, Fork):
                for child in node.children:
                    branches.setdefault(child, [])
        return cls(graph, branches, labels(graph))


class World:
    """What all runs on one engine share: token ids, numbers, and plans of their graphs."""

    def __init__(self, tokens: Tokens, manner: Manner) -> None:
        self.tokens = tokens
        self.manner = manner
        self.number: Callable[[], int] = itertools.count(1).__next__
        """The next id of a context, a program, a call or a stream."""
        self._plans: dict[int, Plan] = {}

    def plan(self, graph: Graph) -> Plan:
        """The graph's plan, made when it is first seen."""
        plan = self._plans.get(id(graph))
        if plan is None:
            plan = self._plans[id(graph)] = Plan.of(graph)
        return plan


class ProgramRun:
    """The state of one walk."""

    def __init__(self, arrival: Arrival, world: World) -> None:
        self.arrival = arrival
        self.ops: list[Op] = []
        """Operations to submit."""
        self.calls: list[int] = []
        """Calls that are newly among them."""
        self.pauses: list[tuple[float, int]] = []
        """(seconds, node) of functions that were called: `finish` that node so much later."""
        self._world = world
        self._plan = world.plan(arrival.graph)
        self._args = dict(zip(arrival.graph.args, arrival.args, strict=True))
        self._at: dict[int, int] = {}
        self._contexts: dict[int, int] = {}
        self._values: dict[int, list[int]] = {}
        self._open: dict[int, int] = {}
        """Branch → how many of its calls aren't over."""
        self._waiting: dict[int, list[int]] = {}
        """Node → branches that wait for its value."""
        self._joining: dict[int, int] = {}
        """Branch → the one that waits for it to be over."""
        self._where: dict[int, tuple[int, int]] = {}
        """Call → its branch and node."""

    @property
    def over(self) -> bool:
        """Whether there is nothing left of it."""
        return not self._contexts

    def start(self) -> None:
        """Begin the program."""
        arrival, number = self.arrival, self._world.number()
        self._contexts[0] = number
        op = {"op": "open", "ctx": number, "program": number, "name": arrival.graph.name}
        self.ops.append({**op, "salt": arrival.salt, "priority": arrival.priority})
        for branch in self._plan.branches:
            if branch <= 0:
                self._advance(branch)

    def take(self, event: dict[str, Any]) -> None:
        """An event of one of its calls."""
        branch, node = self._where.pop(event["call"])
        self._open[branch] -= 1
        result = event["results"][0] if event["ev"] == "done" else {"append": []}
        ids = result.get("append")
        self.finish(node, result["output_token_ids"][: result["kept"]] if ids is None else ids)
        self._check_over(branch)

    def finish(self, node: int, ids: list[int] | None = None) -> None:
        """A node has its value: those given, or what its graph says."""
        if ids is None:
            call = self.arrival.graph.nodes[node]
            assert isinstance(call, Call)
            ids = self._ids(call.args[1])
        self._values[node] = ids
        for branch in self._waiting.pop(node, ()):
            self._advance(branch)

    # Inside

    def _advance(self, branch: int) -> None:
        steps = self._plan.branches[branch]
        at = self._at.get(branch, 0)
        while at < len(steps):
            node, needs = steps[at]
            for other in needs:
                if other not in self._values:
                    self._waiting.setdefault(other, []).append(branch)
                    return
            at += 1
            self._at[branch] = at
            if isinstance(node, Join):
                self._join(branch, node)
                return
            self._do(branch, node)
        self._check_over(branch)

    def _do(self, branch: int, node: Node) -> None:
        if isinstance(node, Call):
            self.pauses.append((float(self._value(node.args[0])), node.id))
            return
        context = self._contexts[branch]
        if isinstance(node, Text):
            first, *others = map(self._ids, node.parts)
            for ids in others:
                first = first + ids
            self.ops.append({"op": "append", "ctx": context, "ids": first})
        elif isinstance(node, (Gen, Select)):
            self._call(branch, node)
        elif isinstance(node, Fork):
            children = [self._world.number() for _ in node.children]
            self._contexts.update(zip(node.children, children, strict=True))
            self.ops.append({"op": "fork", "ctx": context, "children": children})
            for child in node.children:
                self._advance(child)

    def _value(self, value: Any) -> Any:
        """A value, or the argument that it refers to."""
        return self._args[value.arg] if isinstance(value, Ref) and value.arg else value

    def _ids(self, part: Any) -> list[int]:
        part = self._value(part)
        return self._world.tokens.run(part) if isinstance(part, str) else self._values[part.node]

    def _call(self, branch: int, node: Gen | Select) -> None:
        number = self._world.number()
        label = self._plan.labels[node.id]
        op: Op = {
            "ctx": self._contexts[branch],
            "call": number,
            "site": node.site,
            "depth": label.depth,
            "remaining": label.remaining - 1,
        }
        if isinstance(node, Gen):
            op |= self._generate(node)
        else:
            choices = [[t for part in parts for t in self._ids(part)] for parts in node.choices]
            op |= {"op": "score", "rest": [], "prefix": [], "key": number}
            op |= {"method": node.method, "temperature": node.temperature}
            op["choices"] = [{"ids": ids, "first": 0, "append": ids} for ids in choices]
        self.ops.append(op)
        self.calls.append(number)
        self._where[number] = branch, node.id
        self._open[branch] = self._open.get(branch, 0) + 1

    def _generate(self, node: Gen) -> Op:
        manner = self._world.manner
        lengths = [self._value(length) for length in node.params["lengths"]]
        limit = node.params["max_new_tokens"]
        if manner.exact:
            limit = max(lengths)
            lengths = [limit] * len(lengths)
        return {
            "op": "generate",
            "params": _wire(limit, len(lengths), manner.share, manner.exact),
            "keys": [make_key(self._world.number(), length) for length in lengths],
            "stream": False,
        }

    def _join(self, branch: int, node: Join) -> None:
        """Let the children end, and wait for it."""
        contexts = [self._contexts[child] for child in node.children]
        self.ops.append({"op": "join", "ctx": self._contexts[branch], "children": contexts})
        self._joining.update(dict.fromkeys(node.children, branch))
        for child in node.children:
            self._check_over(child)

    def _check_over(self, branch: int) -> None:
        """Close a branch that has nothing left to do, and wake who joins it."""
        if branch not in self._contexts or self._open.get(branch):
            return
        if self._at.get(branch, 0) < len(self._plan.branches[branch]):
            return
        if branch and branch not in self._joining:
            return  # Its end is where the join comes.
        self.ops.append({"op": "close", "ctx": self._contexts.pop(branch)})
        parent = self._joining.pop(branch, None)
        if parent is not None and parent not in self._joining.values():
            self._advance(parent)


@functools.lru_cache(maxsize=4096)
def _wire(limit: int, samples: int, share: bool, exact: bool) -> dict[str, Any]:
    values = {"max_new_tokens": limit, "n": samples, "ignore_eos": exact}
    return SamplingParams.build(values if share else {**values, "cache": False}).to_wire()
