"""Random schemas and documents: no decision differs from `jsonschema`'s.

A document is asked for in every order of its keys: a valid one is accepted in one of them at least,
an invalid one in none. Numbers are written without a point where they are whole.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jsonschema
import pytest
from documents import Documents

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.json_schema.checking import check_document
from ramet.runtime.grammar.json_schema.normal import TYPES

NAMES = ("a", "b", "c", "ab")
SCALARS = (None, True, False, 0, 1, 2, -1, 0.5, 1.5, 10, "", "a", "b", "ab", "a b", "1", "é")
PATTERNS = ("^a", "b$", "[0-9]", "^ab?$", "a|1", "^(?!a)", ".")

scalars = st.sampled_from(SCALARS)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=6,
)
small = st.integers(0, 2)
names = st.lists(st.sampled_from(NAMES), max_size=2, unique=True)
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, unique=True),
    "enum": st.lists(values, max_size=3),
    "const": values,
    **dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        st.sampled_from([0, 1, -1, 0.5, 2, 10]),
    ),
    "multipleOf": st.sampled_from([1, 2, 0.5, 5]),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), small),
    **dict.fromkeys(("minProperties", "maxProperties"), small),
    "pattern": st.sampled_from(PATTERNS),
    "uniqueItems": st.just(True),
    "required": names,
    "dependentRequired": st.dictionaries(st.sampled_from(NAMES), names, max_size=1),
}


def deeper(schemas: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(schemas, min_size=1, max_size=3)
    named = st.dictionaries(st.sampled_from(NAMES), schemas, max_size=3)
    words = {
        **PLAIN,
        **dict.fromkeys(("prefixItems", "allOf", "anyOf", "oneOf"), some),
        **dict.fromkeys(("properties", "dependentSchemas"), named),
        "patternProperties": st.dictionaries(st.sampled_from(PATTERNS), schemas, max_size=2),
        **dict.fromkeys(
            (
                "additionalProperties",
                "propertyNames",
                "items",
                "contains",
                "not",
                "if",
                "then",
                "else",
                "unevaluatedProperties",
                "unevaluatedItems",
            ),
            schemas,
        ),
        **dict.fromkeys(("minContains", "maxContains"), small),
        "$ref": st.just("#/$defs/x"),
    }
    return of(words)


def of(words: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    chosen = st.lists(st.sampled_from(sorted(words)), max_size=4, unique=True)
    return chosen.flatmap(lambda found: st.fixed_dictionaries({w: words[w] for w in found}))


def built(schema: Any) -> tuple[Documents | None, str]:
    try:
        return Documents(schema), ""
    except GrammarError as error:
        return None, str(error)


schemas = st.recursive(of(PLAIN) | st.booleans(), deeper, max_leaves=8)


@hypothesis.settings(
    max_examples=300, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
)
@hypothesis.given(schemas, of(PLAIN), st.lists(values, min_size=5, max_size=15))
def test_no_decision_is_wrong(schema: Any, shared: Any, found: list[Any]):
    if isinstance(schema, dict):
        schema = {**schema, "$defs": {"x": shared}}
    validator = jsonschema.Draft202012Validator(schema)
    documents = [*found, *SCALARS]
    valid = [validator.is_valid(value) for value in documents]
    text = json.dumps(schema)
    for value, expected in zip(documents, valid, strict=True):
        assert (not check_document(text, json.dumps(value))) == expected, value
    grammar, error = built(schema)
    if grammar is None:
        assert "can't be enforced" in error or not any(valid)
        return
    for value, expected in zip(documents, valid, strict=True):
        assert grammar.accept_value(value) == expected, value


SHARED_NAMES = [
    {"type": "object", "properties": {f"k{i}": {"const": i}}, "required": [f"k{i}"]}
    for i in range(40)
]


def doubling(word: str, count: int = 40) -> dict[str, Any]:
    found: dict[str, Any] = {
        f"d{i}": {word: [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(count)
    }
    return {"$ref": "#/$defs/d0", "enum": ["a", 3], "$defs": {**found, f"d{count}": {}}}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"oneOf": SHARED_NAMES}, "can't be enforced"),
        ({"dependentRequired": {f"a{i}": [f"b{i}"] for i in range(16)}}, "can't be enforced"),
        ({"type": "object", "minProperties": 10**6}, "can't be enforced"),
        ({"contains": {"const": 1}, "maxItems": 10**6}, "can't be enforced"),
        ({"prefixItems": [{"type": "null"}] * 10_000}, "nested too deep"),
        ({"pattern": "(a{1000}){1000}"}, "can't be enforced"),
        ({"pattern": "(" * 500 + ")" * 500}, "nested too deep|too many|missing"),
        ({"pattern": "("}, "unterminated"),
        ({"patternProperties": {f"^{c}": {"const": c} for c in "abcdefghijk"}}, "7 patterns"),
        (doubling("allOf"), ""),
        (doubling("anyOf"), ""),
        (doubling("oneOf"), "no document"),
        ({"enum": ["a" * 50 + "!"], "pattern": "^(a+)+$"}, "no document|takes more"),
        ({"properties": {f"p{i}": {"type": "string"} for i in range(4000)}}, ""),
        ({"enum": [f"value {i}" for i in range(8000)]}, ""),
        ({"properties": {f"p{i}": {"description": "x" * 90} for i in range(8000)}}, ""),
    ],
)
def test_hostile_schemas_end_soon(schema: Any, message: str):
    begin = time.monotonic()
    grammar, error = built(schema)
    assert (grammar is None) == bool(message)
    assert re.search(message, error)
    assert time.monotonic() - begin < 20


def test_reserved_words_of_the_engine_say_nothing():
    words = {"lenient": True, "whitespace_flexible": True, "coerce_one_of": True}
    schema = {"x-guidance": words, "type": "object", "properties": {"x-guidance": {"const": 1}}}
    grammar = Documents(schema)
    assert grammar.accept('{"x-guidance":1}')
    assert not grammar.accept('{"x-guidance": 1}')
    assert not grammar.accept('{"x-guidance":2}')
