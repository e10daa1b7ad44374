"""`unevaluatedProperties` and `…Items`, where what is evaluated doesn't depend on a value.

What `properties`, `allOf` and `$ref` look at is always looked at, so the rest is known, and these
are `additionalProperties` and `items`. What a branch of `anyOf` looks at counts only if it is
satisfied: the schema must look at it in any case, or the keyword is unsupported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from ramet.runtime.grammar.json_schema import shapes
from ramet.runtime.grammar.json_schema.normal import Schema
from ramet.runtime.grammar.json_schema.trees import ALWAYS, NEVER, Tree


@dataclasses.dataclass
class _Seen:
    """What is evaluated."""

    names: dict[str, None] = dataclasses.field(default_factory=dict)
    patterns: dict[str, None] = dataclasses.field(default_factory=dict)
    items: int = 0
    everything: bool = False


def read(made: shapes.Made, schema: Schema, word: str, given: Schema, holds: bool) -> Tree:
    """What an `unevaluated…` keyword demands, or its opposite."""
    from ramet.runtime.grammar.json_schema.reading import Unsupported

    kind = "array" if word == "unevaluatedItems" else "object"
    seen = _Seen()
    _collect(schema, kind, seen, {id(schema)}, word)
    if seen.everything or given.always is True:
        return ALWAYS if holds else NEVER
    for branch in _branches(schema, set()):
        maybe = _Seen()
        for part in _all_of(branch, set()):
            _collect(part, kind, maybe, {id(part)}, "")
        more = set(maybe.names) - set(seen.names) or set(maybe.patterns) - set(seen.patterns)
        if more or maybe.everything or maybe.items > seen.items or _looks(branch, kind):
            raise Unsupported(schema, word, f"what {branch.pointer} looks at may count or not")
    if kind == "object":
        words: dict[str, Any] = {
            "properties": dict.fromkeys(seen.names, shapes.EVEN_IF),
            "patternProperties": dict.fromkeys(seen.patterns, shapes.EVEN_IF),
            "additionalProperties": given,
        }
        rest = made.rest(schema, word, words)
        return shapes.read(made, rest, "additionalProperties", given, holds, kind)
    words = {"prefixItems": [shapes.EVEN_IF] * seen.items, "items": given}
    rest = made.rest(schema, word, words)
    return shapes.read(made, rest, "items", given, holds, kind)


def _collect(schema: Schema, kind: str, seen: _Seen, open_: set[int], skip: str) -> None:
    """What a schema looks at whatever the value is."""
    words = schema.keywords
    if kind == "object":
        seen.names.update(dict.fromkeys(words.get("properties", ())))
        seen.patterns.update(dict.fromkeys(words.get("patternProperties", ())))
        rests: tuple[str, ...] = ("additionalProperties", "unevaluatedProperties")
    else:
        seen.items = max(seen.items, len(words.get("prefixItems", ())))
        rests = ("items", "unevaluatedItems")
    seen.everything |= any(word in words for word in rests if word != skip)
    inner = [*words.get("allOf", ()), *([words["$ref"]] if "$ref" in words else ())]
    for part in inner:
        if id(part) not in open_:
            _collect(part, kind, seen, open_ | {id(part)}, "")


def _all_of(schema: Schema, open_: set[int]) -> Iterator[Schema]:
    """A schema and the branches within it."""
    yield schema
    yield from _branches(schema, open_)


def _branches(schema: Schema, open_: set[int]) -> Iterator[Schema]:
    """The schemas beside a schema that a value satisfies or doesn't."""
    words = schema.keywords
    if id(schema) in open_:
        return
    open_.add(id(schema))
    for word in ("anyOf", "oneOf"):
        for part in words.get(word, ()):
            yield from _all_of(part, open_)
    for word in ("if", "then", "else"):
        if word in words:
            yield from _all_of(words[word], open_)
    for part in words.get("dependentSchemas", {}).values():
        yield from _all_of(part, open_)
    for part in (*words.get("allOf", ()), *([words["$ref"]] if "$ref" in words else ())):
        yield from _branches(part, open_)
    if "contains" in words:
        yield Schema(schema.pointer, keywords={"contains": words["contains"]})


def _looks(branch: Schema, kind: str) -> bool:
    return kind == "array" and "contains" in branch.keywords
