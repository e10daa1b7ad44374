from __future__ import annotations

import json
import random
from typing import Any

import pytest

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.tag_formats import (
    MAX_DEPTH,
    AnyText,
    Chain,
    Const,
    Content,
    Either,
    Separated,
    Tag,
    Triggered,
    read_tags,
)

ONE = {"begin": "<a>", "end": "</a>"}


def read(data: Any) -> Any:
    return read_tags(json.dumps(data))


def formatted(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "structural_tag", "format": {"type": kind, **fields}}


def test_structures_are_triggered_tags() -> None:
    found = read(
        {
            "type": "structural_tag",
            "structures": [
                {"begin": "<f=a>", "schema": {"type": "object", "b": 1, "a": 2}, "end": "</f>"},
                {"begin": "<f=b>", "regex": "x", "end": "</f>"},
                {"begin": "<g>", "end": "</g>"},
                {"begin": "<f=c>", "schema": '{"type": "null"}', "end": "</f>"},
            ],
            "triggers": ["<f=", "<g>", "<f="],
        }
    )
    schema = '{"type": "object", "b": 1, "a": 2}'
    assert found == Triggered(
        ("<f=", "<g>"),
        (
            Tag(
                "<f=a>",
                Content("json_schema", schema, "structures[0].schema"),
                "</f>",
                "structures[0]",
            ),
            Tag("<f=b>", Content("regex", "x", "structures[1].regex"), "</f>", "structures[1]"),
            Tag("<g>", AnyText(), "</g>", "structures[2]"),
            Tag(
                "<f=c>",
                Content("json_schema", '{"type": "null"}', "structures[3].schema"),
                "</f>",
                "structures[3]",
            ),
        ),
        False,
        False,
        "",
    )


def test_formats_are_read() -> None:
    tag = {"begin": "<a>", "content": {"type": "any_text", "excludes": ["x"]}, "end": "</a>"}
    found = read(
        formatted(
            "sequence",
            elements=[
                {"type": "const_string", "value": "c"},
                {"type": "or", "elements": [{"type": "tag", **tag}]},
                {"type": "or", "elements": [{"type": "tag", **tag}, {"type": "any_text"}]},
                {
                    "type": "tags_with_separator",
                    "tags": [tag],
                    "separator": ",",
                    "at_least_one": True,
                },
                {"type": "grammar", "grammar": "root ::= x"},
            ],
        )
    )
    at = "format.elements"

    def made(place: str) -> Tag:
        return Tag("<a>", AnyText(("x",)), "</a>", place)

    assert found == Chain(
        (
            Const("c"),
            made(f"{at}[1].elements[0]"),
            Either((made(f"{at}[2].elements[0]"), AnyText()), f"{at}[2]"),
            Separated((made(f"{at}[3].tags[0]"),), ",", True, False, f"{at}[3]"),
            Content("ebnf", "root ::= x", f"{at}[4].grammar"),
        ),
        "format",
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "[]: must be an object"),
        ({}, 'must have "structures" and "triggers", or "format"'),
        ({"structures": [ONE]}, "triggers: None: must be a list"),
        ({"structures": [ONE], "triggers": []}, "triggers: is empty"),
        ({"structures": [], "triggers": ["<"]}, "structures: is empty"),
        (
            {"structures": [ONE], "triggers": [""]},
            "triggers[0]: '': must be a text that is not empty",
        ),
        ({"structures": [ONE], "triggers": ["<", 5]}, "triggers[1]: 5: must be a text"),
        (
            {"structures": [ONE], "triggers": ["<", "x"]},
            "triggers[1]: 'x': no begin starts with it",
        ),
        ({"structures": [ONE], "triggers": ["<"], "tags": []}, "'tags' is not known here"),
        ({"structures": [ONE], "triggers": ["<"], "type": "json"}, "type: 'json': must be"),
        (
            {"structures": [ONE], "triggers": ["a"]},
            "structures[0].begin: '<a>': must start with one",
        ),
        ({"structures": [{"begin": "<"}], "triggers": ["<"]}, "structures[0].end: None: must be"),
        (
            {"structures": [{**ONE, "end": ""}], "triggers": ["<"]},
            "structures[0].end: '': must be a text that is not empty",
        ),
        (
            {"structures": [ONE, {**ONE, "schema": {}, "regex": "a"}], "triggers": ["<"]},
            "structures[1]: takes at most one of schema, regex, lark, ebnf",
        ),
        (
            {"structures": [{**ONE, "schema": [1]}], "triggers": ["<"]},
            "structures[0].schema: [1]: must be a JSON Schema or its text",
        ),
        (
            {"structures": [{**ONE, "regex": {}}], "triggers": ["<"]},
            "structures[0].regex: {}: must be a text",
        ),
        (
            {"structures": [ONE], "triggers": ["<\ud800"]},
            "triggers[0]: '<\\ud800': has a lone surrogate",
        ),
        (
            {"structures": [{**ONE, "begin": "<\udfff"}], "triggers": ["<"]},
            "structures[0].begin: '<\\udfff': has a lone surrogate",
        ),
        (
            {
                "structures": [{**ONE, "begin": f"<{n}>"} for n in range(100, 200)],
                "triggers": [f"<{n}" for n in range(100, 200)],
            },
            "triggers: 100 of them: at most 64",
        ),
        (
            formatted("qwen_xml_parameter", json_schema={}),
            "format.type: 'qwen_xml_parameter': must",
        ),
        (formatted("token", token="<eos>"), "format.type: 'token': must be one of const_string"),
        (formatted("const_string"), "format.value: None: must be a text"),
        (formatted("const_string", value="a", extra=1), "format: 'extra' is not known here"),
        (formatted("json_schema"), "format.json_schema: None: must be a JSON Schema"),
        (
            formatted("json_schema", json_schema={}, style="qwen_xml"),
            "format.style: 'qwen_xml': only \"json\" is supported",
        ),
        (formatted("or", elements=[]), "format.elements: is empty"),
        (formatted("sequence", elements=[5]), "format.elements[0]: 5: must be an object"),
        (formatted("tag", begin="a", end="b"), "format.content: None: must be an object"),
        (
            formatted("triggered_tags", triggers=["<"], tags=[{**ONE, "content": {"type": "x"}}]),
            "format.tags[0].content.type: 'x'",
        ),
        (
            formatted(
                "triggered_tags",
                triggers=["<"],
                tags=[{**ONE, "content": {"type": "any_text"}}],
                at_least_one=1,
            ),
            "format.at_least_one: 1: must be true or false",
        ),
        ({"format": {"type": "any_text"}, "triggers": []}, "'triggers' is not known here"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(data: Any, message: str) -> None:
    with pytest.raises(GrammarError) as caught:
        read(data)
    assert str(caught.value).startswith(f"structural_tags: {message}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"structures": [], "structures": []}', "'structures' is there twice"),
        ('{"format": NaN}', "NaN is no JSON"),
        ('{"format": 1e999}', "'1e999' is too large"),
        (f'{{"format": {"1" * 5000}}}', "no JSON"),
    ],
)
def test_text_that_is_no_json_is_refused(text: str, reason: str) -> None:
    with pytest.raises(GrammarError, match=reason):
        read_tags(text)


def test_formats_nest_only_so_deep() -> None:
    data: Any = {"type": "any_text"}
    for _ in range(MAX_DEPTH):
        data = {"type": "sequence", "elements": [data]}
    read({"format": data})
    with pytest.raises(GrammarError, match="nest deeper"):
        read({"format": {"type": "sequence", "elements": [data]}})


def test_whatever_it_is_given_it_only_says_what_is_wrong() -> None:
    """Descriptions with parts exchanged at random."""
    generator = random.Random(2)
    tag = {"type": "tag", "begin": "<a>", "content": {"type": "any_text"}, "end": "</a>"}
    whole = {
        "structures": [{**ONE, "regex": "a"}, ONE],
        "triggers": ["<"],
        "format": {
            "type": "sequence",
            "elements": [
                {"type": "triggered_tags", "triggers": ["<"], "tags": [tag]},
                {"type": "tags_with_separator", "tags": [tag], "separator": ","},
                {"type": "or", "elements": [{"type": "const_string", "value": "a"}]},
                {"type": "json_schema", "json_schema": {}},
            ],
        },
    }
    odd: list[Any] = [None, 5, 1.5, True, "", "x", [], {}, [[]], {"type": {}}, ["<", "<"], "\ud800"]

    def exchanged(value: Any) -> Any:
        if generator.random() < 0.08:
            return generator.choice(odd)
        if isinstance(value, dict):
            return {
                key: exchanged(item) for key, item in value.items() if generator.random() < 0.97
            }
        return [exchanged(item) for item in value] if isinstance(value, list) else value

    fine, messages = 0, list[str]()
    for _ in range(3000):
        data = exchanged(whole)
        if isinstance(data, dict):
            for key in ("format",) if generator.random() < 0.5 else ("structures", "triggers"):
                data.pop(key, None)
        try:
            read(data)
            fine += 1
        except GrammarError as error:
            messages.append(str(error))
    assert fine > 100
    assert all(message.startswith("structural_tags: ") for message in messages)
