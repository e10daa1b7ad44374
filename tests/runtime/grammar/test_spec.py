from __future__ import annotations

from typing import Any

import pytest

from ramet.runtime.errors import GrammarError, InvalidArgument
from ramet.runtime.grammar.spec import MAX_TEXT, Constraint


def test_it_crosses_the_channel_as_plain_data() -> None:
    constraint = Constraint("regex", "是|[0-9]+")
    assert constraint.to_wire() == {"kind": "regex", "text": "是|[0-9]+"}
    assert Constraint.of(constraint.to_wire()) == constraint
    assert Constraint.of(constraint) is constraint
    loose = Constraint("json_schema", "{}", strict=False, whitespace="flexible")
    assert Constraint.of(loose.to_wire()) == loose
    assert Constraint.of(None) is None


@pytest.mark.parametrize(
    ("value", "error", "match"),
    [
        ("[0-9]", InvalidArgument, "constraint='"),
        ({"kind": "regex"}, InvalidArgument, "kind and text"),
        ({"kind": "wish", "text": "x"}, InvalidArgument, "kind='wish'"),
        ({"kind": "regex", "text": 5}, InvalidArgument, "regex=5: must be a str"),
        ({"kind": "regex", "text": "\ud800"}, InvalidArgument, "surrogate at position 0"),
        ({"kind": "regex", "text": "a" * (MAX_TEXT + 1)}, GrammarError, "too large: 1,048,577"),
        ({"kind": "regex", "text": "a", "more": 1}, InvalidArgument, "kind and text"),
        ({"kind": "regex", "text": "a", "strict": 1}, InvalidArgument, "strict=1"),
        ({"kind": "regex", "text": "a", "whitespace": " "}, InvalidArgument, "compact, flexible"),
    ],
)
def test_what_is_no_constraint(value: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        Constraint.of(value)
