"""Passes over a whole program's graph, each a function of its own: Graph in, Graph or facts out.

`optimise` is what a compiled program runs; the others inform the user and the scheduler.
"""

from __future__ import annotations

import dataclasses

from ramet.runtime.graph import (
    NO_BRANCH,
    Call,
    Fork,
    Gen,
    Graph,
    Join,
    Node,
    Select,
    Text,
    renumber,
)
from ramet.runtime.graph_values import Part, Ref, replaced


def optimise(graph: Graph) -> Graph:
    """The graph as it is run: equal branches merged, then adjacent literals."""
    return merge_literals(merge_equal_branches(graph))


def merge_literals(graph: Graph) -> Graph:
    """Join texts that follow each other on a branch, so that they are tokenised together anyway
    and cost one instruction."""
    kept: list[Node] = []
    last: dict[int, int] = {}
    for node in graph.nodes:
        before = last.get(node.branch)
        if (
            isinstance(node, Text)
            and before is not None
            and isinstance(previous := kept[before], Text)
            and node.edge is None
            and previous.edge is None
            and node.special == previous.special
        ):
            kept[before] = dataclasses.replace(
                previous, parts=_joined((*previous.parts, *node.parts))
            )
            continue
        last[node.branch] = len(kept)
        kept.append(node)
        if isinstance(node, Fork):
            for child in node.children:
                last[child] = len(kept) - 1
    return dataclasses.replace(graph, nodes=renumber(_in_order(kept)))


def constant_prefix(graph: Graph) -> str:
    """The text that every run of the program begins with: up to the first call, value or fork.

    Messages count by their contents; what the template adds around them isn't known here.
    """
    text = ""
    for node in graph.branch(0):
        if not isinstance(node, Text):
            break
        for part in node.parts:
            if isinstance(part, Ref):
                return text
            text += part
    return text


def merge_equal_branches(graph: Graph) -> Graph:
    """Drop branches that must give what an earlier sibling gives: the same instructions, all of
    them deterministic, on the same context. Whoever reads the later one reads the earlier one.
    The fork keeps its number of children, since a branch's place names its random streams."""
    branches: dict[int, list[Node]] = {}
    for node in graph.nodes:
        branches.setdefault(node.branch, []).append(node)
    twin: dict[int, int] = {}
    moved: dict[int, int] = {}
    for fork in (node for node in graph.nodes if isinstance(node, Fork)):
        seen: dict[tuple[object, ...], int] = {}
        for child in fork.children:
            nodes = branches.get(child, [])
            key = _signature(nodes)
            if key is None:
                continue
            first = seen.setdefault(key, child)
            if first != child:
                twin[child] = first
                pairs = zip(nodes, branches[first], strict=True)
                moved.update({node.id: same.id for node, same in pairs})
    kept = [_redirected(node, moved, twin) for node in graph.nodes if node.branch not in twin]
    return dataclasses.replace(graph, nodes=renumber(kept))


def unread_calls(graph: Graph) -> list[Node]:
    """Calls that nothing reads and nothing follows: probably a mistake, so they are reported;
    they still run. A name is a reader only on the program's own branch: a fork's variables are
    lost unless a join gathers them."""
    last: dict[int, int] = {}
    read: set[int] = set()
    joined: set[int] = set()
    for node in graph.nodes:
        last[node.branch] = node.id
        read.update(ref.node for ref in node.refs() if ref.node is not None)
        if isinstance(node, Join) and node.mode != "gather_variable":
            joined.update(node.children)
    return [
        node
        for node in graph.nodes
        if isinstance(node, (Gen, Select))
        and (node.name is None or node.branch != 0)
        and node.id not in read
        and last[node.branch] == node.id
        and node.branch not in joined
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class Label:
    """What the scheduler may want to know of a call before it runs."""

    depth: int
    """Calls that must end before it starts, on the longest way to it."""
    remaining: int
    """Calls from it on, itself included, on the longest way to the program's end."""


def labels(graph: Graph) -> dict[int, Label]:
    """Depth and remaining work of every call of the model or of a function, by node id."""
    weight = {n.id: int(isinstance(n, (Gen, Select, Call))) for n in graph.nodes}
    after: dict[int, list[int]] = {node.id: [] for node in graph.nodes}
    before: dict[int, list[int]] = {node.id: [] for node in graph.nodes}
    for start, end, _ in graph.edges():
        after[start].append(end)
        before[end].append(start)
    depth: dict[int, int] = {}
    for node in graph.nodes:
        depth[node.id] = max((depth[b] + weight[b] for b in before[node.id]), default=0)
    remaining: dict[int, int] = {}
    for node in reversed(graph.nodes):
        rest = max((remaining[a] for a in after[node.id]), default=0)
        remaining[node.id] = rest + weight[node.id]
    return {i: Label(depth[i], remaining[i]) for i, counts in weight.items() if counts}


def _joined(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    out: list[Part] = []
    for part in parts:
        if out and isinstance(part, str) and isinstance(out[-1], str):
            out[-1] += part
        else:
            out.append(part)
    return tuple(out)


def _in_order(nodes: list[Node]) -> list[Node]:
    """The nodes so that every value stands before its readers: a text that was merged into an
    earlier one may read what came between."""
    done: set[int] = set()
    out: list[Node] = []
    waiting = list(nodes)
    known = {node.id for node in nodes}
    blocked: set[int] = set()
    while waiting:
        rest: list[Node] = []
        blocked.clear()
        for node in waiting:
            needs = {ref.node for ref in node.refs() if ref.node in known} - done
            if isinstance(node, Join):
                needs = needs or blocked.intersection(node.children)
            if needs or node.branch in blocked:
                if node.branch != NO_BRANCH:
                    blocked.add(node.branch)
                if isinstance(node, Fork):
                    blocked.update(node.children)
                rest.append(node)
                continue
            out.append(node)
            done.add(node.id)
        if len(rest) == len(waiting):
            raise AssertionError("a graph's values depend on themselves")
        waiting = rest
    return out


def _signature(nodes: list[Node]) -> tuple[object, ...] | None:
    """What a branch does, in a form that equal branches share; None if it isn't deterministic."""
    if not nodes:
        return None
    own = {node.id: index for index, node in enumerate(nodes)}
    signature: list[object] = []
    for node in nodes:
        if isinstance(node, Gen):
            greedy = node.params.get("temperature") == 0 and node.params.get("n", 1) == 1
            if not greedy:
                return None
        elif isinstance(node, Select):
            if node.temperature:
                return None
        elif not isinstance(node, Text):
            return None
        fields = tuple(
            (field.name, repr(_relative(getattr(node, field.name), own)))
            for field in dataclasses.fields(node)
            if field.name not in ("id", "branch", "site")
        )
        signature.append((node.kind, fields))
    return tuple(signature)


def _relative(value: object, own: dict[int, int]) -> object:
    """A value with references to the branch itself counted from its start."""

    def count(leaf: object) -> object:
        return ("own", own[leaf.node]) if isinstance(leaf, Ref) and leaf.node in own else leaf

    return replaced(value, count)


def _redirected(node: Node, moved: dict[int, int], twin: dict[int, int]) -> Node:
    fields: dict[str, object] = {}
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if field.name == "children" and isinstance(node, Join):
            fields[field.name] = tuple(twin.get(c, c) for c in value)
        else:
            fields[field.name] = _moved(value, moved)
    return type(node)(**fields)  # type: ignore[arg-type]


def _moved(value: object, moved: dict[int, int]) -> object:
    def move(leaf: object) -> object:
        if isinstance(leaf, Ref) and leaf.node in moved:
            return dataclasses.replace(leaf, node=moved[leaf.node])
        return leaf

    return replaced(value, move)
