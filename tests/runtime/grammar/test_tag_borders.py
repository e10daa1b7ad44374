from __future__ import annotations

import json
from typing import Any

import pytest

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.tag_borders import (
    document_of,
    either_schema,
    first_stop,
    flat,
    is_open,
    is_regular,
    may_be_number,
    split_head,
    trigger_of,
)
from ramet.runtime.grammar.tag_formats import AnyText, Chain, Const, Content, Either, Format, Tag

REGEX = Content("regex", "a*", "")
NUMBER = Content("json_schema", '{"type": "integer"}', "")
OBJECT = Content("json_schema", '{"type": "object"}', "")


def tag(begin: str, content: Format | None = None, end: str = ">") -> Tag:
    return Tag(begin, content or AnyText(), end, "t")


@pytest.mark.parametrize(
    ("text", "stops", "start", "found"),
    [
        ("xaby", ["ab"], 0, (1, "ab")),
        ("abab", ["ab"], 1, (2, "ab")),
        ("abab", ["ab"], 3, None),
        ("abc", ["abc", "b"], 0, (1, "b")),
        ("aab", ["ab", "b"], 0, (1, "ab")),
        ("abc", ["a", "abc"], 0, (0, "a")),
        ("", ["a"], 0, None),
    ],
)
def test_the_stop_that_is_complete_first(
    text: str, stops: list[str], start: int, found: tuple[int, str] | None
) -> None:
    assert first_stop(text, stops, start) == found


def test_the_trigger_of_a_tag() -> None:
    assert trigger_of(tag("<f=a>"), ["<f=", "<f"]) == "<f"
    with pytest.raises(GrammarError, match=r"t.begin: '<ab>' can never come: 'a' is complete"):
        trigger_of(tag("<ab>"), ["<ab", "a"])


def test_heads() -> None:
    assert split_head(Const("ab")) == ("ab", Const(""))
    assert split_head(tag("<a>")) == ("<a>", tag(""))
    chain = Chain((tag("<a>"), REGEX), "")
    assert split_head(chain) == ("<a>", Chain((tag(""), REGEX), ""))
    assert split_head(REGEX) == ("", REGEX)
    assert flat([chain, Chain((Const(""), Chain((Const("x"),), "")), "")]) == [
        tag("<a>"),
        REGEX,
        Const("x"),
    ]


@pytest.mark.parametrize(
    ("found", "opened"),
    [
        (Const("a"), False),
        (AnyText(), True),
        (REGEX, True),
        (NUMBER, True),
        (OBJECT, False),
        (Content("lark", "", ""), True),
        (tag("<"), False),
        (tag("<", end=""), True),
        (tag("<", OBJECT, ""), False),
        (Chain((), ""), False),
        (Chain((AnyText(), Const("a")), ""), False),
        (Either((Const("a"), REGEX), ""), True),
    ],
)
def test_what_says_itself_where_it_ends(found: Format, opened: bool) -> None:
    assert is_open(found) == opened


def test_what_is_regular() -> None:
    assert all(map(is_regular, (Const("a"), AnyText(), REGEX, tag("<", REGEX))))
    assert not any(map(is_regular, (OBJECT, tag("<", OBJECT), Chain((), ""), tag("<", tag("<")))))
    assert document_of(tag("", OBJECT)) == (OBJECT, ">")
    assert document_of(OBJECT) == (OBJECT, "")
    assert document_of(tag("<", OBJECT)) is document_of(REGEX) is None


@pytest.mark.parametrize(
    ("schema", "may"),
    [
        ({"type": "object"}, False),
        ({"type": ["string", "null"]}, False),
        ({"type": ["string", "number"]}, True),
        ({"const": "a"}, True),  # Which its type doesn't say.
        (True, True),
        ({"type": {}}, True),
    ],
)
def test_numbers(schema: Any, may: bool) -> None:
    assert may_be_number(json.dumps(schema)) == may
    assert may_be_number("{") is True


def test_one_schema_of_several() -> None:
    first = {"$schema": "s", "$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#"}}}}
    second = {"properties": {"$ref": {"$ref": "other"}, "b": {"$ref": "#anchor"}}}
    found = json.loads(either_schema([json.dumps(first), json.dumps(second), "true"]))
    assert found == {
        "$schema": "s",
        "anyOf": [
            {
                "$ref": "#/anyOf/0/$defs/a",
                "$defs": {"a": {"items": {"$ref": "#/anyOf/0"}}},
            },
            second,
            True,
        ],
    }
