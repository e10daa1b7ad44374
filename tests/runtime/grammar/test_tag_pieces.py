from __future__ import annotations

import json
from typing import Any

import pytest
from tag_oracle import front_end

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.tag_formats import Content
from ramet.runtime.grammar.tag_pieces import Mismatch, Tagged, TagReader

BOOLEAN = {"type": "json_schema", "json_schema": {"type": "boolean"}}


def pieces(tags: Any, text: str, whitespace: str = "compact") -> list[Any]:
    made = TagReader(json.dumps(tags), strict=True, whitespace=whitespace, compile_part=front_end)
    return made.pieces(text, value)


def value(content: Content, text: str) -> Any:
    return json.loads(text) if content.kind == "json_schema" else text


TOOLS = {
    "structures": [
        {
            "begin": "<f=a>",
            "schema": {"type": "array", "items": {"type": "integer"}},
            "end": "</f>",
        },
        {"begin": "<f=b>", "regex": ".*", "end": "</f>"},
        {"begin": "<f=c>", "lark": 'start: "x" start?', "end": "</f>"},
        {"begin": "<think>", "end": "</think>"},
    ],
    "triggers": ["<f=", "<think>"],
}


def test_texts_and_regions_in_order() -> None:
    text = "é<<think>a<f=</think><f=a>[1,2]</f><f=b>is</f> late</f> <f=c>xx</f><f=b></f>end <f"
    assert pieces(TOOLS, text) == [
        "é<",
        Tagged("<think>", "a<f="),
        Tagged("<f=a>", [1, 2]),
        Tagged("<f=b>", "is"),
        " late</f> ",
        Tagged("<f=c>", "xx"),
        Tagged("<f=b>", ""),
        "end <f",
    ]
    assert pieces(TOOLS, "") == []
    assert pieces(TOOLS, "text") == ["text"]


def test_a_piece_is_a_pair() -> None:
    ((begin, found),) = pieces(TOOLS, "<f=a>[]</f>")
    assert (begin, found) == ("<f=a>", [])


def test_blanks_around_json_belong_to_nobody() -> None:
    assert pieces(TOOLS, "<f=a>[ 1, 2 ]</f>", "flexible") == [Tagged("<f=a>", [1, 2])]


@pytest.mark.parametrize(
    "text",
    [
        "<f=",
        "<f=d>",
        "<f=a>[1,2",
        "<f=a>[1,2]",
        "<f=a>[true]</f>",
        "<f=c></f>",
        "<think>",
        "<f=b>x",
    ],
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(Mismatch):
        pieces(TOOLS, text)


def test_nested_formats_are_lists_of_pieces() -> None:
    call = {"type": "tag", "begin": "[", "content": BOOLEAN, "end": "]"}
    calls = {"type": "tags_with_separator", "separator": ", ", "tags": [call]}
    tags = {
        "format": {
            "type": "sequence",
            "elements": [
                {"type": "any_text"},
                {"type": "tag", "begin": "<t>", "content": calls, "end": "</t>"},
                {"type": "const_string", "value": "!"},
                {"type": "or", "elements": [call, {"type": "const_string", "value": "?"}]},
            ],
        }
    }
    assert pieces(tags, "so<t>[true], [false]</t>!?") == [
        "so",
        Tagged("<t>", [Tagged("[", True), ", ", Tagged("[", False)]),
        "!?",
    ]
    assert pieces(tags, "<t></t>![true]") == [Tagged("<t>", []), "!", Tagged("[", True)]


def test_a_content_without_a_tag() -> None:
    assert pieces({"format": BOOLEAN}, "true") == [Tagged("", True)]
    assert pieces({"format": {"type": "regex", "pattern": "a|ab"}}, "ab") == [Tagged("", "ab")]


def test_bad_tags_are_refused_when_the_reader_is_made() -> None:
    with pytest.raises(GrammarError, match="triggers"):
        pieces({"structures": []}, "")
