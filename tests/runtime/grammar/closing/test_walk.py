"""A walk proposes what closes a document, and never more bytes than it said."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ramet.runtime.grammar.closing.closer import Closer
from ramet.runtime.grammar.closing.walk import Walk


def walked(schema: Any, text: bytes) -> Walk:
    walk = Closer(json.dumps(schema)).walk()
    for byte in text:
        walk.push(bytes([byte]))
    return walk


def first(schema: Any, text: bytes) -> bytes | None:
    return next(walked(schema, text).closings(), None)


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "mood": {"enum": ["green", "grey", "red"]},
        "age": {"type": "integer", "minimum": 18},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        (b"", b'{"name":"aa","age":18}'),
        (b"{", b'"name":"aa","age":18}'),
        (b'{"', b'name":"aa","age":18}'),
        (b'{"na', b'me":"aa","age":18}'),
        (b'{"name"', b':"aa","age":18}'),
        (b'{"name":', b'"aa","age":18}'),
        (b'{"name":"b', b'a","age":18}'),
        (b'{"name":"bob"', b',"age":18}'),
        (b'{"name":"bob",', b'"age":18}'),
        (b'{"name":"bob","m', b'ood":"red","age":18}'),
        (b'{"name":"bob","mood":"gre', b'y","age":18}'),
        (b'{"name":"bob","mood":"gree', b'n","age":18}'),
        (b'{"name":"bob","age":2', b"0}"),
        (b'{"name":"bob","age":20', b"}"),
        (b'{"name":"bob","age":20}', b""),
    ],
)
def test_an_object_is_closed_from_anywhere(text, rest):
    assert first(PERSON, text) == rest
    bound = walked(PERSON, text).bound
    assert bound is not None
    assert len(rest) <= bound


EITHER = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"kind": {"const": "a"}, "x": {"type": "array", "minItems": 9}},
            "required": ["kind", "x"],
        },
        {
            "type": "object",
            "properties": {"kind": {"const": "b"}, "y": {"type": "null"}},
            "required": ["kind", "y"],
        },
    ]
}


def test_what_was_written_decides_between_alternatives():
    assert first(EITHER, b"") == b'{"kind":"b","y":null}'
    assert first(EITHER, b'{"kind":"') == b'b","y":null}'
    assert first(EITHER, b'{"kind":"a"') == b',"x":[0,0,0,0,0,0,0,0,0]}'
    assert first({"items": EITHER}, b'[{"kind":"a"') == b',"x":[0,0,0,0,0,0,0,0,0]}]'


def test_an_inner_value_decides_what_the_outer_one_needs():
    inner = {"properties": {"t": {"const": 1}}, "required": ["t"], "type": "object"}
    other = {"properties": {"t": {"const": 2}}, "required": ["t"], "type": "object"}
    schema = {
        "anyOf": [
            {"properties": {"in": inner, "z": {"const": "long"}}, "required": ["in", "z"]},
            {"properties": {"in": other}, "required": ["in"]},
        ],
        "type": "object",
    }
    assert first(schema, b'{"in":{"t":1') == b'},"z":"long"}'
    assert first(schema, b'{"in":{"t":2') == b"}}"


LISTS = {
    "anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}, "minItems": 1}],
}


@pytest.mark.parametrize(
    ("schema", "text", "rest"),
    [
        ({}, b"tr", b"ue"),
        ({}, b"[1,", b"0]"),
        ({}, b'{"a":[{"b', b'":0}]}'),
        ({"type": "null"}, b"n", b"ull"),
        (
            {"additionalProperties": False, "patternProperties": {"^x_": {"const": 7}}},
            b'{"',
            b'x_":7}',
        ),
        ({"prefixItems": [{"const": 1}, {"const": 2}], "minItems": 3}, b"[1", b",2,0]"),
        ({"type": "object", "minProperties": 2}, b"{", b'"":0,"a":0}'),
        ({"properties": {'é"': {}}, "required": ['é"']}, b'{"\xc3', b'\xa9\\"":0}'),
        ({"enum": ["ü"]}, b'"\\u00', b'fc"'),
        (LISTS, b"[[", b"null]]"),
    ],
)
def test_closings_of_all_kinds(schema, text, rest):
    assert first(schema, text) == rest


def test_copies_go_their_own_ways():
    walk = walked(PERSON, b'{"name":"b')
    twin = walk.copy()
    twin.push(b'ob","age":44}')
    assert next(walk.closings()) == b'a","age":18}'
    assert twin.finished
    assert not walk.finished
    assert walk.in_string


def test_what_is_no_json_is_lost():
    for text in (b"}", b'{"a"}', b"[1}x", b"{,"):
        walk = walked({}, text)
        assert walk.lost or walk.bound is None or list(walk.closings())
    assert walked({}, b"}").lost
    assert walked({}, b"}").bound is None
    assert list(walked({}, b"}").closings()) == []


def test_what_the_schema_does_not_allow_has_no_bound():
    assert walked({"type": "integer"}, b"[").bound is None
    assert walked(PERSON, b'{"name":"bob","mood":"x').bound is None
    assert walked(PERSON, b'{"name":"bob","other').bound is None


def test_a_one_of_whose_branches_overlap_has_no_bound():
    apart = {"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}
    assert walked(apart, b"").bound is not None
    assert walked({"oneOf": [{"const": None}, {"type": "null"}]}, b"").bound is None
    told = [{"type": "object", "properties": {"k": {"const": n}}, "required": ["k"]} for n in "ab"]
    assert walked({"oneOf": told}, b"").bound is not None
