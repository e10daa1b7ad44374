"""Any draft becomes one graph in the newest draft's words, or an error with a place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.json_schema.normal import Schema, normalise

D4 = "http://json-schema.org/draft-04/schema#"
D7 = "http://json-schema.org/draft-07/schema#"
D19 = "https://json-schema.org/draft/2019-09/schema"
D20 = "https://json-schema.org/draft/2020-12/schema"


def read(schema: Any) -> Schema:
    return normalise(json.dumps(schema))


def test_draft_4_flags_become_bounds():
    words = read({"$schema": D4, "minimum": 3, "exclusiveMinimum": True, "maximum": 5}).keywords
    assert words == {"minimum": 3, "exclusiveMinimum": 3, "maximum": 5}
    words = read({"$schema": D4, "minimum": 3, "exclusiveMinimum": False}).keywords
    assert words == {"minimum": 3}
    with pytest.raises(GrammarError, match=r"at /exclusiveMinimum: True: must be a number"):
        read({"$schema": D20, "minimum": 3, "exclusiveMinimum": True})


@pytest.mark.parametrize("draft", [D4, D7, D19, None])
def test_a_list_of_items_is_a_prefix(draft: str | None):
    schema = {"items": [{"type": "null"}], "additionalItems": False}
    words = read(schema if draft is None else {"$schema": draft, **schema}).keywords
    assert [item.keywords["type"] for item in words["prefixItems"]] == [("null",)]
    assert words["items"].always is False


def test_additional_items_mean_nothing_beside_one_schema():
    words = read({"$schema": D7, "items": {}, "additionalItems": False}).keywords
    assert words["items"].keywords == {}


def test_dependencies_are_split():
    words = read({"$schema": D7, "dependencies": {"a": ["b"], "c": {"type": "null"}}}).keywords
    assert words["dependentRequired"] == {"a": ("b",)}
    assert words["dependentSchemas"]["c"].pointer == "/dependencies/c"


def test_references_stand_alone_up_to_draft_7():
    schema = {"$ref": "#/definitions/a", "minimum": 3, "definitions": {"a": {"type": "number"}}}
    assert set(read({"$schema": D7, **schema}).keywords) == {"$ref"}
    assert set(read({"$schema": D19, **schema}).keywords) == {"$ref", "minimum"}


@pytest.mark.parametrize(
    ("reference", "pointer"),
    [
        ("#", ""),
        ("#/$defs/a~1b", "/$defs/a~1b"),
        ("#/$defs/t~0c%25", "/$defs/t~0c%"),
        ("#/properties/l/anyOf/0", "/properties/l/anyOf/0"),
        ("#here", "/$defs/anchored"),
        ("http://x/root.json#/$defs/anchored", "/$defs/anchored"),
        ("other.json", "/$defs/other"),
        ("other.json#inner", "/$defs/other/$defs/i"),
        ("other.json#/$defs/i", "/$defs/other/$defs/i"),
        ("#/odd/place", "/odd/place"),
    ],
)
def test_references_find_their_place(reference: str, pointer: str):
    schema = {
        "$id": "http://x/root.json",
        "$ref": reference,
        "properties": {"l": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        "odd": {"place": {"type": "null"}},
        "$defs": {
            "a/b": {},
            "t~c%": {},
            "anchored": {"$anchor": "here"},
            "other": {"$id": "other.json", "$defs": {"i": {"$anchor": "inner"}}},
        },
    }
    assert read(schema).keywords["$ref"].pointer == pointer


@pytest.mark.parametrize(
    "reference",
    ["#/nowhere", "#/properties/l/anyOf/2", "#/properties/l/anyOf/01", "#no", "http://y/z.json"],
)
def test_references_to_nowhere_are_errors(reference: str):
    schema = {"properties": {"l": {"anyOf": [{}, {}]}, "r": {"$ref": reference}}}
    with pytest.raises(GrammarError, match=r"json_schema: at /properties/r/\$ref: "):
        read(schema)


def test_recursion_is_a_cycle():
    root = read({"properties": {"next": {"$ref": "#"}}})
    assert root.keywords["properties"]["next"].keywords["$ref"] is root
    assert "next" not in repr(root)


def test_a_dynamic_reference_with_one_meaning_is_a_plain_one():
    words = read({"$dynamicAnchor": "n", "items": {"$dynamicRef": "#n"}}).keywords
    assert words["items"].keywords["$ref"].pointer == ""
    two = {"$dynamicAnchor": "n", "$dynamicRef": "#n", "$defs": {"a": {"$dynamicAnchor": "n"}}}
    with pytest.raises(GrammarError, match="there twice"):
        read(two)
    two["$defs"]["a"]["$id"] = "a.json"  # type: ignore[index]
    assert read(two).keywords["$dynamicRef"] == "#n"


def test_words_newer_than_the_draft_say_nothing():
    assert read({"$schema": D4, "const": 1, "contains": {}}).keywords == {}
    assert read({"const": 1}).keywords == {"const": 1}


def test_dialects_and_spellings_of_drafts():
    for name in (
        "http://json-schema.org/draft-04/schema",
        "https://json-schema.org/draft-04/schema#",
    ):
        assert read({"$schema": name, "const": 1}).keywords == {}
    assert read({"$schema": "https://example.org/mine", "const": 1}).keywords == {"const": 1}


def test_annotations_and_unused_definitions_are_not_looked_at():
    schema = {"title": 3, "x-guidance": {"lenient": True}, "$defs": {"bad": {"type": "objct"}}}
    assert read(schema).keywords == {}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"properties": {"a/b": {"type": "objct"}}}, r"at /properties/a~1b/type: 'objct': must be"),
        ({"minLength": -1}, r"at /minLength: -1: must be a whole number"),
        ({"minLength": 1.5}, r"at /minLength: .*must be a whole number"),
        ({"maxItems": True}, r"at /maxItems: True: must be a whole number"),
        ({"required": True}, r"at /required: True: must be a list of strings"),
        ({"multipleOf": 0}, r"at /multipleOf: 0: must be more than 0"),
        ({"properties": []}, r"at /properties: \[\]: must be an object of schemas"),
        ({"anyOf": []}, r"at /anyOf: \[\]: must be a list of schemas"),
        ({"items": 3}, r"at /items: 3 is no schema"),
        ({"pattern": 3}, r"at /pattern: 3: must be a string"),
        ({"enum": "ab"}, r"at /enum: 'ab': must be a list"),
        (
            {"$schema": "http://json-schema.org/draft-03/schema#"},
            r"at /\$schema: .*must be",
        ),
        ([], r"at the root: \[\] is no schema"),
    ],
)
def test_malformed_keywords_are_errors_with_their_place(schema: Any, message: str):
    with pytest.raises(GrammarError, match=f"^json_schema: {message}"):
        read(schema)
