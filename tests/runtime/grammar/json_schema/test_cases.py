"""Cases from public bug reports, by their numbers, and more of each kind."""

from __future__ import annotations

import json
import re
import time
from decimal import Decimal
from typing import Any

import pytest
from documents import Documents

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.json_schema.checking import check_document


def check(schema: Any, right: list[str], wrong: list[str]) -> None:
    documents = Documents(schema)
    assert [text for text in right if not documents.accept(text)] == []
    assert [text for text in wrong if documents.accept(text)] == []


def test_b40_long_counts():
    begin = time.monotonic()
    check(
        {"type": "string", "maxLength": 15_000}, ['""', f'"{"a" * 15_000}"'], [f'"{"a" * 15_001}"']
    )
    check(
        {"type": "string", "minLength": 3, "maxLength": 15_000},
        ['"abc"', f'"{"é" * 15_000}"'],
        ['"ab"', f'"{"a" * 15_001}"'],
    )
    check({"pattern": "^[0-9a-f]{3,15000}$", "type": "string"}, ['"abc"'], ['"ab"', '"xyz"'])
    check({"type": "array", "minItems": 1000, "maxItems": 2000}, [f"[{'1,' * 999}1]"], ["[1]"])
    assert time.monotonic() - begin < 10


def test_b68_control_characters():
    check(
        {"type": "object", "properties": {"text": {"type": "string"}}},
        ['{"text":"\\t"}', '{"text":"\\u0000"}', '{"text":"\\ud83d\\ude00"}', '{"text":"\x7f"}'],
        [
            '{"text":"\t"}',
            '{"text":"\n"}',
            '{"text":"\\q"}',
            '{"text":"\\u12"}',
            '{"text":"\x00"}',
            '{"text":"\\ud83d"}',
            '{"text":"\\ude00"}',
            '{"text":"a"',
            "{'text':'a'}",
        ],
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"colour": {"enum": []}}, "required": ["colour"], "type": "object"},
        {"not": {}},
        False,
        {"allOf": [{"type": "string"}, {"type": "null"}]},
        {"const": 1, "enum": [2]},
        {"type": "string", "minLength": 3, "pattern": "^a?$"},
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "array", "minItems": 2, "maxItems": 1},
        {"type": "array", "minItems": 1, "items": False},
        {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "minItems": 3},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    ],
)
def test_b69_what_nothing_satisfies_is_refused(schema: Any):
    with pytest.raises(GrammarError, match=r"json_schema: .*no document can satisfy"):
        Documents(schema)


def test_b69_an_optional_impossible_property_is_never_written():
    colour: Any = {"type": "object", "properties": {"colour": {"enum": []}, "a": {}}}
    check(colour, ["{}", '{"a":1}'], ['{"colour":', '{"colour":null}', '{"colour":1,"a":1}'])
    native = Documents(colour)
    assert not native.accept('{"colour"')


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"type": "object"}, ["{}", '{"a":{"b":[]}}'], ["[]", "1", "{"]),
        ({}, ["{}", "[]", "null", "-1.5e3", '"a"', "[[],{}]"], ["", "nul", "[1,]", '{"a"}', "{,}"]),
        (True, ["true", '{"a":[1,{"b":null}]}'], ["True"]),
        ({"type": "array"}, ["[]", "[1,[2]]"], ["{}", "[1 ]"]),
    ],
)
def test_b70_the_simplest_schemas(schema: Any, right: list[str], wrong: list[str]):
    check(schema, right, wrong)


def test_b70_a_run_of_digits_ends():
    documents = Documents({"type": "number"})
    assert documents.accept("1" * 40 + "." + "1" * 40 + "e-999")
    assert not documents.accept("1" * 41)
    assert not documents.accept("0." + "1" * 41)
    assert not documents.accept("1e1111")


@pytest.mark.parametrize(
    ("schema", "texts"),
    [
        ({"type": "number", "exclusiveMinimum": 0}, "0.25 3 0 0.0 -1 -0 0.001 1e5 0e5"),
        ({"type": "number", "minimum": 2, "maximum": 9}, "2 8.999 9 9.3 1.9 9.0 9.001 2.0 10 -5"),
        ({"type": "number", "minimum": 4}, "3 4 30 3.99 4.0 -4"),
        ({"type": "integer", "minimum": -40}, "-41 -40 -7 0 12 -100 -39"),
        ({"type": "integer", "minimum": 7, "maximum": 1003}, "6 7 99 100 999 1003 1004 10000 70"),
        ({"multipleOf": 4, "type": "integer"}, "8 6 0 -4 100 102 44 42"),
        ({"type": "number", "multipleOf": 0.01}, "0.25 0.255 3 -7.1 0.010 0.001"),
        ({"type": "number", "multipleOf": 2.5}, "2.5 5 7.50 7.6 0 -10 1"),
        ({"type": "number", "minimum": -1.5, "exclusiveMaximum": 0}, "-1.5 -1.50 -1.51 -0.1 0 -0"),
        (
            {"type": "number", "minimum": 0.1, "maximum": 0.25},
            "0.1 0.09 0.10 0.25 0.251 0.2499 0.3",
        ),
    ],
)
def test_b71_bounds(schema: Any, texts: str):
    documents = Documents(schema)
    for text in texts.split():
        value = Decimal(text)
        expected = (
            value >= Decimal(str(schema.get("minimum", "-1e9")))
            and value <= Decimal(str(schema.get("maximum", "1e9")))
            and value > Decimal(str(schema.get("exclusiveMinimum", "-1e9")))
            and value < Decimal(str(schema.get("exclusiveMaximum", "1e9")))
            and value % Decimal(str(schema.get("multipleOf", "1e-9"))) == 0
        )
        assert documents.accept(text) == expected, text


def test_b71_multiples_between_bounds_are_listed():
    schema = {"type": "integer", "minimum": -7, "exclusiveMaximum": 21, "multipleOf": 7}
    check(schema, ["-7", "0", "14"], ["21", "-14", "6", "7.0"])
    check({"type": "integer", "not": schema}, ["21", "6", "-14"], ["0", "14", "-7"])


def test_b71_what_cannot_be_enforced_is_refused_or_named():
    with pytest.raises(GrammarError, match=r"at /properties/a/multipleOf: .*can't be enforced"):
        Documents({"properties": {"a": {"multipleOf": 7}}})
    left = Documents({"properties": {"a": {"multipleOf": 7}}}, strict=False)
    assert left.source.unenforced == ("/properties/a: multipleOf",)
    assert check_document('{"properties":{"a":{"multipleOf":7}}}', '{"a":8}') == [
        "at /a: 8 violates /properties/a/multipleOf"
    ]


@pytest.mark.parametrize(
    "pattern",
    [
        "[0-9]",
        r"\S",
        "^a",
        "b$",
        "^ab$",
        "^a|b$",
        "^(a|x).*y$",
        r"\bab\b",
        "(?!a)b",
        "",
        "^$",
        "^(?!ab)",
        "c(?=a)",
        "(?<=a)b",
        "[^a-y]",
        "a.b|1",
        r"^\w+$",
        r"\d\D",
    ],
)
def test_b75_patterns_are_searched(pattern: str):
    documents = Documents({"type": "string", "pattern": pattern})
    for text in ["x1y", "xy", "abc", "cab", "ab", "", "ab\n", "a b", "é", "\n", 'a"b', "ab\n\n"]:
        expected = re.search(pattern, text) is not None
        for ascii_only in (True, False):
            assert documents.accept(json.dumps(text, ensure_ascii=ascii_only)) == expected, text


def test_b76_a_declared_name_never_escapes_its_schema():
    schema = {"properties": {"p": {"const": "up"}, "q": {"const": "down"}}, "required": ["q"]}
    wrong = ['{"q":"down","p":"sideways"}', '{"q":"down","\\u0070":"sideways"}']
    wrong += ['{"p":"sideways","q":"down"}', '{"x":1,"q":"down"}', '{"q":"down","p":"up"}']
    check(
        {"type": "object", **schema},
        ['{"q":"down"}', '{"p":"up","q":"down"}', '{"q":"down","x":1,"y":[]}'],
        wrong,
    )


def test_b78_overlapping_branches_of_one_of():
    schema = {"oneOf": [{"pattern": "^[a-z]{2,6}$"}, {"pattern": "^[a-z]{5,9}$"}]}
    check({"type": "string", **schema}, ['"abc"', '"abcdefg"'], ['"abcde"', '"abcdef"', '"a"'])
    tagged = [
        {"properties": {"k": {"const": k}, "v": {"type": t}}, "required": ["k", "v"]}
        for k, t in (("n", "number"), ("s", "string"))
    ]
    check(
        {"type": "object", "oneOf": tagged},
        ['{"k":"n","v":1}', '{"k":"s","v":"a"}'],
        ['{"k":"n","v":"a"}', '{"k":"x","v":1}', "{}"],
    )
    check({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, ["1", "2.5", '"a"'], ["3", "1.5"])


@pytest.mark.parametrize("word", ["oneOf", "allOf", "anyOf"])
def test_b79_siblings_hold_as_well(word: str):
    branches = [
        {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
        {"properties": {"b": {"type": "string"}}, "required": ["b"]},
    ]
    schema = {
        "type": "object",
        "properties": {"k": {"const": 1}},
        "required": ["k"],
        word: branches,
    }
    documents = Documents(schema)
    one, both = '{"k":1,"a":1}', '{"k":1,"a":1,"b":"x"}'
    assert documents.accept(one) == (word != "allOf")
    assert documents.accept(both) == (word != "oneOf")
    for text in ('{"a":1}', '{"k":2,"a":1}', '{"k":1}', '{"a":1,"b":"x"}', '{"k":1,"a":"x"}'):
        assert not documents.accept(text)


def test_b80_recursion_has_no_depth():
    node = {
        "type": "object",
        "properties": {"v": {"type": "integer"}, "kids": {"items": {"$ref": "#/$defs/n"}}},
        "required": ["v"],
        "additionalProperties": False,
    }
    text = '{"v":1}'
    for _ in range(12):
        text = f'{{"v":1,"kids":[{text},{{"v":2}}]}}'
    check({"$ref": "#/$defs/n", "$defs": {"n": node}}, [text], [text.replace('"v":2', '"w":2')])
    check({"properties": {"a": {"$ref": "#"}}, "type": "object"}, ['{"a":{"a":{}}}'], ['{"a":1}'])
    mutual = {
        "$ref": "#/$defs/a",
        "$defs": {
            "a": {"type": "array", "items": {"$ref": "#/$defs/b"}},
            "b": {"type": "object", "additionalProperties": {"$ref": "#/$defs/a"}},
        },
    }
    check(mutual, ["[]", '[{"x":[{"y":[]}]}]'], ["[[]]", '[{"x":{}}]'])


@pytest.mark.parametrize(
    "schema", [{"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"not": {"$ref": "#"}}]
)
def test_b80_a_schema_that_is_only_itself_is_refused(schema: Any):
    with pytest.raises(GrammarError, match="refers to itself without end"):
        Documents(schema)


@pytest.mark.parametrize(
    "reference", ["#/properties/l/anyOf/0", "#/$defs/a~1b", "#/$defs/t~0x", "#/$defs/p%25"]
)
def test_b82_references_into_positions_and_escapes(reference: str):
    schema = {
        "type": "object",
        "properties": {
            "l": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "r": {"$ref": reference},
        },
        "required": ["l", "r"],
        "$defs": {name: {"type": "string"} for name in ("a/b", "t~x", "p%")},
    }
    check(schema, ['{"l":null,"r":"a"}'], ['{"l":null,"r":null}', '{"l":"a"}'])


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"const": 17}, ["17"], ["17.5", "1", '"17"', "171"]),
        ({"const": 1.5}, ["1.5"], ["1", "1.50001"]),
        ({"const": False}, ["false"], ["False", "0", "true"]),
        ({"const": None}, ["null"], ["None", '""', "0"]),
        ({"const": {"a": [1]}}, ['{"a":[1]}'], ['{"a":[1,1]}', '{"a":[]}', "{}", '{"a":[true]}']),
        (
            {"enum": [True, "x", 3, None]},
            ["true", '"x"', "3", "null"],
            ["True", '"3"', "1", '"true"'],
        ),
        (
            {"enum": ['"', "\\", "a.b*", "é", "/"]},
            ['"\\""', '"\\\\"', '"a.b*"', '"é"', '"/"'],
            ['"axb"', '"""', '"e"', '"\\u00e9"', '"\\/"'],
        ),
        ({"enum": [0, 1], "not": {"const": 0}}, ["1"], ["0", "true"]),
        (
            {"type": "string", "not": {"enum": ["a", "é"]}},
            ['"b"', '""', '"aa"'],
            ['"a"', '"\\u0061"', '"é"', '"\\u00E9"'],
        ),
        ({"type": "integer", "enum": [1, "1", 2.5]}, ["1"], ['"1"', "2.5"]),
    ],
)
def test_b83_constants(schema: Any, right: list[str], wrong: list[str]):
    check(schema, right, wrong)


def test_b84_numbers():
    check(
        {"type": "number"},
        ["-0", "1e08", "1e+10", "0.5", "1E-3", "0e0", "-1.25"],
        ["3.e1", "0.E5", "02", "-", ".5", "1.", "+1", "1e", "--1", "0x1", "NaN", "Infinity"],
    )
    check({"type": "integer"}, ["0", "-7", "10"], ["1.0", "1e2", "1.5", "01"])


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"type": "array", "maxItems": 0}, ["[]"], ["[1]", "[[]]"]),
        ({"type": "array", "minItems": 3, "maxItems": 3}, ["[1,2,3]"], ["[1,2]", "[1,2,3,4]"]),
        ({"type": "array", "minItems": 2}, ["[1,2]", "[1,2,3]"], ["[]", "[1]"]),
        ({"type": "string", "minLength": 0, "maxLength": 0}, ['""'], ['"a"']),
        ({"type": "object", "maxProperties": 0}, ["{}"], ['{"a":1}']),
        ({"type": "array", "prefixItems": [{}, {}], "maxItems": 1}, ["[]", "[1]"], ["[1,2]"]),
    ],
)
def test_b85_nothing_and_exact_counts(schema: Any, right: list[str], wrong: list[str]):
    check(schema, right, wrong)
