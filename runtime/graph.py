"""Graph: a program as data, the runtime's instruction set; the language is a compiler to it.

Nodes stand in the order in which the program wrote them. Each belongs to a branch (a context);
the nodes of a branch are in context order, and a `Ref` in a node is a data dependence. Nothing in
a graph is code: a `Call` names its function, which stays in the user's process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ramet.runtime.errors import InvalidArgument
from ramet.runtime.graph_values import (
    Opaque,
    Part,
    Ref,
    from_wire,
    refs_in,
    replaced,
    shown_value,
    to_wire,
)
from ramet.runtime.request import shown

VERSION = 1
"""Version of `to_dict`'s form."""

_CHART_SIGNS = frozenset('"#&<>`\\')
"""What means something inside a quoted Mermaid label."""

NO_BRANCH = -1
"""The branch of nodes that stand in no context: calls of functions."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One instruction on one branch."""

    id: int
    branch: int = 0
    site: str = ""
    """Where it stands in the program, as file:line."""

    @property
    def kind(self) -> str:
        """The node's kind, as in the wire form."""
        return type(self).__name__

    def refs(self) -> Iterator[Ref]:
        """The values that the node needs."""
        for field in dataclasses.fields(self):
            yield from refs_in(getattr(self, field.name))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Text(Node):
    """Literal text, or with `edge` the beginning or end of a message of a role."""

    parts: tuple[Part, ...] = ()
    special: bool = False
    """Whether special-token text in it is meant, also inside a role."""
    role: str | None = None
    edge: str | None = None
    """None, "begin" or "end"."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gen(Node):
    """A generation; its value is the text (sample 0 enters the context)."""

    name: str | None = None
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Fields of SamplingParams that the program set."""
    logprob_texts: bool = True
    """Whether entries of log-probabilities keep the tokens' texts."""
    dtype: str | Opaque | None = None
    """The type that its value can be read as, or what reads it."""
    reasoning: str | None = None
    """The family of models whose thinking is told apart from the answer."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Select(Node):
    """A choice between texts; its value is the chosen one."""

    name: str | None = None
    choices: tuple[tuple[Part, ...], ...] = ()
    method: str = "token_length_normalized"
    temperature: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fork(Node):
    """New branches that continue this one."""

    children: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Join(Node):
    """The end of branches: their variables as lists, or their text in order, for this one."""

    children: tuple[int, ...] = ()
    mode: str = "gather_variable"
    gathered: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    """Variable → its last value in each branch that has it: a Ref, plain data, or a tuple."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Call(Node):
    """A Python function of the user's on values; its value is what it returns.

    It belongs to no context: it runs as soon as its arguments are known.
    """

    branch: int = NO_BRANCH

    function: str = ""
    args: tuple[Any, ...] = ()
    """Values of `graph_values`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Read(Node):
    """A value that somebody takes out of the program, under `name` if it becomes a variable.

    With `edge` it is the beginning or the end of a stretch of text that becomes one, or what the
    program returns.
    """

    name: str | None = None
    value: Any = None
    """A value of `graph_values`."""
    edge: str | None = None
    """None, "begin", "end" or "return"."""


KINDS: dict[str, type[Node]] = {
    kind.__name__: kind for kind in (Text, Gen, Select, Fork, Join, Call, Read)
}


@dataclasses.dataclass(frozen=True, slots=True)
class Graph:
    """A program's nodes in the order written, and the names of its open arguments."""

    name: str
    args: tuple[str, ...]
    nodes: tuple[Node, ...]

    def branch(self, number: int) -> list[Node]:
        """The nodes of one branch, in context order."""
        return [node for node in self.nodes if node.branch == number]

    def edges(self) -> Iterator[tuple[int, int, str]]:
        """(from, to, kind) with kind "context" (order), "data" (a value) or "fork" / "join"."""
        last: dict[int, int] = {}
        for node in self.nodes:
            if node.branch in last and node.branch != NO_BRANCH:
                yield last[node.branch], node.id, "context"
            for ref in node.refs():
                if ref.node is not None:
                    yield ref.node, node.id, "data"
            last[node.branch] = node.id
            if isinstance(node, Fork):
                last.update(dict.fromkeys(node.children, node.id))
            elif isinstance(node, Join):
                for child in node.children:
                    if child in last and last[child] != node.id:
                        yield last[child], node.id, "join"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, versioned; `from_dict` reverses it."""
        return {
            "version": VERSION,
            "name": self.name,
            "args": list(self.args),
            "nodes": [_node_to_dict(node) for node in self.nodes],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Graph:
        """Rebuild from `to_dict`'s form; raises InvalidArgument naming what doesn't fit."""
        version = data.get("version") if isinstance(data, Mapping) else data
        if version != VERSION:
            raise InvalidArgument(f"version={version!r}: this ramet reads {VERSION}")
        try:
            nodes = tuple(_node_from_dict(node) for node in data["nodes"])
            graph = cls(data["name"], tuple(data["args"]), nodes)
            _check(graph)
            return graph
        except InvalidArgument:
            raise
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InvalidArgument(f"not a graph: {error!r}") from None

    def to_mermaid(self) -> str:
        """A Mermaid flowchart: one box per node, solid arrows for order, dotted for data."""
        lines = ["flowchart TD"]
        for node in self.nodes:
            lines.append(f'    n{node.id}["{_chart_text(label_of(node))}"]')
        arrows = {"context": "-->", "data": "-.->", "join": "-->"}
        lines += [f"    n{a} {arrows[kind]} n{b}" for a, b, kind in self.edges()]
        return "\n".join(lines) + "\n"

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        rows = "".join(
            f"<tr><td>{node.id}</td><td>{node.branch}</td><td>{node.kind}</td>"
            f"<td><code>{_escape(label_of(node))}</code></td><td>{_escape(node.site)}</td></tr>"
            for node in self.nodes
        )
        head = "<tr><th>node</th><th>branch</th><th>kind</th><th>what</th><th>where</th></tr>"
        return f"<table><caption>{_escape(self.name)}</caption>{head}{rows}</table>"


def label_of(node: Node, width: int = 40) -> str:
    """A short line of what a node does."""
    match node:
        case Text(edge=None):
            text = "".join(str(part) for part in node.parts)
            label = text if len(text) <= width else f"{text[: width - 1]}…"
        case Text():
            label = f"{node.edge} {node.role}"
        case Gen():
            label = f"gen {node.name or ''}".rstrip()
        case Select():
            label = f"select {node.name or ''} of {len(node.choices)}"
        case Fork():
            label = f"fork {len(node.children)}"
        case Join():
            label = f"join {node.mode}"
        case Call():
            label = f"call {node.function}"
        case Read():
            label = " ".join(
                ["read", *filter(None, [node.edge, node.name or shown_value(node.value)])]
            )
        case _:
            label = node.kind
    return label


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _chart_text(text: str) -> str:
    """Text for a quoted Mermaid label, in which no character means anything."""
    text = "".join("⏎" if char == "\n" else char if char >= " " else "�" for char in text)
    return "".join(f"#{ord(char)};" if char in _CHART_SIGNS else char for char in text)


def _check(graph: Graph) -> None:
    """Raise InvalidArgument for a graph that no program could have."""
    if not all(isinstance(name, str) for name in (graph.name, *graph.args)):
        raise InvalidArgument("not a graph: its name and its arguments' names must be texts")
    for place, node in enumerate(graph.nodes):
        texts = (node.site, *(getattr(node, name, None) or "" for name in ("name", "role", "edge")))
        numbers = (node.id, node.branch, *getattr(node, "children", ()))
        wrong = node.id != place or not all(type(number) is int for number in numbers)
        wrong = wrong or not all(isinstance(text, str) for text in texts)
        refs = [ref.node for ref in node.refs() if ref.node is not None]
        wrong = wrong or not all(0 <= number < place for number in refs)
        if wrong:
            raise InvalidArgument(f"not a graph: node {place} is malformed: {shown(node)}")


def _node_to_dict(node: Node) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": node.kind}
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if field.name == "id" or value != _default(field):
            fields[field.name] = to_wire(value)
    return fields


def _node_from_dict(data: Mapping[str, Any]) -> Node:
    fields = dict(data)
    kind = fields.pop("kind", None)
    if kind not in KINDS:
        raise InvalidArgument(f"kind={kind!r}: must be one of {', '.join(KINDS)}")
    return KINDS[kind](**{name: from_wire(value) for name, value in fields.items()})


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def renumber(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """The nodes with ids 0, 1, … in their order, refs included; refs to nodes gone stay out."""
    kept = list(nodes)
    new = {node.id: index for index, node in enumerate(kept)}

    def move(value: Any) -> Any:
        if isinstance(value, Ref) and value.node is not None:
            return dataclasses.replace(value, node=new[value.node])
        return value

    moved: list[Node] = []
    for node in kept:
        fields = {
            field.name: getattr(node, field.name)
            if field.name in ("branch", "children", "site", "params")
            else replaced(getattr(node, field.name), move)
            for field in dataclasses.fields(node)
            if field.name != "id"
        }
        moved.append(type(node)(id=new[node.id], **fields))
    return tuple(moved)
