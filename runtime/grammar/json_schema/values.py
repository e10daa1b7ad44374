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
from ramet.runtime.grammar.json_schema.text import refuse

_ALWAYS: Final = Schema("", always=True)
SECONDS: Final = 1.0
"""Longest time that one pattern may take on one text."""


def is_number(value: Any) -> bool:
    """Whether a value is a number to JSON."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def is_integer(value: Any) -> bool:
    """Whether a value is a whole number, however it is written."""
    return is_number(value) and value == int(value)


def canonical(value: Any) -> Any:
    """Something hashable that is equal for values that are the same."""
    if isinstance(value, list):
        return ("array", tuple(map(canonical, value)))
    if isinstance(value, dict):
        return ("object", frozenset((key, canonical(part)) for key, part in value.items()))
    return (type(value) if not is_number(value) else "number", value)


def same(left: Any, right: Any) -> bool:
    """JSON's equality: by value for numbers, and true is no 1."""
    return bool(canonical(left) == canonical(right))


def finds(pattern: str, text: str) -> bool:
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
    """A keyword whose meaning here isn't known."""

    def __init__(self, schema: Schema, word: str) -> None:
        super().__init__(word)
        self.schema, self.word = schema, word


class Judge:
    """Judges values, each by each schema once; they must stay alive as long as it does."""

    def __init__(self) -> None:
        self._listed: dict[int, set[Any]] = {}
        self._known: dict[tuple[int, int], bool] = {}
        self._open: set[tuple[int, int]] = set()

    def holds(self, schema: Schema, value: Any) -> bool:
        """Whether a value satisfies a schema, known formats included.

        Raises CannotTell, and GrammarError for a schema that refers to itself without end.
        """
        if schema.always is not None:
            return schema.always
        key = id(schema), id(value)
        if key in self._known:
            return self._known[key]
        if key in self._open:
            refuse(schema.pointer, "refers to itself without end")
        self._open.add(key)
        found = all(self.word(schema, word, value) for word in schema.keywords)
        self._open.discard(key)
        self._known[key] = found
        return found

    def lists(self, schema: Schema, value: Any) -> bool:
        """Whether a value is one of a schema's `enum`."""
        if id(schema) not in self._listed:
            self._listed[id(schema)] = set(map(canonical, schema.keywords["enum"]))
        return canonical(value) in self._listed[id(schema)]

    def word(self, schema: Schema, word: str, value: Any) -> bool:
        """Whether a value satisfies one keyword of a schema."""
        given = schema.keywords[word]
        if word in _ANY:
            return _ANY[word](self, schema, given, value)
        if isinstance(value, str) and word in _STRING:
            return _STRING[word](given, value)
        if is_number(value) and word in _NUMBER:
            return _NUMBER[word](given, value)
        if isinstance(value, list) and word in _ARRAY:
            return _ARRAY[word](self, schema, given, value)
        if isinstance(value, dict) and word in _OBJECT:
            return _OBJECT[word](self, schema, given, value)
        if word in ("$dynamicRef", "$recursiveRef"):
            raise CannotTell(schema, word)
        return True

    def seen(self, schema: Schema, value: Any, skip: str = "") -> set[Any]:
        """The names, or the indices, that a schema which holds has looked at."""
        words = schema.keywords
        every = set(value) if isinstance(value, dict) else set(range(len(value)))
        found: set[Any] = set()
        if isinstance(value, dict):
            found |= every & set(words.get("properties", ()))
            found |= {n for p in words.get("patternProperties", ()) for n in value if finds(p, n)}
            rests: tuple[str, ...] = ("additionalProperties", "unevaluatedProperties")
        else:
            found |= every & set(range(len(words.get("prefixItems", ()))))
            rests = ("items", "unevaluatedItems")
            if "contains" in words:
                found |= {i for i in every if self.holds(words["contains"], value[i])}
        if any(word in words for word in rests if word != skip):
            return every
        inner = [*words.get("allOf", ()), *words.get("anyOf", ()), *words.get("oneOf", ())]
        inner += [words[word] for word in ("$ref",) if word in words]
        if "if" in words:
            inner.append(words["if"])
            inner.append(words.get("then" if self.holds(words["if"], value) else "else", _ALWAYS))
        if isinstance(value, dict):
            inner += [s for n, s in words.get("dependentSchemas", {}).items() if n in value]
        for part in inner:
            if self.holds(part, value):
                found |= self.seen(part, value)
        return found


def _type(judge: Judge, schema: Schema, names: tuple[str, ...], value: Any) -> bool:
    return any(_IS[name](value) for name in names)


def _one(judge: Judge, schema: Schema, options: list[Schema], value: Any) -> bool:
    return sum(judge.holds(option, value) for option in options) == 1


def _if(judge: Judge, schema: Schema, condition: Schema, value: Any) -> bool:
    branch = schema.keywords.get("then" if judge.holds(condition, value) else "else")
    return branch is None or judge.holds(branch, value)


def _format(name: str, text: str) -> bool:
    return name not in FORMATS or finds(rf"\A(?:{FORMATS[name]})\Z", text)


def _multiple(step: Any, value: Any) -> bool:
    return (Fraction(value) / Fraction(step)).denominator == 1


def _items(judge: Judge, schema: Schema, items: Schema, value: list[Any]) -> bool:
    begin = len(schema.keywords.get("prefixItems", ()))
    return all(judge.holds(items, part) for part in value[begin:])


def _contains(judge: Judge, schema: Schema, part: Schema, value: list[Any]) -> bool:
    words = schema.keywords
    count = sum(judge.holds(part, item) for item in value)
    return bool(words.get("minContains", 1) <= count <= words.get("maxContains", count))


def _unique(judge: Judge, schema: Schema, given: bool, value: list[Any]) -> bool:
    return len(set(map(canonical, value))) == len(value)


def _patterns(
    judge: Judge, schema: Schema, given: dict[str, Schema], value: dict[str, Any]
) -> bool:
    return all(
        judge.holds(part, value[name])
        for pattern, part in given.items()
        for name in value
        if finds(pattern, name)
    )


def _additional(judge: Judge, schema: Schema, given: Schema, value: dict[str, Any]) -> bool:
    words = schema.keywords
    return all(
        judge.holds(given, part)
        for name, part in value.items()
        if name not in words.get("properties", ())
        and not any(finds(pattern, name) for pattern in words.get("patternProperties", ()))
    )


def _unseen(judge: Judge, schema: Schema, given: Schema, value: Any) -> bool:
    is_object = isinstance(value, dict)
    seen = judge.seen(schema, value, "unevaluatedProperties" if is_object else "unevaluatedItems")
    names = value if is_object else range(len(value))
    return all(judge.holds(given, value[name]) for name in names if name not in seen)


_IS: Final[dict[str, Callable[[Any], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": is_integer,
    "number": is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
_ANY: Final[dict[str, Callable[[Judge, Schema, Any, Any], bool]]] = {
    "type": _type,
    "enum": lambda judge, schema, given, value: judge.lists(schema, value),
    "const": lambda judge, schema, given, value: same(given, value),
    "$ref": lambda judge, schema, given, value: judge.holds(given, value),
    "allOf": lambda judge, schema, given, value: all(judge.holds(part, value) for part in given),
    "anyOf": lambda judge, schema, given, value: any(judge.holds(part, value) for part in given),
    "oneOf": _one,
    "not": lambda judge, schema, given, value: not judge.holds(given, value),
    "if": _if,
}
_STRING: Final[dict[str, Callable[[Any, str], bool]]] = {
    "minLength": lambda given, text: len(text) >= given,
    "maxLength": lambda given, text: len(text) <= given,
    "pattern": finds,
    "format": _format,
}
_NUMBER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "minimum": lambda given, value: value >= given,
    "maximum": lambda given, value: value <= given,
    "exclusiveMinimum": lambda given, value: value > given,
    "exclusiveMaximum": lambda given, value: value < given,
    "multipleOf": _multiple,
}
_ARRAY: Final[dict[str, Callable[[Judge, Schema, Any, list[Any]], bool]]] = {
    "prefixItems": lambda judge, schema, given, value: all(map(judge.holds, given, value)),
    "items": _items,
    "contains": _contains,
    "uniqueItems": _unique,
    "unevaluatedItems": _unseen,
    "minItems": lambda judge, schema, given, value: len(value) >= given,
    "maxItems": lambda judge, schema, given, value: len(value) <= given,
}
_OBJECT: Final[dict[str, Callable[[Judge, Schema, Any, dict[str, Any]], bool]]] = {
    "properties": lambda judge, schema, given, value: all(
        judge.holds(part, value[name]) for name, part in given.items() if name in value
    ),
    "patternProperties": _patterns,
    "additionalProperties": _additional,
    "unevaluatedProperties": _unseen,
    "propertyNames": lambda judge, schema, given, value: all(
        judge.holds(given, name) for name in value
    ),
    "required": lambda judge, schema, given, value: all(name in value for name in given),
    "minProperties": lambda judge, schema, given, value: len(value) >= given,
    "maxProperties": lambda judge, schema, given, value: len(value) <= given,
    "dependentRequired": lambda judge, schema, given, value: all(
        other in value for name, others in given.items() if name in value for other in others
    ),
    "dependentSchemas": lambda judge, schema, given, value: all(
        judge.holds(part, value) for name, part in given.items() if name in value
    ),
}
