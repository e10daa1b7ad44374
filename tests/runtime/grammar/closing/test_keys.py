"""Keys that are begun, or have to come."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ramet.runtime.grammar.closing.closer import Closer
from ramet.runtime.grammar.closing.keys import decoded

CLOSED = {"type": "object", "additionalProperties": False}


def closings(schema: Any, text: bytes) -> list[bytes]:
    walk = Closer(json.dumps(schema)).walk()
    walk.push(text)
    return list(walk.closings())


@pytest.mark.parametrize(
    ("properties", "required", "text", "rest"),
    [
        (["ab", "abc"], [], b'{"a', b'b":0}'),
        (["ab", "abc"], [], b'{"abc', b'":0}'),
        (["a", "b", "c"], ["b"], b'{"', b'b":0}'),
        (["a", "b", "c"], ["b"], b'{"a', b'":0,"b":0}'),
        (["a", "b", "c"], ["c"], b'{"a":1,', b'"c":0}'),
        (["a", "b"], [], b'{"a":1,', b'"b":0}'),
        (['"'], [], b'{"\\', b'"":0}'),
        (["é"], [], b'{"\\u00', b'e9":0}'),
    ],
)
def test_declared_keys_come_in_their_order(properties, required, text, rest):
    schema = {**CLOSED, "properties": {name: {} for name in properties}, "required": required}
    assert closings(schema, text)[0] == rest


def test_a_key_that_no_name_in_its_place_begins_with_closes_nothing():
    assert closings({**CLOSED, "properties": {"a": {}}}, b'{"x') == []
    assert closings({**CLOSED, "properties": {"a": {}, "b": {}}}, b'{"b":1,"a') == []


def test_other_keys_are_none_that_is_taken():
    schema = {"type": "object", "properties": {"a": {"const": "declared"}}}
    assert closings(schema, b'{"b":1,"')[0] == b'":0}'
    assert b'a":0}' not in closings(schema, b'{"b":1,"')
    assert closings(schema, b'{"":1,"')[0] == b'b":0}'


def test_names_that_are_only_required_come_among_others():
    schema = {"type": "object", "properties": {"a": {}}, "required": ["z"]}
    assert closings(schema, b'{"a":1,"q')[0] == b'":0,"z":0}'


def test_keys_are_read_as_json_has_them():
    assert decoded(b"a\\u0062\\n") == "ab\n"
    assert decoded("é".encode()) == "é"
