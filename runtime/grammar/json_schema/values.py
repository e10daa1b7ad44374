"""Values: whether one satisfies a schema, exactly, and when two are the same."""

from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from ramet.runtime.errors import GrammarError, UnsupportedFeature
from ramet.runtime.grammar.json_schema.formats import FORMATS
from ramet.runtime.grammar.json_schema.normal import Schema
from ramet.runtime.grammar.json_schema.search import translated

SECONDS: Final = 1.0
"""Longest time that one pattern may take on one text."""


def is_number(value: Any) -> bool:
    """Whether a value is a number to JSON."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def is_integer(value: Any) -> bool:
    """Whether a value is a whole number, however it is written."""
    return is_number(value) and value == int(value)


def same(left: Any, right: Any) -> bool:
    """JSON's equality: by value for numbers, and true is no 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if is_number(left) and is_number(right):
        return bool(left == right)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return type(left) is type(right) and bool(left == right)


def found(pattern: str, text: str) -> bool:
    """Whether `re.search` would find a pattern in a text, within SECONDS."""
    try:
        return _compiled(pattern).search(text, timeout=SECONDS) is not None
    except TimeoutError:
        raise GrammarError(
            f"json_schema: the pattern {pattern!r:.200} takes more than {SECONDS:.0f} s on one text"
        ) from None


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    try:
        import regex
    except ImportError:
        raise UnsupportedFeature(
            "json_schema: patterns need the package `regex`; pip install regex"
        ) from None
    try:
        return regex.compile(translated(pattern))
    except (regex.error, RecursionError) as error:
        raise GrammarError(f"json_schema: the pattern {pattern!r:.200}: {error}") from None


class CannotTell(Exception):
    """A keyword that isn't told by a value alone here."""

    def __init__(self, schema: Schema, word: str) -> None:
        super().__init__(word)
        self.schema, self.word = schema, word


def holds(schema: Schema, value: Any) -> bool:
    """Whether a value satisfies a schema, known formats included."""
    if schema.always is not None:
        return schema.always
    return all(holds_word(schema, word, value) for word in schema.keywords)


def holds_word(schema: Schema, word: str, value: Any) -> bool:
    """Whether a value satisfies one keyword of a schema."""
    given = schema.keywords[word]
    if word in _ANY:
        return _ANY[word](schema, given, value)
    if isinstance(value, str) and word in _STRING:
        return _STRING[word](given, value)
    if is_number(value) and word in _NUMBER:
        return _NUMBER[word](given, value)
    if isinstance(value, list) and word in _ARRAY:
        return _ARRAY[word](schema, given, value)
    if isinstance(value, dict) and word in _OBJECT:
        return _OBJECT[word](schema, given, value)
    if word.startswith(("unevaluated", "$dynamic", "$recursive")):
        raise CannotTell(schema, word)
    return True


def _type(schema: Schema, names: tuple[str, ...], value: Any) -> bool:
    return any(_IS[name](value) for name in names)


def _one(schema: Schema, options: list[Schema], value: Any) -> bool:
    return sum(holds(option, value) for option in options) == 1


def _if(schema: Schema, condition: Schema, value: Any) -> bool:
    branch = schema.keywords.get("then" if holds(condition, value) else "else")
    return branch is None or holds(branch, value)


def _format(name: str, text: str) -> bool:
    return name not in FORMATS or found(rf"\A(?:{FORMATS[name]})\Z", text)


def _multiple(step: Any, value: Any) -> bool:
    return (Fraction(value) / Fraction(step)).denominator == 1


def _items(schema: Schema, items: Schema, value: list[Any]) -> bool:
    begin = len(schema.keywords.get("prefixItems", ()))
    return all(holds(items, part) for part in value[begin:])


def _contains(schema: Schema, part: Schema, value: list[Any]) -> bool:
    words = schema.keywords
    count = sum(holds(part, item) for item in value)
    return bool(words.get("minContains", 1) <= count <= words.get("maxContains", count))


def _unique(schema: Schema, given: bool, value: list[Any]) -> bool:
    return not any(same(a, b) for at, a in enumerate(value) for b in value[:at])


def _patterns(schema: Schema, given: dict[str, Schema], value: dict[str, Any]) -> bool:
    return all(
        holds(part, value[name])
        for pattern, part in given.items()
        for name in value
        if found(pattern, name)
    )


def _additional(schema: Schema, given: Schema, value: dict[str, Any]) -> bool:
    words = schema.keywords
    return all(
        holds(given, part)
        for name, part in value.items()
        if name not in words.get("properties", ())
        and not any(found(pattern, name) for pattern in words.get("patternProperties", ()))
    )


_IS: Final[dict[str, Callable[[Any], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": is_integer,
    "number": is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
_ANY: Final[dict[str, Callable[[Schema, Any, Any], bool]]] = {
    "type": _type,
    "enum": lambda schema, given, value: any(same(option, value) for option in given),
    "const": lambda schema, given, value: same(given, value),
    "$ref": lambda schema, given, value: holds(given, value),
    "allOf": lambda schema, given, value: all(holds(part, value) for part in given),
    "anyOf": lambda schema, given, value: any(holds(part, value) for part in given),
    "oneOf": _one,
    "not": lambda schema, given, value: not holds(given, value),
    "if": _if,
}
_STRING: Final[dict[str, Callable[[Any, str], bool]]] = {
    "minLength": lambda given, text: len(text) >= given,
    "maxLength": lambda given, text: len(text) <= given,
    "pattern": found,
    "format": _format,
}
_NUMBER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "minimum": lambda given, value: value >= given,
    "maximum": lambda given, value: value <= given,
    "exclusiveMinimum": lambda given, value: value > given,
    "exclusiveMaximum": lambda given, value: value < given,
    "multipleOf": _multiple,
}
_ARRAY: Final[dict[str, Callable[[Schema, Any, list[Any]], bool]]] = {
    "prefixItems": lambda schema, given, value: all(map(holds, given, value)),
    "items": _items,
    "contains": _contains,
    "uniqueItems": _unique,
    "minItems": lambda schema, given, value: len(value) >= given,
    "maxItems": lambda schema, given, value: len(value) <= given,
}
_OBJECT: Final[dict[str, Callable[[Schema, Any, dict[str, Any]], bool]]] = {
    "properties": lambda schema, given, value: all(
        holds(part, value[name]) for name, part in given.items() if name in value
    ),
    "patternProperties": _patterns,
    "additionalProperties": _additional,
    "propertyNames": lambda schema, given, value: all(holds(given, name) for name in value),
    "required": lambda schema, given, value: all(name in value for name in given),
    "minProperties": lambda schema, given, value: len(value) >= given,
    "maxProperties": lambda schema, given, value: len(value) <= given,
    "dependentRequired": lambda schema, given, value: all(
        other in value for name, others in given.items() if name in value for other in others
    ),
    "dependentSchemas": lambda schema, given, value: all(
        holds(part, value) for name, part in given.items() if name in value
    ),
}
