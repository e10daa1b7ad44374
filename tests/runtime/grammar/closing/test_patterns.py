"""Patterns and formats as automata."""

from __future__ import annotations

import re

import pytest

from ramet.runtime.grammar.closing.automaton import completion
from ramet.runtime.grammar.closing.patterns import format_automata, search_automata
from ramet.runtime.grammar.json_schema.formats import FORMATS


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_a_shortest_string(name):
    automata = format_automata(name)
    assert automata is not None
    found = completion(automata, [each.start for each in automata], 0, None)
    assert found is not None
    assert re.fullmatch(FORMATS[name], found.decode())


def test_an_unknown_format_says_nothing():
    assert format_automata("colour") == ()


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("b", ["b", "abc"], ["", "ac"]),
        ("^b", ["b", "bc"], ["ab"]),
        ("^a|b$", ["ax", "xb"], ["xa", "bx"]),
        (r"^\d+$", ["0", "12"], ["", "1x"]),
    ],
)
def test_a_pattern_is_searched_for(pattern, yes, no):
    automata = search_automata(pattern)
    assert automata is not None
    for text in yes + no:
        assert all(each.matches(text) for each in automata) == (text in yes)


@pytest.mark.parametrize("pattern", [r"^(a)\1$", "^(?!ab)[a-c]+$", "(", "^(a{99}){999}$"])
def test_what_is_not_understood_says_so(pattern):
    assert search_automata(pattern) is None
