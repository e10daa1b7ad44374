from __future__ import annotations

from typing import Any

import pytest

from ramet.runtime.errors import GrammarError, InvalidArgument, UnsupportedFeature
from ramet.runtime.grammar.spec import MAX_TEXT, Constraint


def test_it_crosses_the_channel_as_plain_data() -> None:
    constraint = Constraint("regex", "是|[0-9]+")
    assert constraint.to_wire() == {"kind": "regex", "text": "是|[0-9]+"}
    assert Constraint.of(constraint.to_wire()) == constraint
    assert Constraint.of(constraint) is constraint
    assert Constraint.of(None) is None


@pytest.mark.parametrize(
    ("value", "error", "match"),
    [
        ("[0-9]", InvalidArgument, "constraint='"),
        ({"kind": "regex"}, InvalidArgument, "kind and text"),
        ({"kind": "wish", "text": "x"}, InvalidArgument, "kind='wish'"),
        ({"kind": "regex", "text": 5}, InvalidArgument, "regex=5: must be a str"),
        ({"kind": "regex", "text": "\ud800"}, InvalidArgument, "surrogate at position 0"),
        ({"kind": "regex", "text": "("}, GrammarError, r"missing \)"),
        ({"kind": "regex", "text": "a" * (MAX_TEXT + 1)}, GrammarError, "too large: 131,073"),
        ({"kind": "json_schema", "text": "{}"}, UnsupportedFeature, "json_schema"),
        ({"kind": "lark", "text": "start: x"}, UnsupportedFeature, "lark"),
    ],
)
def test_what_is_no_constraint(value: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        Constraint.of(value)
