"""A schema's text is read exactly or refused at once, whatever it is."""

from __future__ import annotations

import time
from decimal import Decimal

import pytest

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.json_schema.text import MAX_DEPTH, parse, step


def test_numbers_are_what_the_text_says():
    assert parse("[0.1, 1.0, 10, -0.0]") == [Decimal("0.1"), Decimal("1.0"), 10, 0]
    assert str(parse("-0.0")) == "0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "isn't JSON"),
        ("{'a': 1}", "isn't JSON: .* at position 1"),
        ("[NaN]", "NaN is no JSON number"),
        ("[-Infinity]", "Infinity is no JSON number"),
        ('{"b": {"a": 1, "\\u0061": 2}}', "the key 'a' stands twice"),
        ('["\\ud800"]', "at /0: .* lone surrogate"),
        ('{"\\udfff": 1}', "lone surrogate"),
        ("1e999999999", "too many digits"),
        ("1e-999999999", "too many digits"),
        ("9" * 5000, "too many digits"),
        ("[" * (MAX_DEPTH + 1), "nested too deep"),
        ("[" * 10_000 + "]" * 10_000, "nested too deep: 10,000 levels"),
        ('{"a":' * 300_000, "too large"),
    ],
)
def test_what_is_refused(text: str, message: str):
    begin = time.monotonic()
    with pytest.raises(GrammarError, match=f"^json_schema: .*{message}"):
        parse(text)
    assert time.monotonic() - begin < 2


def test_brackets_within_strings_are_no_depth():
    assert parse('["' + "[" * 1000 + '\\"{"]') == ["[" * 1000 + '"{']


def test_pointers_are_escaped():
    assert step("/a", "b/c", "d~e", 0) == "/a/b~1c/d~0e/0"
