"""Shapes: what keywords demand of an array or an object, as atoms, and atoms put together.

The atoms of an object:

- `("has", name)`, `("lacks", name)`
- `("value", name, literal, is_declared)`: if the name is there, its value satisfies a literal
- `("rest", keys, literal, source)`: the value of every name among `keys` does
- `("names", literal)`: every name does
- `("some", keys, literal, source)`: there is a name among `keys` whose value does
- `("odd", literal, source)`: there is a name that does
- `("min", count, source)`, `("max", count, source)`

and of an array, beside `min` and `max`:

- `("item", index, literal)`, `("items", begin, literal)`: what is there satisfies a literal
- `("count", begin, literal, low, high, source)`: from `begin` on, so many items do
- `("unique", schema)`, `("repeated", schema)`

A source is the schema and the keyword that an atom comes from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from ramet.runtime.grammar.json_schema.normal import Schema
from ramet.runtime.grammar.json_schema.trees import (
    ALWAYS,
    NEVER,
    Atom,
    Tree,
    all_trees,
    any_trees,
    atom,
)
from ramet.runtime.grammar.json_schema.values import finds

Literal = tuple[Schema, bool]
Source = tuple[Schema, str]

EVEN_IF = Schema("", always=True)
"""What anything satisfies."""


@dataclasses.dataclass(frozen=True)
class Keys:
    """Names that match a pattern, or that are neither of some names nor match some patterns."""

    pattern: str | None = None
    names: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        """Whether a name is among them."""
        if self.pattern is not None:
            return finds(self.pattern, name)
        return name not in self.names and not any(finds(p, name) for p in self.patterns)

    def covers(self, matched: frozenset[str]) -> bool:
        """Whether names that match these patterns, and aren't mentioned, are among them."""
        if self.pattern is not None:
            return self.pattern in matched
        return not matched.intersection(self.patterns)


class Made:
    """Schemas that stand in no text but say what one there does; each is made once."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Schema] = {}
        self._kept: list[Schema] = []

    def constant(self, value: Any, schema: Schema, word: str, at: int) -> Schema:
        """What only an array, or only an object, that equals `value` satisfies among these."""
        key = (id(schema), word, at)
        if key in self._known:
            return self._known[key]
        pointer = f"{schema.pointer}/{word}"
        if isinstance(value, list):
            parts = [Schema(pointer, keywords={"const": part}) for part in value]
            count = len(value)
            words = {"prefixItems": parts, "minItems": count, "maxItems": count}
        else:
            named = {name: Schema(pointer, keywords={"const": v}) for name, v in value.items()}
            words = {
                "properties": named,
                "required": tuple(value),
                "maxProperties": len(value),
            }
        return self._keep(key, schema, Schema(pointer, keywords=words))

    def rest(self, schema: Schema, word: str, words: dict[str, Any]) -> Schema:
        """What `unevaluated…` of a schema comes to."""
        key = (id(schema), word)
        if key not in self._known:
            self._keep(key, schema, Schema(schema.pointer, keywords=words))
        return self._known[key]

    def _keep(self, key: tuple[Any, ...], schema: Schema, made: Schema) -> Schema:
        self._known[key] = made
        self._kept.append(schema)  # So that no other gets its id.
        return made


def read(made: Made, schema: Schema, word: str, given: Any, holds: bool, kind: str) -> Tree:
    """What one keyword demands of arrays or objects, or its opposite."""
    if word in ("unevaluatedItems", "unevaluatedProperties"):
        if kind != ("array" if word == "unevaluatedItems" else "object"):
            return ALWAYS if holds else NEVER
        from ramet.runtime.grammar.json_schema import unevaluated

        return unevaluated.read(made, schema, word, given, holds)
    maker = (_ARRAY if kind == "array" else _OBJECT).get(word)
    if maker is None:
        return ALWAYS if holds else NEVER
    return maker(schema, given, holds)


def _prefix(schema: Schema, given: list[Schema], holds: bool) -> Tree:
    if holds:
        return all_trees(atom("item", at, (part, True)) for at, part in enumerate(given))
    return any_trees(
        all_trees((atom("min", at + 1, (schema, "prefixItems")), atom("item", at, (part, False))))
        for at, part in enumerate(given)
    )


def _items(schema: Schema, given: Schema, holds: bool) -> Tree:
    begin = len(schema.keywords.get("prefixItems", ()))
    if given.always is True:
        return ALWAYS if holds else NEVER
    if holds:
        return atom("items", begin, (given, True))
    if given.always is False:
        return atom("min", begin + 1, (schema, "items"))
    return atom("count", begin, (given, False), 1, None, (schema, "items"))


def _contains(schema: Schema, given: Schema, holds: bool) -> Tree:
    low = schema.keywords.get("minContains", 1)
    high = schema.keywords.get("maxContains")
    part, source = (given, True), (schema, "contains")
    if holds:
        if high is not None and high < low:
            return NEVER
        return ALWAYS if (low, high) == (0, None) else atom("count", 0, part, low, high, source)
    fewer = atom("count", 0, part, 0, low - 1, source) if low else NEVER
    more = NEVER if high is None else atom("count", 0, part, high + 1, None, source)
    return any_trees((fewer, more))


def _unique(schema: Schema, given: bool, holds: bool) -> Tree:
    return atom("unique", schema) if holds else atom("repeated", schema)


def _at_least(schema: Schema, given: int, holds: bool) -> Tree:
    if given == 0:
        return ALWAYS if holds else NEVER
    source = (schema, "minProperties")
    return atom("min", given, source) if holds else atom("max", given - 1, source)


def _at_most(schema: Schema, given: int, holds: bool) -> Tree:
    source = (schema, "maxProperties")
    return atom("max", given, source) if holds else atom("min", given + 1, source)


def _properties(schema: Schema, given: dict[str, Schema], holds: bool) -> Tree:
    if holds:
        return all_trees(atom("value", name, (part, True), True) for name, part in given.items())
    return any_trees(
        all_trees((atom("has", name), atom("value", name, (part, False), False)))
        for name, part in given.items()
        if part.always is not True
    )


def _patterns(schema: Schema, given: dict[str, Schema], holds: bool) -> Tree:
    if holds:
        return all_trees(
            atom("rest", Keys(p), (part, True), (schema, "patternProperties"))
            for p, part in given.items()
        )
    return any_trees(
        atom("some", Keys(p), (part, False), (schema, "patternProperties"))
        for p, part in given.items()
        if part.always is not True
    )


def _additional(schema: Schema, given: Schema, holds: bool) -> Tree:
    if given.always is True:
        return ALWAYS if holds else NEVER
    words = schema.keywords
    names = frozenset(words.get("properties", ()))
    keys = Keys(None, names, tuple(words.get("patternProperties", ())))
    if holds:
        return atom("rest", keys, (given, True), (schema, "additionalProperties"))
    return atom("some", keys, (given, False), (schema, "additionalProperties"))


def _names(schema: Schema, given: Schema, holds: bool) -> Tree:
    return (
        atom("names", (given, True))
        if holds
        else atom("odd", (given, False), (schema, "propertyNames"))
    )


def _required(schema: Schema, given: Iterable[str], holds: bool) -> Tree:
    if holds:
        return all_trees(atom("has", name) for name in given)
    return any_trees(atom("lacks", name) for name in given)


def _dependent_names(schema: Schema, given: dict[str, tuple[str, ...]], holds: bool) -> Tree:
    if holds:
        return all_trees(
            any_trees((atom("lacks", name), _required(schema, others, True)))
            for name, others in given.items()
            if others
        )
    return any_trees(
        all_trees((atom("has", name), _required(schema, others, False)))
        for name, others in given.items()
    )


_Maker = Callable[[Schema, Any, bool], Tree]
_ARRAY: dict[str, _Maker] = {
    "prefixItems": _prefix,
    "items": _items,
    "contains": _contains,
    "uniqueItems": _unique,
    "minItems": _at_least,
    "maxItems": _at_most,
}
_OBJECT: dict[str, _Maker] = {
    "properties": _properties,
    "patternProperties": _patterns,
    "additionalProperties": _additional,
    "propertyNames": _names,
    "required": _required,
    "dependentRequired": _dependent_names,
    "minProperties": _at_least,
    "maxProperties": _at_most,
}


def clash(way: tuple[Atom, ...]) -> bool:
    """Whether demands on an array or an object contradict one another at first sight."""
    low, high = 0, None
    has: set[str] = set()
    lacks: set[str] = set()
    for demand in way:
        match demand[0]:
            case "has":
                has.add(demand[1])
            case "lacks":
                lacks.add(demand[1])
            case "min":
                low = max(low, demand[1])
            case "max":
                high = demand[1] if high is None else min(high, demand[1])
    return bool(has & lacks) or (high is not None and high < max(low, len(has)))


@dataclasses.dataclass
class ArrayShape:
    """The demands on one array, put together."""

    low: int = 0
    high: int | None = None
    single: dict[int, list[Literal]] = dataclasses.field(default_factory=dict)
    runs: list[tuple[int, Literal]] = dataclasses.field(default_factory=list)
    counts: list[tuple[int, Literal, int, int | None, Source]] = dataclasses.field(
        default_factory=list
    )
    unique: Schema | None = None
    repeated: Schema | None = None

    def item(self, index: int) -> tuple[Literal, ...]:
        """What the item at an index must satisfy."""
        run = [literal for begin, literal in self.runs if index >= begin]
        return tuple(dict.fromkeys((*self.single.get(index, ()), *run)))

    @property
    def width(self) -> int:
        """From which index on all items are alike."""
        begins = [begin for begin, _ in self.runs] + [count[0] for count in self.counts]
        return max([*begins, *(index + 1 for index in self.single)], default=0)


def array(way: tuple[Atom, ...]) -> ArrayShape:
    """The shape of an alternative."""
    shape = ArrayShape()
    for demand in way:
        match demand:
            case ("min", count, _):
                shape.low = max(shape.low, count)
            case ("max", count, _):
                shape.high = count if shape.high is None else min(shape.high, count)
            case ("item", index, literal):
                shape.single.setdefault(index, []).append(literal)
            case ("items", begin, literal):
                shape.runs.append((begin, literal))
            case ("count", begin, literal, low, high, source):
                shape.counts.append((begin, literal, low, high, source))
            case ("unique", schema):
                shape.unique = schema
            case ("repeated", schema):
                shape.repeated = schema
    return shape


@dataclasses.dataclass
class ObjectShape:
    """The demands on one object, put together."""

    low: int = 0
    high: int | None = None
    has: set[str] = dataclasses.field(default_factory=set)
    lacks: set[str] = dataclasses.field(default_factory=set)
    declared: dict[str, None] = dataclasses.field(default_factory=dict)
    mentioned: dict[str, None] = dataclasses.field(default_factory=dict)
    values: dict[str, list[Literal]] = dataclasses.field(default_factory=dict)
    rests: list[tuple[Keys, Literal, Source]] = dataclasses.field(default_factory=list)
    names: list[Literal] = dataclasses.field(default_factory=list)
    limit: Source | None = None
    somes: list[tuple[Keys | None, Literal, Source]] = dataclasses.field(default_factory=list)
    """A name among some keys whose value satisfies a literal; without keys, a name that does."""

    @property
    def loose(self) -> list[str]:
        """Names that something is said of, but that no `properties` puts in an order."""
        return [name for name in self.mentioned if name not in self.declared]

    def value(self, name: str) -> tuple[Literal, ...]:
        """What the value of a name that is mentioned must satisfy."""
        rest = [literal for keys, literal, _ in self.rests if keys.has(name)]
        return tuple(dict.fromkeys((*self.values.get(name, ()), *rest)))

    def copy(self) -> ObjectShape:
        """A shape to demand more of."""
        values = {name: list(found) for name, found in self.values.items()}
        return dataclasses.replace(self, has=set(self.has), values=values, somes=list(self.somes))

    @property
    def patterns(self) -> list[str]:
        """The patterns that tell other names apart."""
        found: dict[str, None] = {}
        for keys in (*(rest[0] for rest in self.rests), *(some[0] for some in self.somes)):
            if keys is not None:
                one = keys.pattern
                found.update(dict.fromkeys(keys.patterns if one is None else (one,)))
        return list(found)


def object_(way: tuple[Atom, ...]) -> ObjectShape:
    """The shape of an alternative."""
    shape = ObjectShape()
    for demand in way:
        match demand:
            case ("min", count, source):
                shape.limit = source
                shape.low = max(shape.low, count)
            case ("max", count, source):
                shape.limit = source
                shape.high = count if shape.high is None else min(shape.high, count)
            case ("has", name):
                shape.has.add(name)
                shape.mentioned.setdefault(name)
            case ("lacks", name):
                shape.lacks.add(name)
                shape.mentioned.setdefault(name)
            case ("value", name, literal, is_declared):
                shape.values.setdefault(name, []).append(literal)
                shape.mentioned.setdefault(name)
                if is_declared:
                    shape.declared.setdefault(name)
            case ("rest", keys, literal, source):
                shape.rests.append((keys, literal, source))
                shape.mentioned.update(dict.fromkeys(sorted(keys.names)))
            case ("names", literal):
                shape.names.append(literal)
            case ("some", keys, literal, source):
                shape.somes.append((keys, literal, source))
                shape.mentioned.update(dict.fromkeys(sorted(keys.names)))
            case ("odd", literal, source):
                shape.somes.append((None, literal, source))
    return shape
