from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from tag_oracle import front_end

from ramet.lang import ir
from ramet.lang.errors import GrammarError, ProgramError, UnsupportedFeature
from ramet.lang.typed import (
    REGEXES,
    JsonReader,
    TagsReader,
    TreeReader,
    type_reader,
    typed_value,
)
from ramet.runtime.grammar import front_ends
from ramet.runtime.grammar.dialect import parse
from ramet.runtime.grammar.spec import Constraint
from ramet.runtime.grammar.tag_pieces import Tagged

SGLANG = {
    "int": r"[-+]?[0-9]+[ \n]*",
    "float": r"[-+]?[0-9]*\.?[0-9]+[ \n]*",
    "bool": r"(True|False)",
    "str": r"\"[\w\d\s]*\"",
}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", "42", 42),
        ("int", "-07\n", -7),
        ("int", "+3 ", 3),
        ("int", "9" * 640, 10**640 - 1),
        ("float", "-.5", -0.5),
        ("float", "+12.25\n", 12.25),
        ("float", "7", 7.0),
        ("bool", "True", True),
        ("bool", "False", False),
        ("str", '"two words"', "two words"),
        ("str", '""', ""),
        ("str", '"是\n"', "是\n"),
    ],
)
def test_a_whole_text_has_a_value(kind: str, text: str, value: Any) -> None:
    found = typed_value(kind, text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", ""),
        ("int", "-"),
        ("int", "4 2"),
        ("int", "12.5"),
        ("float", "3."),
        ("float", "."),
        ("bool", "Tr"),
        ("bool", "true"),
        ("str", '"cut of'),
        ("str", '"'),
        ("str", 'a"b"'),
    ],
)
def test_a_cut_text_is_shown(kind: str, text: str) -> None:
    with pytest.raises(ProgramError) as caught:
        typed_value(kind, text)
    assert repr(text) in str(caught.value)
    assert kind in str(caught.value)


@pytest.mark.parametrize("kind", ["int", "float", "bool", "str"])
def test_whatever_matches_parses_and_is_one_of_sglangs(kind: str) -> None:
    generator = random.Random(kind)
    digits = "0123456789+-. \n"
    for _ in range(20_000):
        text = "".join(generator.choices(digits, k=generator.randint(1, 6)))
        if re.fullmatch(REGEXES[kind], text):
            typed_value(kind, text)
            assert re.fullmatch(SGLANG[kind], text)
    assert parse(REGEXES[kind])


def test_the_longest_numbers_are_numbers() -> None:
    assert sys.int_info.str_digits_check_threshold == 640
    assert typed_value("float", "9" * 300 + " ") < float("inf")
    assert typed_value("float", f"-{'9' * 300}.{'9' * 300}") > float("-inf")


def test_the_regexes_have_sglangs_names() -> None:
    names = [ir.REGEX_INT, ir.REGEX_FLOAT, ir.REGEX_BOOL, ir.REGEX_STR]
    assert names == list(REGEXES.values())


class Order(BaseModel):
    dish: Literal["soup", "pie"]
    count: int = 1


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Contents of structural tags are read by the mask engine's own front ends."""
    front_ends.tag_reader.cache_clear()
    monkeypatch.setattr(front_ends, "_source", front_end)
    yield
    front_ends.tag_reader.cache_clear()


def test_a_json_document() -> None:
    assert typed_value(JsonReader(), ' {"b": [1, null], "a": 1.5}\n') == {"b": [1, None], "a": 1.5}
    for text in ("", "{", '{"a":1}}', "[" * 100_000, "9" * 5000):
        with pytest.raises(ProgramError, match="is no JSON document"):
            typed_value(JsonReader(), text)


def test_a_type_is_read_from_json() -> None:
    reader = type_reader("type", Order)
    assert reader is type_reader("type", Order)
    assert repr(reader) == "<TypeReader of Order>"
    assert typed_value(reader, ' {"dish": "pie"} ') == Order(dish="pie")
    with pytest.raises(ProgramError) as caught:
        typed_value(reader, '{"dish":"cake","count":"x"}')
    assert str(caught.value) == (
        """'{"dish":"cake","count":"x"}' is no Order: dish: Input should be 'soup' or 'pie'; """
        "count: Input should be a valid integer, unable to parse string as an integer"
    )
    assert typed_value(type_reader("type", Literal["a", "b"]), '"a"') == "a"
    with pytest.raises(ProgramError):  # JSON, also where the value is a text.
        typed_value(type_reader("type", Literal["a", "b"]), "a")


def test_types_need_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fresh(BaseModel):
        a: int

    monkeypatch.delitem(sys.modules, "ramet.lang.type_schema", raising=False)
    monkeypatch.delattr("ramet.lang.type_schema", raising=False)
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(UnsupportedFeature, match=r"type=.*Fresh.*needs the package pydantic"):
        type_reader("type", Fresh)


def test_the_language_is_there_without_what_only_types_need() -> None:
    code = (
        "import sys, ramet.lang; print([m for m in ('pydantic', 'llguidance') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.usefixtures("parts")
def test_structural_tags_are_pieces_with_typed_contents() -> None:
    tags = {
        "structures": [
            {"begin": "<order>", "schema": {"type": "object"}, "end": "</order>"},
            {"begin": "<any>", "schema": {}, "end": "</any>"},
        ],
        "triggers": ["<"],
    }
    constraint = Constraint("structural_tags", json.dumps(tags))
    reader = TagsReader(constraint, {"structures[0].schema": type_reader("type", Order)})
    text = 'I take <order>{"dish":"pie"}</order> and <any>[1,"</any>"]</any>!'
    assert typed_value(reader, text) == [
        "I take ",
        Tagged("<order>", Order(dish="pie")),
        " and ",
        Tagged("<any>", [1, "</any>"]),
        "!",
    ]
    for text, reason in (
        ("<order>", "is not what its structural tags"),
        ("<order>{}</order>", "dish"),
    ):
        with pytest.raises(ProgramError, match=reason):
            typed_value(reader, text)


def test_a_tree_comes_from_the_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    def tree_of(grammar: str, text: str) -> tuple[str, str]:
        if text == "y":
            raise GrammarError("lark: line 1")
        return grammar, text

    monkeypatch.setattr(front_ends, "tree_of", tree_of)
    assert typed_value(TreeReader("start: X"), "x") == ("start: X", "x")
    with pytest.raises(ProgramError, match="'y' is no text of its grammar: lark: line 1"):
        typed_value(TreeReader("start: X"), "y")
