"""A schema of any draft (04 to 2020-12) as one graph of `Schema`s in the words of 2020-12.

`normalise(text)` reads, checks and resolves: every reference is the `Schema` it means, older
drafts' keywords are said in the newest one's, annotations are gone, and a keyword whose value is
malformed is an error. What no `$ref` leads to (`$defs` nobody uses) isn't looked at. A keyword that
is newer than the draft which `$schema` names says nothing, as the standard has it. Without
`$schema` the draft is 2020-12, except that older forms which it gives no meaning (`items` as a
list, `exclusiveMinimum: true`, `dependencies`) keep their old one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from ramet.runtime.grammar.json_schema.references import Path, References
from ramet.runtime.grammar.json_schema.text import parse, refuse, step

TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")

_DRAFTS: Final = {
    "http://json-schema.org/draft-04/schema": 4,
    "http://json-schema.org/draft-05/schema": 4,
    "http://json-schema.org/draft-06/schema": 6,
    "http://json-schema.org/draft-07/schema": 7,
    "https://json-schema.org/draft/2019-09/schema": 2019,
    "https://json-schema.org/draft/2020-12/schema": 2020,
    "http://json-schema.org/schema": 2020,
}

_SINCE: Final = {
    "const": 6,
    "contains": 6,
    "propertyNames": 6,
    "if": 7,
    "minContains": 2019,
    "maxContains": 2019,
    "dependentRequired": 2019,
    "dependentSchemas": 2019,
    "unevaluatedItems": 2019,
    "unevaluatedProperties": 2019,
    "prefixItems": 2020,
}
"""The first draft that has a keyword: to an older one it is any unknown word."""

Number = int | Decimal


@dataclasses.dataclass(eq=False, slots=True)
class Schema:
    """One schema. The graph of them has a cycle where a schema is recursive."""

    pointer: str
    """Where it stands in the text, as a JSON pointer."""
    always: bool | None = None
    """What a boolean schema says; None for an object."""
    keywords: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    """By name, in the text's order; only these, each in this form:

    - `type`: tuple of names; `enum`: list of values; `const`: a value
    - `multipleOf`, `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum`: int or Decimal
    - `minLength`, `maxLength`, `minItems`, `maxItems`, `minContains`, `maxContains`,
      `minProperties`, `maxProperties`: int; `uniqueItems`: True
    - `pattern`, `format`: str
    - `properties`, `patternProperties`, `dependentSchemas`: dict of Schemas
    - `required`: tuple of names; `dependentRequired`: dict of tuples of names
    - `additionalProperties`, `propertyNames`, `items`, `contains`, `not`, `if`, `then`, `else`,
      `unevaluatedItems`, `unevaluatedProperties`: a Schema
    - `prefixItems`, `allOf`, `anyOf`, `oneOf`: list of Schemas
    - `$ref`: the Schema that it means
    - `$dynamicRef`, `$recursiveRef`: str, only where what is meant depends on the way there
    """


def normalise(text: str) -> Schema:
    """The root of a schema's graph; raises GrammarError naming the place of what is wrong."""
    return normalise_value(parse(text))


def normalise_value(value: Any) -> Schema:
    """As `normalise`, of a value that `text.parse` gave."""
    return _Normaliser(value).run()


class _Normaliser:
    def __init__(self, root: Any) -> None:
        self._draft, self._is_named = _draft(root)
        self._references = References(root, self._draft)
        self._known: dict[Path, Schema] = {}
        self._waiting: list[Path] = []

    def run(self) -> Schema:
        root = self._schema(())
        while self._waiting:
            path = self._waiting.pop()
            self._fill(self._known[path], self._references.value(path), path)
        return root

    def _schema(self, path: Path) -> Schema:
        """The schema at a place, perhaps not read yet."""
        if path not in self._known:
            value = self._references.value(path)
            pointer = step("", *path)
            if not isinstance(value, dict | bool):
                refuse(pointer, f"{_shown(value)} is no schema: must be an object or a boolean")
            if isinstance(value, bool):
                self._known[path] = Schema(pointer, always=value)
            else:
                self._known[path] = Schema(pointer)
                self._waiting.append(path)
        return self._known[path]

    def _fill(self, schema: Schema, value: dict[str, Any], path: Path) -> None:
        words = schema.keywords
        if "$ref" in value:
            words["$ref"] = self._referenced(value["$ref"], path, schema.pointer)
            if self._draft <= 7:
                return
        for name, given in value.items():
            if self._is_named and self._draft < _SINCE.get(name, 0):
                continue
            if name in _PLAIN:
                words[name] = _PLAIN[name](given, step(schema.pointer, name))
            elif name in _SCHEMA:
                words[name] = self._schema((*path, name))
            elif name in _LISTS:
                words[name] = self._list((*path, name), given)
            elif name in _DICTS:
                words[name] = self._dict((*path, name), given)
            elif name in ("items", "additionalItems", "prefixItems"):
                self._items(words, name, value, path)
            elif name in ("exclusiveMinimum", "exclusiveMaximum"):
                self._exclusive(words, name, value, path)
            elif name == "dependencies":
                self._dependencies(words, given, (*path, name))
            elif name in ("$dynamicRef", "$recursiveRef") and self._draft >= 2019:
                self._dynamic(words, name, given, path)
        _tidy(words)

    def _referenced(self, reference: Any, path: Path, pointer: str) -> Schema:
        at = step(pointer, "$ref")
        return self._schema(self._references.resolve(_text(reference, at), path, at))

    def _list(self, path: Path, given: Any) -> list[Schema]:
        if not isinstance(given, list) or (not given and path[-1] != "prefixItems"):
            refuse(step("", *path), f"{_shown(given)}: must be a list of schemas")
        return [self._schema((*path, i)) for i in range(len(given))]

    def _dict(self, path: Path, given: Any) -> dict[str, Schema]:
        if not isinstance(given, dict):
            refuse(step("", *path), f"{_shown(given)}: must be an object of schemas")
        return {name: self._schema((*path, name)) for name in given}

    def _items(self, words: dict[str, Any], name: str, value: dict[str, Any], path: Path) -> None:
        """`items` and its company: a list was what `prefixItems` is now."""
        given = value[name]
        is_tuple = isinstance(value.get("items"), list)
        if name == "prefixItems":
            if self._draft >= 2020:
                words["prefixItems"] = self._list((*path, name), given)
        elif name == "additionalItems":
            if is_tuple:
                words["items"] = self._schema((*path, name))
        elif not is_tuple:
            words["items"] = self._schema((*path, name))
        elif self._draft >= 2020 and self._is_named:
            refuse(step("", *path, name), "must be a schema in draft 2020-12 (see prefixItems)")
        else:
            words["prefixItems"] = [self._schema((*path, name, i)) for i in range(len(given))]

    def _exclusive(
        self, words: dict[str, Any], name: str, value: dict[str, Any], path: Path
    ) -> None:
        """A flag beside `minimum` in draft 4, and a bound of its own since."""
        given, pointer = value[name], step("", *path, name)
        if not isinstance(given, bool):
            words[name] = _number(given, pointer)
        elif self._draft > 4 and self._is_named:
            refuse(pointer, f"{_shown(given)}: must be a number")
        elif given:
            bound = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}[name]
            if bound in value:
                words[name] = _number(value[bound], step("", *path, bound))

    def _dependencies(self, words: dict[str, Any], given: Any, path: Path) -> None:
        if not isinstance(given, dict):
            refuse(step("", *path), f"{_shown(given)}: must be an object")
        for name, needed in given.items():
            if isinstance(needed, list):
                names = _names(needed, step("", *path, name))
                words.setdefault("dependentRequired", {}).setdefault(name, names)
            else:
                found = self._schema((*path, name))
                words.setdefault("dependentSchemas", {}).setdefault(name, found)

    def _dynamic(self, words: dict[str, Any], name: str, given: Any, path: Path) -> None:
        """A dynamic reference that can only mean one place is a plain one."""
        pointer = step("", *path, name)
        target = self._references.resolve(_text(given, pointer), path, pointer)
        value = self._references.value(target)
        anchor = given.rpartition("#")[2] if name == "$dynamicRef" else ""
        flag = "$dynamicAnchor" if name == "$dynamicRef" else "$recursiveAnchor"
        is_static = not isinstance(value, dict) or flag not in value or anchor.startswith("/")
        if is_static or self._references.dynamic(anchor) == [target]:
            if "$ref" in words:
                words["allOf"] = [*words.get("allOf", ()), self._schema(target)]
            else:
                words["$ref"] = self._schema(target)
        else:
            words[name] = given


def _draft(root: Any) -> tuple[int, bool]:
    """The draft of a whole text, and whether the text names it.

    A dialect of somebody's own is read as if none were named.
    """
    named = root.get("$schema") if isinstance(root, dict) else None
    if named is None:
        return 2020, False
    if not isinstance(named, str):
        refuse("/$schema", f"{_shown(named)}: must be a string")
    plain = named.rstrip("#/").replace("https:", "http:")
    for known, draft in _DRAFTS.items():
        if plain == known.replace("https:", "http:"):
            return draft, True
    if plain.startswith("http://json-schema.org/draft"):
        refuse("/$schema", f"{_shown(named)}: must be a draft from 04 to 2020-12")
    return 2020, False


def _tidy(words: dict[str, Any]) -> None:
    """Drop what says nothing."""
    if "if" not in words:
        words.pop("then", None)
        words.pop("else", None)
    if "contains" not in words:
        words.pop("minContains", None)
        words.pop("maxContains", None)
    if words.get("uniqueItems") is False:
        del words["uniqueItems"]


def _count(given: Any, pointer: str) -> int:
    is_whole = isinstance(given, Decimal) and given == given.to_integral_value()
    if (not isinstance(given, int) and not is_whole) or isinstance(given, bool) or given < 0:
        refuse(pointer, f"{_shown(given)}: must be a whole number from 0 on")
    return int(given)


def _number(given: Any, pointer: str) -> Number:
    if not isinstance(given, int | Decimal) or isinstance(given, bool):
        refuse(pointer, f"{_shown(given)}: must be a number")
    return given


def _positive(given: Any, pointer: str) -> Number:
    number = _number(given, pointer)
    if number <= 0:
        refuse(pointer, f"{_shown(given)}: must be more than 0")
    return number


def _text(given: Any, pointer: str) -> str:
    if not isinstance(given, str):
        refuse(pointer, f"{_shown(given)}: must be a string")
    return given


def _flag(given: Any, pointer: str) -> bool:
    if not isinstance(given, bool):
        refuse(pointer, f"{_shown(given)}: must be true or false")
    return given


def _names(given: Any, pointer: str) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        refuse(pointer, f"{_shown(given)}: must be a list of strings")
    return tuple(dict.fromkeys(given))


def _names_by_name(given: Any, pointer: str) -> dict[str, tuple[str, ...]]:
    if not isinstance(given, dict):
        refuse(pointer, f"{_shown(given)}: must be an object")
    return {name: _names(names, step(pointer, name)) for name, names in given.items()}


def _types(given: Any, pointer: str) -> tuple[str, ...]:
    names = given if isinstance(given, list) else [given]
    if not names or any(name not in TYPES for name in names):
        refuse(pointer, f"{_shown(given)}: must be one or some of {', '.join(TYPES)}")
    return tuple(dict.fromkeys(names))


def _values(given: Any, pointer: str) -> list[Any]:
    if not isinstance(given, list):
        refuse(pointer, f"{_shown(given)}: must be a list")
    return given


def _value(given: Any, pointer: str) -> Any:
    return given


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:199]}…"


_PLAIN: Final[dict[str, Callable[[Any, str], Any]]] = {
    "type": _types,
    "enum": _values,
    "const": _value,
    "multipleOf": _positive,
    "minimum": _number,
    "maximum": _number,
    "minLength": _count,
    "maxLength": _count,
    "pattern": _text,
    "format": _text,
    "minItems": _count,
    "maxItems": _count,
    "uniqueItems": _flag,
    "minContains": _count,
    "maxContains": _count,
    "minProperties": _count,
    "maxProperties": _count,
    "required": _names,
    "dependentRequired": _names_by_name,
}
_SCHEMA: Final = (
    "additionalProperties",
    "propertyNames",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_LISTS: Final = ("allOf", "anyOf", "oneOf")
_DICTS: Final = ("properties", "patternProperties", "dependentSchemas")
