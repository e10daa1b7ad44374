"""The shortest value of a schema, by its size and as a text."""

from __future__ import annotations

import json

import pytest

from ramet.runtime.grammar.closing.closer import Closer

TREE = {
    "type": "object",
    "properties": {
        "value": {"type": "integer"},
        "left": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    },
    "required": ["value", "left"],
}
DOUBLING = {
    "$defs": {
        f"d{n}": {"type": "array", "items": {"$ref": f"#/$defs/d{n + 1}"}, "minItems": 2}
        for n in range(40)
    }
}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "boolean"}, "true"),
        ({"type": ["object", "null"]}, "{}"),
        ({"enum": ["long", "s", None]}, '"s"'),
        ({"const": {"a": [1, None]}}, '{"a":[1,null]}'),
        ({"type": "string", "format": "date"}, '"0000-01-01"'),
        ({"type": "array", "items": {"type": "null"}, "minItems": 2}, "[null,null]"),
        ({"allOf": [{"type": "integer"}, {"minimum": 5}, {"multipleOf": 4}]}, "8"),
        ({"anyOf": [{"type": "boolean"}, {"type": "array"}]}, "[]"),
        (
            {"type": "object", "required": ["b", "a"], "properties": {"a": {}, "b": {}}},
            '{"a":0,"b":0}',
        ),
        (
            {"type": "object", "properties": {"p": {"type": "null"}}, "minProperties": 1},
            '{"p":null}',
        ),
        ({"type": "object", "required": ["z"], "additionalProperties": {"const": 7}}, '{"z":7}'),
        (TREE, '{"value":0,"left":null}'),
    ],
)
def test_the_shortest(schema, text):
    found = Closer(json.dumps(schema)).shortest
    assert found is not None
    assert len(found) <= len(text)
    if not str(text).startswith('"0'):
        assert found == text.encode()


def test_what_would_be_too_long_is_none():
    schema = {**DOUBLING, "$ref": "#/$defs/d0"}
    schema["$defs"]["d40"] = {"type": "null"}
    assert Closer(json.dumps(schema)).shortest is None
    small = Closer(json.dumps({**schema, "$ref": "#/$defs/d30"})).shortest
    assert small is not None
    assert small.count(b"null") == 1024
