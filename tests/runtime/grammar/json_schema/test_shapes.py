"""Objects and arrays of every shape: counts, names, patterns, and what must not hold of them."""

from __future__ import annotations

from typing import Any

import pytest
from documents import Documents

from ramet.runtime.errors import GrammarError

DECLARED = {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "type": "object"}
ROWS: list[tuple[Any, str, str]] = [
    (
        {**DECLARED, "minProperties": 2},
        '{"a":1,"b":""} {"b":"","x":0}',
        '{} {"a":1} {"a":"","b":""}',
    ),
    ({**DECLARED, "maxProperties": 1}, '{} {"b":""} {"x":[]}', '{"a":1,"b":""} {"a":1,"x":1}'),
    (
        {**DECLARED, "required": ["z", "y"]},
        '{"z":1,"y":2} {"a":1,"y":2,"x":0,"z":1}',
        '{"z":1} {"y":2,"a":1,"z":1}',
    ),
    ({**DECLARED, "dependentRequired": {"a": ["b"]}}, '{"a":1,"b":""} {"b":""} {}', '{"a":1}'),
    (
        {**DECLARED, "dependentSchemas": {"a": {"required": ["c"]}}},
        '{"a":1,"c":0} {"b":""}',
        '{"a":1} {"a":1,"b":""}',
    ),
    (
        {"patternProperties": {"^n": {"type": "null"}, "x$": {"const": 1}}, "type": "object"},
        '{"na":null} {"ax":1} {"b":[]}',
        '{"na":1} {"ax":null} {"nx":null} {"nx":1} {"\\u006ea":1}',
    ),
    (
        {"patternProperties": {"^n": {}}, "additionalProperties": False, "type": "object"},
        '{} {"n":1,"nn":2}',
        '{"a":1} {"n":1,"a":2}',
    ),
    ({"propertyNames": {"maxLength": 2}, "type": "object"}, '{"ab":1} {}', '{"abc":1}'),
    ({**DECLARED, "propertyNames": {"const": "b"}}, '{"b":""} {}', '{"a":1} {"c":1}'),
    ({**DECLARED, "not": {"required": ["a"]}}, '{"b":""} {"x":1}', '{"a":1}'),
    (
        {"type": "object", "not": {"properties": {"a": {"const": 1}}}},
        '{"a":2}',
        '{} {"a":1} {"b":2}',
    ),
    (
        {"type": "object", "not": {"additionalProperties": {"const": 1}}},
        '{"a":2} {"b":1,"a":null}',
        '{} {"a":1}',
    ),
    ({"type": "object", "not": {"propertyNames": {"const": "a"}}}, '{"b":1}', '{} {"a":1}'),
    ({"type": "object", "not": {"const": {"a": 1}}}, '{} {"a":2} {"a":1,"b":1}', '{"a":1}'),
    (
        {
            "type": "object",
            "if": {"required": ["a"]},
            "then": {"required": ["b"]},
            "else": {"required": ["c"]},
        },
        '{"a":1,"b":1} {"c":1}',
        '{"a":1} {"b":1} {"a":1,"c":1}',
    ),
    (
        {"allOf": [DECLARED, {"properties": {"c": {}}}], "unevaluatedProperties": False},
        '{"a":1,"b":"","c":0} {}',
        '{"d":1}',
    ),
    ({"type": "array", "contains": {"const": 1}}, "[1] [0,1,0] [1,1]", "[] [0] [[1]]"),
    (
        {"type": "array", "contains": {"const": 1}, "minContains": 2, "maxContains": 2},
        "[1,1] [0,1,1]",
        "[1] [1,1,1]",
    ),
    ({"type": "array", "contains": {}, "minContains": 0}, "[] [1]", "{}"),
    ({"type": "array", "not": {"contains": {"const": 1}}}, "[] [0]", "[1] [0,1]"),
    ({"type": "array", "not": {"items": {"type": "null"}}}, "[1] [null,1]", "[] [null]"),
    ({"type": "array", "not": {"const": [1]}}, "[] [2] [1,1]", "[1]"),
    (
        {
            "prefixItems": [{"type": "null"}, {"const": 1}],
            "items": {"type": "string"},
            "type": "array",
        },
        '[] [null] [null,1] [null,1,"a"]',
        "[1] [null,2] [null,1,1]",
    ),
    (
        {"type": "array", "prefixItems": [{}], "unevaluatedItems": False},
        "[] [1]",
        "[1,2]",
    ),
    (
        {"type": "array", "items": {"enum": [1, 2, "a"]}, "uniqueItems": True, "minItems": 1},
        '[1] [2,"a",1]',
        "[] [1,1] [1,2,1] [3]",
    ),
    (
        {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True},
        "[true,false]",
        "[true,true]",
    ),
    ({"type": "array", "uniqueItems": True, "maxItems": 1}, "[[1]] []", "[1,1]"),
    (
        {
            "type": "array",
            "items": {"type": "integer", "minimum": 1, "maximum": 3},
            "uniqueItems": True,
            "maxItems": 2,
        },
        "[3,1] []",
        "[1,1] [1,2,3] [4]",
    ),
]


@pytest.mark.parametrize(("schema", "right", "wrong"), ROWS)
def test_shapes(schema: Any, right: str, wrong: str):
    grammar = Documents(schema)
    assert [text for text in right.split(" ") if not grammar.accept(text)] == []
    assert [text for text in wrong.split(" ") if grammar.accept(text)] == []


@pytest.mark.parametrize(
    "schema",
    [
        {"uniqueItems": True},
        {"type": "array", "not": {"uniqueItems": True}},
        {"unevaluatedProperties": False, "anyOf": [{"properties": {"a": {}}}, {}]},
        {"unevaluatedItems": False, "contains": {"const": 1}},
        {"patternProperties": {f"^{c}": {"const": c} for c in "abcdefghi"}},
        {"patternProperties": {r"(a)\1": {"type": "null"}}},
    ],
)
def test_what_has_no_exact_form_is_refused_and_left_to_the_document(schema: Any):
    with pytest.raises(GrammarError, match="can't be enforced"):
        Documents(schema)
    assert Documents(schema, strict=False).source.unenforced
