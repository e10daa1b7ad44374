from __future__ import annotations

from typing import Any

import pytest

import ramet.lang as rm
from ramet.lang.constraints import check_dtype
from ramet.lang.expr import Gen
from ramet.lang.ir import REGEX_BOOL, REGEX_FLOAT, REGEX_INT, REGEX_STR
from ramet.runtime.tokenizer import Tokenizer


def constraint(node: object) -> Any:
    assert isinstance(node, Gen)
    return node.fields["constraint"]


def test_a_regex_becomes_a_field() -> None:
    node = rm.gen("x", regex="[0-9]+", max_tokens=4)
    assert isinstance(node, Gen)
    assert node.fields == {
        "max_new_tokens": 4,
        "constraint": {"kind": "regex", "text": "[0-9]+"},
    }
    assert node.dtype is None


@pytest.mark.parametrize(
    ("dtype", "name", "regex"),
    [
        (int, "int", REGEX_INT),
        ("int", "int", REGEX_INT),
        (float, "float", REGEX_FLOAT),
        ("float", "float", REGEX_FLOAT),
        (bool, "bool", REGEX_BOOL),
        ("bool", "bool", REGEX_BOOL),
        (str, "str", REGEX_STR),
        ("str", "str", REGEX_STR),
    ],
)
def test_a_dtype_is_a_regex_with_a_type(dtype: Any, name: str, regex: str) -> None:
    node = rm.gen("x", dtype=dtype)
    assert constraint(node) == {"kind": "regex", "text": regex}
    assert isinstance(node, Gen)
    assert node.dtype == name == check_dtype(dtype)


def test_shorthands() -> None:
    assert constraint(rm.gen_int("x", 5)) == constraint(rm.gen("x", dtype=int))
    assert constraint(rm.gen_string("x", stop="!")) == constraint(rm.gen("x", dtype=str))
    node = rm.gen_int("x", max_tokens=5)
    assert isinstance(node, Gen)
    assert node.fields["max_new_tokens"] == 5
    assert node.site.startswith(__file__)
    with pytest.raises(rm.InvalidArgument, match="dtype is given twice"):
        rm.gen_int("x", dtype=str)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("regex", 5),
        ("regex", ["a"]),
        ("regex", "\ud800"),
        ("dtype", list),
        ("dtype", "integer"),
        ("dtype", 5),
        ("json_schema", 5),
        ("ebnf", 5),
        ("lark", b"start: x"),
        ("structural_tags", 5),
        ("strict", 1),
        ("whitespace", "some"),
        ("whitespace", []),
        ("close_within_budget", "no"),
        ("jump_forward", 0),
        ("stop_regex", 5),
    ],
)
def test_a_bad_argument_is_refused_by_name(argument: str, value: Any) -> None:
    with pytest.raises(rm.InvalidArgument, match=argument):
        rm.gen("x", **{argument: value})


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("json_schema", "{}"),
        ("json_schema", {"type": "object"}),
        ("ebnf", "root ::= x"),
        ("lark", "start: x"),
        ("structural_tags", []),
        ("type", int),
        ("type", list[int]),
        ("strict", False),
        ("whitespace", "flexible"),
        ("close_within_budget", True),
        ("stop_regex", "x"),
    ],
)
def test_what_cannot_be_honoured_yet_is_refused_by_name_and_place(
    argument: str, value: Any
) -> None:
    with pytest.raises(rm.UnsupportedFeature, match=rf"gen\({argument}=.*test_constraints.py:\d+"):
        rm.gen("x", **{argument: value})


def test_what_this_version_does_anyway_may_be_said() -> None:
    node = rm.gen(
        "x",
        regex="a",
        strict=True,
        whitespace="compact",
        close_within_budget=False,
        jump_forward=False,
    )
    assert isinstance(node, Gen)
    assert node.fields == {"constraint": {"kind": "regex", "text": "a"}}
    rm.gen("x", regex="a", jump_forward=True)
    for option in ({"jump_forward": True}, {"strict": True}, {"whitespace": "compact"}):
        with pytest.raises(rm.InvalidArgument, match="needs a constraint"):
            rm.gen("x", **option)


def test_accepts_takes_whatever_gen_takes() -> None:
    assert rm.accepts("12", dtype=int)
    assert not rm.accepts("1a", dtype="int")
    assert rm.accepts("a+", choices=["a+", "b"])
    assert not rm.accepts("aa", choices=["a+", "b"])
    with pytest.raises(rm.UnsupportedFeature, match="structural_tags"):
        rm.accepts("a", structural_tags=[])
    with pytest.raises(rm.InvalidArgument, match="choices"):
        rm.accepts("a", choices=[])


def test_a_regex_outside_of_the_dialect_is_refused_at_once() -> None:
    """B36 of the bug reports."""
    with pytest.raises(rm.GrammarError, match=r"a word boundary \\b at position 3"):
        rm.gen("x", regex=r"cat\b")


def test_at_most_one_constraint() -> None:
    for pair in (
        {"regex": "a", "dtype": int},
        {"lark": "x", "type": int},
        {"regex": "", "ebnf": ""},
    ):
        with pytest.raises(rm.InvalidArgument, match="at most one"):
            rm.gen("x", **pair)


def test_accepts_says_whether_and_where() -> None:
    assert rm.accepts("2026-11-29", regex=r"\d{4}-\d\d-\d\d")
    answer = rm.accepts("2026-1x", regex=r"\d{4}-\d\d", tokenizer=Tokenizer.tiny())
    assert not answer
    assert (answer.position, answer.reason) == (6, "'x' can't follow")
    assert rm.accepts("2026", regex=r"\d{4}-\d\d").position == 4


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({}, rm.InvalidArgument, "exactly one"),
        ({"regex": "a", "lark": "start: x"}, rm.InvalidArgument, "exactly one"),
        ({"regex": "("}, rm.GrammarError, "missing"),
        ({"regex": 5}, rm.InvalidArgument, "regex=5"),
        ({"json_schema": "{}"}, rm.UnsupportedFeature, "json_schema"),
        ({"type": int}, rm.UnsupportedFeature, "type"),
        ({"lark": "start: x"}, rm.UnsupportedFeature, "lark"),
        ({"ebnf": "root ::= x"}, rm.UnsupportedFeature, "ebnf"),
        ({"regex": "a", "tokenizer": "gpt2"}, rm.InvalidArgument, "tokenizer"),
        ({"regex": "a", "strict": 5}, rm.InvalidArgument, "strict"),
        ({"regex": "a", "whitespace": 5}, rm.InvalidArgument, "whitespace"),
    ],
)
def test_accepts_refuses(given: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        rm.accepts("a", **given)
    with pytest.raises(rm.InvalidArgument, match="text"):
        rm.accepts(5, regex="a")  # type: ignore[arg-type]
