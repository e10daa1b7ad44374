"""Finished documents: everything they violate, with places, and never for long."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.json_schema.checking import MAX_MESSAGES, check_document


def found(schema: Any, document: str) -> list[str]:
    return check_document(json.dumps(schema), document)


def test_places_are_the_innermost():
    schema = {
        "properties": {"a": {"items": {"$ref": "#/$defs/n"}}, "b": False},
        "required": ["c"],
        "patternProperties": {"^x": {"type": "null"}},
        "additionalProperties": {"maximum": 1},
        "$defs": {"n": {"type": "integer"}},
    }
    assert found(schema, '{"a":[1,"s"],"b":1,"x":2,"y":3}') == [
        "at /a/1: 's' violates /$defs/n/type",
        "at /b: nothing may be here (/properties/b)",
        "at the root: {'a': [1, 's'], 'b': 1, 'x': 2, 'y': 3} violates /required",
        "at /x: 2 violates /patternProperties/^x/type",
        "at /y: 3 violates /additionalProperties/maximum",
    ]
    assert found(schema, '{"c":1}') == []


@pytest.mark.parametrize(
    ("schema", "document", "keyword"),
    [
        ({"uniqueItems": True}, '["a",1,"a"]', "/uniqueItems"),
        ({"uniqueItems": True}, "[1,1.0]", "/uniqueItems"),
        ({"pattern": r"^(a+)\1$"}, '"aaa"', "/pattern"),
        ({"multipleOf": 0.1}, "0.25", "/multipleOf"),
        ({"contains": {"const": 1}, "maxContains": 1}, "[1,1]", "/contains"),
        ({"unevaluatedProperties": False, "anyOf": [{"properties": {"a": {}}}]}, '{"b":1}', "/une"),
        ({"unevaluatedItems": False, "contains": {"const": 1}}, "[1,2]", "/unevaluatedItems"),
        ({"format": "date"}, '"2020-02-30"', "/format"),
        ({"oneOf": [{}, {}]}, "1", "/oneOf"),
        ({"if": {"const": 1}, "then": False}, "1", "/if"),
    ],
)
def test_what_no_grammar_says(schema: Any, document: str, keyword: str):
    (message,) = found(schema, document)
    assert f"violates {keyword}" in message


def test_texts_that_are_no_documents():
    assert found({}, '{"a":1,"a":2}') == ["the key 'a' stands twice in one object"]
    assert found({}, "[1")[0].startswith("it isn't JSON")
    assert "nested too deep" in found({}, "[" * 5000 + "]" * 5000)[0]


def test_equal_numbers_and_units_are_exact():
    assert found({"multipleOf": 0.01}, "19.99") == []
    assert found({"const": 1}, "1.0") == []
    assert found({"const": True}, "1") != []


def test_it_ends_soon():
    begin = time.monotonic()
    node = {"anyOf": [{"items": {"$ref": "#"}}, {"prefixItems": [{"$ref": "#"}]}], "minItems": 1}
    assert found(node, "[" * 40 + "1" + "]" * 40) == []
    with pytest.raises(GrammarError, match="takes more than 1 s"):
        found({"pattern": "^(a|aa)+$"}, json.dumps("a" * 60 + "!"))
    with pytest.raises(GrammarError, match="refers to itself without end"):
        found({"anyOf": [{"$ref": "#"}]}, "1")
    assert len(found({"items": {"type": "null"}}, json.dumps([1] * 5000))) == MAX_MESSAGES
    assert time.monotonic() - begin < 15
