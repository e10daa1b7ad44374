"""Schemas become alternatives, and what can't be followed exactly is said."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ramet.runtime.grammar.closing.expansion import MAX_BRANCHES, Expansion
from ramet.runtime.grammar.closing.least import Least
from ramet.runtime.grammar.closing.shapes import Goal
from ramet.runtime.grammar.json_schema.normal import normalise


def expanded(schema: Any) -> tuple[Goal, bool]:
    expansion = Expansion(normalise(json.dumps(schema)))
    Least(expansion)
    return expansion.root, expansion.sure


def test_combinators_are_multiplied_out():
    either = {"anyOf": [{"minLength": 1}, {"minLength": 2}]}
    root, sure = expanded({"type": "string", "allOf": [either, {"maxLength": 5}]})
    assert sure
    assert [(shape.low, shape.high) for shape in root.strings] == [(1, 5), (2, 5)]
    assert not root.objects
    assert not root.literals


def test_the_scalars_of_choices_are_one_set():
    root, sure = expanded({"anyOf": [{"const": n} for n in range(1000)] + [{"type": "null"}]})
    assert sure
    assert len(root.literals) == 1
    assert len(root.literals[0].texts) == 1001


def test_choices_keep_to_what_stands_beside_them():
    enum = ["a", "bb", 3, 30, None, [1]]
    root, _ = expanded({"enum": enum, "type": ["string", "integer"], "maxLength": 1, "maximum": 10})
    assert root.literals[0].texts == [b'"a"', b"3"]
    assert not root.arrays


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"type": "null"}},
        {"if": {}, "then": {}},
        {"uniqueItems": True},
        {"contains": {}},
        {"propertyNames": {"maxLength": 3}},
        {"dependentRequired": {"a": ["b"]}},
        {"pattern": r"^(?!a)b"},
        {"oneOf": [{"type": "string"}, {"minLength": 1}]},
        {"allOf": [{"anyOf": [{"title": "x", "minimum": n} for n in range(9)]} for _ in range(9)]},
        {"items": {"items": {"not": {}}}},
    ],
)
def test_what_is_not_followed_exactly_is_said(schema):
    root, sure = expanded(schema)
    assert not sure
    assert len(root.shapes()) <= 6 * MAX_BRANCHES


def test_a_recursive_schema_has_finitely_many_goals():
    expansion = Expansion(normalise('{"items": {"$ref": "#"}, "properties": {"a": {"$ref": "#"}}}'))
    Least(expansion)
    assert len(expansion._goals) <= 4
