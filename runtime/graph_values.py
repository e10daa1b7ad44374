"""Values in a graph: plain data, and references to what is known only when the graph runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ramet.runtime.errors import InvalidArgument
from ramet.runtime.request import shown


@dataclasses.dataclass(frozen=True, slots=True)
class Ref:
    """A value that is known when the graph runs: an argument, or what a node gives."""

    arg: str | None = None
    node: int | None = None
    text: bool = False
    """Whether its text is meant, as `str()` gives it, and not the value itself."""
    part: str | None = None
    """"typed", or "answer" or "reasoning" of a call that tells them apart; None is all of it."""

    def __str__(self) -> str:
        return f"{{{self.arg}}}" if self.arg is not None else f"{{#{self.node}}}"


Part = str | Ref
"""A piece of text: literal, or a value's text."""


@dataclasses.dataclass(frozen=True, slots=True)
class Template:
    """A text that is put together of literals and values when the graph runs."""

    parts: tuple[Part, ...]

    def __str__(self) -> str:
        return "".join(map(str, self.parts))


@dataclasses.dataclass(frozen=True, slots=True)
class Opaque:
    """An object that isn't plain data; it stays in the user's process."""

    shown: str
    """Its `repr`."""
    index: int | None = None
    """Its number among the objects of a traced program."""

    def __str__(self) -> str:
        return self.shown


def refs_in(value: object) -> Iterator[Ref]:
    """All references inside a value."""
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, Template):
        yield from refs_in(value.parts)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from refs_in(item)
    elif isinstance(value, Mapping):
        yield from refs_in(list(value.values()))


def replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    """The value with each leaf (a reference, an opaque object, plain data) put through `change`."""
    if isinstance(value, Template):
        return Template(replaced(value.parts, change))
    if isinstance(value, tuple):
        return tuple(replaced(item, change) for item in value)
    if isinstance(value, list):
        return [replaced(item, change) for item in value]
    if isinstance(value, Mapping):
        return {key: replaced(item, change) for key, item in value.items()}
    return change(value)


def plain(value: object) -> Any:
    """A value as a graph can hold it: what isn't plain data is named by its `repr`."""
    return replaced(value, _plain_leaf)


def shown_value(value: Any) -> str:
    """A value for a person to read, references as `{arg}` and `{#node}`."""
    if isinstance(value, (Ref, Template, Opaque)):
        return str(value)
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(shown_value, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {shown_value(item)}" for key, item in value.items()) + "}"
    return repr(value)


def is_plain(value: object) -> bool:
    """Whether a leaf may stand in a graph as it is."""
    return value is None or isinstance(value, (str, int, float, bool, Ref, Opaque))


def to_wire(value: Any) -> Any:
    """As JSON's types; `from_wire` reverses it."""
    if isinstance(value, Ref):
        wire: dict[str, Any] = {"ref": value.arg if value.arg is not None else value.node}
        if value.text:
            wire["text"] = True
        if value.part is not None:
            wire["part"] = value.part
        return wire
    if isinstance(value, Template):
        return {"template": [to_wire(part) for part in value.parts]}
    if isinstance(value, Opaque):
        return {"object": value.shown, "index": value.index}
    if isinstance(value, Mapping):
        pairs = [[to_wire(plain(key)), to_wire(item)] for key, item in value.items()]
        return {"map": pairs}
    if isinstance(value, list):
        return {"list": [to_wire(item) for item in value]}
    if isinstance(value, tuple):
        return [to_wire(item) for item in value]
    return value


def from_wire(value: Any) -> Any:
    """Rebuild a value from `to_wire`'s form; raises InvalidArgument for another."""
    if isinstance(value, list):
        return tuple(from_wire(item) for item in value)
    if not isinstance(value, Mapping):
        return value
    match value:
        case {"ref": str(name)}:
            return Ref(arg=name, text=bool(value.get("text")))
        case {"ref": int(node)}:
            return Ref(node=node, text=bool(value.get("text")), part=value.get("part"))
        case {"template": [*parts]}:
            return Template(tuple(from_wire(part) for part in parts))
        case {"object": str(shown), "index": index}:
            return Opaque(shown, index)
        case {"map": [*pairs]}:
            return {from_wire(key): from_wire(item) for key, item in pairs}
        case {"list": [*items]}:
            return [from_wire(item) for item in items]
    raise InvalidArgument(f"{value!r}: not a value of a graph")


def _plain_leaf(value: object) -> Any:
    return value if is_plain(value) else Opaque(shown(value))
