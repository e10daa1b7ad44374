from __future__ import annotations

import json
import random
from typing import Any

import pytest
from tag_oracle import front_end, matcher, takes

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.structural_tags import tags_source
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


class Formats:
    """Formats drawn at random, over few characters."""

    def __init__(self, generator: random.Random) -> None:
        self.generator = generator

    def word(self, low: int, high: int) -> str:
        return "".join(self.generator.choices("ab<", k=self.generator.randint(low, high)))

    def flag(self) -> bool:
        return self.generator.random() < 0.3

    def tag(self, depth: int) -> dict[str, Any]:
        begin, end = self.word(0 if self.flag() else 1, 2), self.word(0 if self.flag() else 1, 2)
        return {"type": "tag", "begin": begin, "content": self.format(depth + 1), "end": end}

    def format(self, depth: int = 0) -> dict[str, Any]:
        leaves = ["const_string", "regex", "any_text", "json_schema"]
        inner = ["tag", "tag", "sequence", "or", "triggered_tags", "tags_with_separator"]
        kind = self.generator.choice(leaves + (inner if depth < 3 else []))
        match kind:
            case "const_string":
                fields = {"value": self.word(0, 2)}
            case "regex":
                patterns = ["a*", "b", "(ab)*", "[ab]{0,2}", "a|ab", "[ab<]*"]
                fields = {"pattern": self.generator.choice(patterns)}
            case "any_text":
                fields = {"excludes": [self.word(1, 2)] if self.flag() else []}
            case "json_schema":
                empty = {"type": "array", "maxItems": 0}
                schemas = [empty, {"enum": [[], [[]]]}, {"type": "array", "items": empty}]
                fields = {"json_schema": self.generator.choice(schemas)}
            case "tag":
                return self.tag(depth)
            case "sequence" | "or":
                number = self.generator.randint(1, 3)
                fields = {"elements": [self.format(depth + 1) for _ in range(number)]}
            case _:
                tags = [self.tag(depth) for _ in range(self.generator.randint(1, 2))]
                fields = {
                    "tags": tags,
                    "at_least_one": self.flag(),
                    "stop_after_first": self.flag(),
                }
                if kind == "triggered_tags":
                    fields["triggers"] = [tag["begin"][:1] or "a" for tag in tags]
                else:
                    fields["separator"] = self.word(0, 1)
        return {"type": kind, **fields}


def test_formats_drawn_at_random_are_read_as_their_grammars_have_them() -> None:
    formats = Formats(generator := random.Random(3))
    compared = whole = 0
    for _ in range(300):
        tags = json.dumps({"format": formats.format()})
        options: Any = {"strict": True, "whitespace": "compact", "compile_part": front_end}
        try:
            made = matcher(tags_source(tags, **options).lark)
        except GrammarError:
            continue
        reader = TagReader(tags, **options)
        texts = ["".join(generator.choices("ab<[]", k=generator.randint(0, 8))) for _ in range(40)]
        texts += [walk(made, generator) for _ in range(20)]
        for text in texts:
            try:
                reader.pieces(text, lambda _, found: found)
                read = True
            except Mismatch:
                read = False
            assert takes(made, text) == read, (tags, text)
            whole += read
        compared += 1
    assert compared > 100
    assert whole > 1000


def walk(made: Any, generator: random.Random) -> str:
    """A text that the masks lead to, whole or not."""
    state, text = made.deep_copy(), ""
    while len(text) < 14:
        mask = state.compute_bitmask()
        allowed = [byte for byte in b"ab<[]" if mask[byte // 8] >> byte % 8 & 1]
        if not allowed or (state.is_accepting() and generator.random() < 0.3):
            break
        byte = generator.choice(allowed)
        state.try_consume_tokens([byte])
        text += chr(byte)
    return text
