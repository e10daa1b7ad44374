from __future__ import annotations

import random
import re
import sys
from typing import Any

import pytest

from ramet.lang import ir
from ramet.lang.errors import ProgramError
from ramet.lang.typed import REGEXES, typed_value
from ramet.runtime.grammar.dialect import parse

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
