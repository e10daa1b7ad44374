"""Bases and anchors of a text; what `normalise` does with them is in `test_normal`."""

from __future__ import annotations

import pytest

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.json_schema.references import References

TEXT = {
    "$id": "http://x/a/root",
    "$defs": {
        "b": {"$id": "b", "items": {"$id": "/c"}},
        "n": {"const": {"$id": "not-a-name", "$anchor": "no"}},
    },
    "properties": {"const": {"$anchor": "yes"}},
}


def test_bases_follow_ids():
    references = References(TEXT, 2020)
    assert references.base(()) == "http://x/a/root"
    assert references.base(("$defs", "b", "items")) == "http://x/c"
    assert references.resolve("c", ("$defs", "b", "items"), "") == ("$defs", "b", "items")


def test_data_names_nothing_but_a_property_of_that_name_does():
    references = References(TEXT, 2020)
    assert references.resolve("#yes", (), "") == ("properties", "const")
    with pytest.raises(GrammarError, match="no anchor 'no'"):
        references.resolve("#no", (), "")


def test_old_drafts_name_with_a_fragment():
    assert References({"definitions": {"a": {"id": "#z"}}}, 4).resolve("#z", (), "") == (
        "definitions",
        "a",
    )
