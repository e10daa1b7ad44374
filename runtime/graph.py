"""Graph: a program as data, the runtime's instruction set; the language is a compiler to it.

Nodes stand in the order in which the program wrote them. Each belongs to a branch (a context);
the nodes of a branch are in context order, and a `Ref` in a node is a data dependence. Nothing in
a graph is code: a `Call` names its function, which stays in the user's process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ramet.runtime.errors import InvalidArgument

VERSION = 1
"""Version of `to_dict`'s form."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ref:
    """A value that is known when the graph runs: an argument, or what a node gives."""

    arg: str | None = None
    node: int | None = None

    def __str__(self) -> str:
        return f"{{{self.arg}}}" if self.arg is not None else f"{{#{self.node}}}"


Part = str | Ref
"""A piece of text: literal, or a value's text."""


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
        yield from ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Text(Node):
    """Literal text, or with `edge` the beginning or end of a message of a role."""

    parts: tuple[Part, ...] = ()
    special: bool = False
    """Whether special-token text in it is meant, also inside a role."""
    role: str | None = None
    edge: str | None = None
    """None, "begin" or "end"."""

    def refs(self) -> Iterator[Ref]:
        """The values in its text."""
        yield from (part for part in self.parts if isinstance(part, Ref))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gen(Node):
    """A generation; its value is the text (sample 0 enters the context)."""

    name: str | None = None
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Fields of SamplingParams that the program set."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Select(Node):
    """A choice between texts; its value is the chosen one."""

    name: str | None = None
    choices: tuple[tuple[Part, ...], ...] = ()
    method: str = "token_length_normalized"
    temperature: float = 0.0

    def refs(self) -> Iterator[Ref]:
        """The values in its choices."""
        yield from (part for parts in self.choices for part in parts if isinstance(part, Ref))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fork(Node):
    """New branches that continue this one."""

    children: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Join(Node):
    """The end of branches: their variables as lists, or their text in order, for this one."""

    children: tuple[int, ...] = ()
    mode: str = "gather_variable"
    gathered: Mapping[str, tuple[Ref, ...]] = dataclasses.field(default_factory=dict)
    """Variable → its last value in each branch that has it."""

    def refs(self) -> Iterator[Ref]:
        """The gathered values."""
        yield from (ref for refs in self.gathered.values() for ref in refs)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Call(Node):
    """A Python function of the user's on values; its value is what it returns."""

    function: str = ""
    args: tuple[Any, ...] = ()
    """Plain data, or Refs."""

    def refs(self) -> Iterator[Ref]:
        """The values among its arguments."""
        yield from (arg for arg in self.args if isinstance(arg, Ref))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Read(Node):
    """A value that somebody takes out of the program, under `name` if it becomes a variable."""

    name: str | None = None
    value: Any = None
    """Plain data, or a Ref."""

    def refs(self) -> Iterator[Ref]:
        """The value, if it is one of the program's."""
        if isinstance(self.value, Ref):
            yield self.value


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
            if node.branch in last:
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
        if data.get("version") != VERSION:
            raise InvalidArgument(f"version={data.get('version')!r}: this ramet reads {VERSION}")
        try:
            nodes = tuple(_node_from_dict(node) for node in data["nodes"])
            return cls(data["name"], tuple(data["args"]), nodes)
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidArgument(f"not a graph: {error!r}") from None

    def to_mermaid(self) -> str:
        """A Mermaid flowchart: one box per node, solid arrows for order, dotted for data."""
        lines = ["flowchart TD"]
        for node in self.nodes:
            label = label_of(node).replace('"', "'").replace("\n", "⏎")
            lines.append(f'    n{node.id}["{label}"]')
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
            label = f"read {node.name or node.value}"
        case _:
            label = node.kind
    return label


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _node_to_dict(node: Node) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": node.kind}
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if field.name == "id" or value != _default(field):
            fields[field.name] = _to_plain(value)
    return fields


def _node_from_dict(data: Mapping[str, Any]) -> Node:
    fields = dict(data)
    kind = fields.pop("kind", None)
    if kind not in KINDS:
        raise InvalidArgument(f"kind={kind!r}: must be one of {', '.join(KINDS)}")
    return KINDS[kind](**{name: _from_plain(value) for name, value in fields.items()})


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _to_plain(value: Any) -> Any:
    if isinstance(value, Ref):
        return {"ref": value.arg if value.arg is not None else value.node}
    if isinstance(value, Mapping):
        return {"map": [[key, _to_plain(item)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return [_to_plain(item) for item in value]
    return value


def _from_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        if "ref" in value:
            ref = value["ref"]
            return Ref(arg=ref) if isinstance(ref, str) else Ref(node=ref)
        return {key: _from_plain(item) for key, item in value["map"]}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_from_plain(item) for item in value)
    return value


def renumber(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """The nodes with ids 0, 1, … in their order, refs included; refs to nodes gone stay out."""
    kept = list(nodes)
    new = {node.id: index for index, node in enumerate(kept)}

    def move(value: Any) -> Any:
        if isinstance(value, Ref) and value.node is not None:
            return Ref(node=new[value.node])
        if isinstance(value, tuple):
            return tuple(move(item) for item in value)
        if isinstance(value, Mapping):
            return {key: move(item) for key, item in value.items()}
        return value

    moved: list[Node] = []
    for node in kept:
        fields = {
            field.name: getattr(node, field.name)
            if field.name in ("branch", "children", "site", "params")
            else move(getattr(node, field.name))
            for field in dataclasses.fields(node)
            if field.name != "id"
        }
        moved.append(type(node)(id=new[node.id], **fields))
    return tuple(moved)
