"""What the front door promises: errors with places, whitespace, and what strict means."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest
from documents import Documents

from ramet.runtime.errors import GrammarError, InvalidArgument
from ramet.runtime.grammar.json_schema.builder import MAX_WHITESPACE
from ramet.runtime.grammar.json_schema.front import schema_source

PAIR = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": {"type": "integer"}}, "b": {"const": {"x": 1}}},
}


def test_compact_has_no_blanks():
    grammar = Documents(PAIR)
    assert grammar.accept('{"a":[1,2],"b":{"x":1}}')
    for text in ('{ "a":[1]}', '{"a": [1]}', '{"a":[1, 2]}', '{"b":{"x": 1}}', " {}", "{}\n"):
        assert not grammar.accept(text)


def test_flexible_has_them_between_tokens_only():
    grammar = Documents(PAIR, whitespace="flexible")
    value = {"a": [1, 2], "b": {"x": 1}}
    for indent in (None, 0, 4, "\t"):
        assert grammar.accept(json.dumps(value, indent=indent))
    assert grammar.accept('{"a"\r\n :[ ] }')
    assert grammar.accept("{" + " " * MAX_WHITESPACE + "}")
    for text in (
        " {}",
        "{} ",
        '{"a":[1 2]}',
        '{"a":[1.\n0]}',
        "{" + " " * (MAX_WHITESPACE + 1) + "}",
    ):
        assert not grammar.accept(text)


def test_whitespace_is_checked():
    with pytest.raises(
        InvalidArgument, match="whitespace='none': must be one of compact, flexible"
    ):
        schema_source("{}", whitespace="none")


def test_strict_names_what_it_refuses_and_lax_what_it_leaves():
    schema = {
        "type": "object",
        "properties": {
            "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            "odd": {"not": {"pattern": r"(a)\1"}},
            "seven": {"type": "integer", "multipleOf": 7},
        },
    }
    with pytest.raises(
        GrammarError, match=r"json_schema: at /properties/\w+(/not)?/\w+: \w+ can't"
    ):
        Documents(schema)
    grammar = Documents(schema, strict=False)
    assert sorted(grammar.source.unenforced) == [
        "/properties/odd/not: pattern",
        "/properties/seven: multipleOf",
        "/properties/tags: uniqueItems",
    ]
    assert grammar.accept('{"tags":["a","a"],"odd":"b","seven":8}')
    assert not grammar.accept('{"seven":"8"}')
    assert Documents(PAIR).source.unenforced == ()


def test_where_combinations_are_too_many_some_are_left():
    """Each of the conditions doubles or trebles what an object may be."""
    schema = {
        "type": "object",
        "allOf": [
            {
                "if": {"properties": {f"k{i}": {"const": "x"}}, "required": [f"k{i}"]},
                "then": {"required": [f"r{i}"]},
            }
            for i in range(10)
        ],
    }
    with pytest.raises(GrammarError, match="/if: if can't be enforced: its comb"):
        Documents(schema)
    left = Documents(schema, strict=False).source.unenforced
    assert left
    assert all(one.endswith(": if") for one in left)


def test_nested_choices_take_no_time():
    """Each doubles the one within it, unless it is left."""
    chain: dict[str, Any] = {
        f"a{i}": {"oneOf": [{"$ref": f"#/$defs/a{i + 1}"}, {"type": "string", "minLength": i}]}
        for i in range(25)
    }
    schema = {"$ref": "#/$defs/a0", "$defs": chain | {"a25": {"type": "integer"}}}
    began = time.thread_time()
    with pytest.raises(GrammarError, match="oneOf can't be enforced: its comb"):
        Documents(schema)
    left = Documents(schema, strict=False).source.unenforced
    assert time.thread_time() - began < 5
    assert left
    assert all(one.endswith(": oneOf") for one in left)


def test_what_a_small_schema_may_come_to_is_bounded():
    names = {
        f"a{i}": {
            "type": "object",
            "properties": {
                "x": {"$ref": f"#/$defs/a{i + 1}"},
                "y": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}, {"$ref": f"#/$defs/a{i * 7 % 25}"}]},
            },
        }
        for i in range(25)
    }
    schema = {"$ref": "#/$defs/a0", "$defs": names | {"a25": {"type": "integer"}}}
    began = time.thread_time()
    with pytest.raises(GrammarError, match="too complex: its combinations are too many"):
        schema_source(json.dumps(schema))
    assert time.thread_time() - began < 3


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"properties": {"a": {"pattern": "["}}}, r"at /properties/a/pattern: '\['"),
        ({"patternProperties": {"(": {"type": "null"}}}, r"at .*'\('"),
        ({"properties": {"a": {"$ref": "http://x/y"}}}, r"at /properties/a/\$ref: .*nothing is"),
        ({"items": {"type": "any"}}, r"at /items/type: 'any'"),
    ],
)
def test_errors_have_a_place(schema: Any, message: str):
    for strict in (True, False):
        with pytest.raises(GrammarError, match=message):
            Documents(schema, strict=strict)


def test_unknown_words_and_formats_are_annotations():
    schema = {"type": "string", "format": "colour", "x-order": 3, "nullable": True, "title": "T"}
    assert Documents(schema).accept('"any"')


def test_the_same_schema_has_the_same_grammar():
    text = json.dumps({"oneOf": [PAIR, {"required": ["c", "d", "e"]}]})
    assert schema_source(text) == schema_source(text)


def test_old_drafts():
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "object",
        "properties": {"n": {"type": "number", "minimum": 0, "exclusiveMinimum": True}},
        "dependencies": {"n": ["m"]},
        "additionalProperties": {"type": "array", "items": [{"type": "null"}],
                                 "additionalItems": False},
    }  # fmt: skip
    grammar = Documents(schema)
    assert grammar.accept('{"n":1,"m":[null]}')
    for text in ('{"n":1}', '{"n":0,"m":[]}', '{"m":[null,null]}'):
        assert not grammar.accept(text)


def test_the_engine_and_patterns_are_imported_when_they_are_needed():
    code = (
        "import sys, ramet.runtime.grammar.json_schema.front, "
        "ramet.runtime.grammar.json_schema.checking; "
        "print(*(m for m in ('llguidance', 'regex', 'jsonschema', 'torch') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
