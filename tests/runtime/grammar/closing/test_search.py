"""Where the walk knows nothing, trying bytes closes a text, in bounded time."""

from __future__ import annotations

import time

import pytest

from ramet.runtime.grammar.closing.closer import Closer, closing_for
from ramet.runtime.grammar.closing.search import repaired


@pytest.mark.parametrize(
    ("grammar", "begun"),
    [
        ('start: "[" /[a-z]{3,5}/ "]"', b"[q"),
        ('start: item+ "."\nitem: "(" item* ")"', b"((()"),
        ("start: /a*b/", b"aaa"),
        ('start: "{" /"[0-9]{4}x"/ ":" /[0-9]{9}/ "}"', b'{"'),
    ],
)
def test_a_text_of_another_grammar_is_closed(larked, grammar, begun):
    matcher, walk = larked(grammar), Closer("true").walk()
    for byte in begun:
        assert matcher.advance(byte)
        walk.push(bytes([byte]))
    found = repaired(walk, matcher, [])
    assert found is not None
    assert all(matcher.advance(byte) for byte in found)
    assert matcher.accepting


def test_a_proposal_that_is_wrong_in_the_middle_is_mended(matched):
    """The walk was told another schema than the matcher."""
    wide = Closer('{"properties": {"a": {}, "b": {}}, "required": ["a", "b"], "type": "object"}')
    strict = {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "^[xy]{4}$"}, "b": {"type": "null"}},
        "required": ["a", "b"],
    }
    found = closing_for(wide.walk(), matched(strict))
    assert found is not None
    matcher = matched(strict)
    assert all(matcher.advance(byte) for byte in found)
    assert matcher.accepting


def test_where_there_is_no_end_it_gives_up(larked):
    matcher = larked('start: thing\nthing: "a" thing "b" | /c{5000}/')
    began = time.perf_counter()
    assert repaired(Closer("true").walk(), matcher, []) is None
    assert time.perf_counter() - began < 3
