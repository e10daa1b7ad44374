"""Characters inside JSON strings."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.grammar.closing.characters import (
    cheapest,
    common,
    continuations,
    holds,
    unfinished,
    written,
)


@given(st.characters())
def test_a_character_is_written_as_json_has_it(character):
    text = written(ord(character))
    assert json.loads(b'"' + text + b'"') == character


@pytest.mark.parametrize(
    ("ranges", "text"),
    [
        (((0, 0x10FFFF),), b"a"),
        (((34, 34),), b'\\"'),
        (((0, 31),), b"\\b"),
        (((0xE9, 0xE9), (0x20AC, 0x20AC)), "é".encode()),
    ],
)
def test_the_shortest_of_a_set(ranges, text):
    size, code, found = cheapest(ranges)
    assert (size, found) == (len(text), text)
    assert holds(ranges, code)


@given(st.text(max_size=5), st.integers(1, 3))
def test_a_begun_character_is_found(text, size):
    data = text.encode()
    cut = data[: max(0, len(data) - size)]
    rest = unfinished(cut)
    cut[: len(cut) - len(rest)].decode()
    assert len(rest) < 4


@given(st.characters(exclude_categories=["Cs"]), st.integers(1, 3))
def test_what_is_begun_can_go_on(character, size):
    data = character.encode()
    part = data[:size]
    if len(part) == len(data):
        return
    for rest, code in continuations(part, 0, []):
        assert (part + rest).decode() == chr(code)
    wanted = ((ord(character), ord(character)),)
    assert (data[size:], ord(character)) in list(continuations(part, 0, [wanted]))


def test_sets_have_common_characters():
    assert common(((1, 5), (9, 12)), ((4, 10),)) == ((4, 5), (9, 10))
    assert common(((1, 2),), ((3, 4),)) == ()
