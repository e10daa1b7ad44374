from __future__ import annotations

import re

import pytest

from ramet.runtime.grammar.dialect import parse
from ramet.runtime.grammar.lark_text import lark_text
from ramet.runtime.grammar.rules.carving import carved, words_within
from ramet.runtime.grammar.rules.comparing import Comparisons
from ramet.runtime.grammar.rules.nodes import Nodes
from ramet.runtime.grammar.rules.nonempty import regex_of

LETTERS = sum(1 << code for code in range(97, 123))


def words(one: str, other: str) -> set[str] | None:
    nodes = Nodes()
    roots = [nodes.pattern(parse(regex)) for regex in (one, other)]
    comparisons = Comparisons(nodes, roots)
    first, second = map(comparisons.automaton, roots)
    return words_within(first, second, comparisons.alphabet, LETTERS)


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ("return *", "[a-z]+ *", {"return"}),
        ("x|xyz", "xyzw", {"x"}),
        ("ab|cd", "[a-z]{2}", set()),
        ("[a-z]+", "[a-z]+", None),
        ("[a-z]", "[a-z]+", None),
        ("[0-9]+", "[a-z0-9]+", None),
    ],
)
def test_words(one: str, other: str, found: set[str] | None) -> None:
    assert words(one, other) == found


@pytest.mark.parametrize("regex", ["[a-z]+ *", "x(ab|abc?d)*", "(ab)?(abz|a)*", "ab{0,3}"])
@pytest.mark.parametrize("at", [{"ab"}, {"a"}, {"xab", "ab"}, {"q"}])
def test_the_texts_stay_the_same(regex: str, at: set[str]) -> None:
    nodes = Nodes()
    kept, rests = carved(nodes, nodes.pattern(parse(regex)), at, LETTERS)
    ways = [regex_of(nodes, kept)] if kept != nodes.nowhere else []
    split = [f"{word}(?:{regex_of(nodes, rest)})" for word, rest in rests]
    assert lark_text(parse("|".join([*ways, *split])))
    for text in texts("abcdqxz ", 4):
        whole = bool(re.fullmatch(regex, text))
        begins = any(text.startswith(word) and text[len(word) :][:1].islower() for word in at)
        assert whole == any(re.fullmatch(way, text) for way in [*ways, *split]), text
        assert not (begins and any(re.fullmatch(way, text) for way in ways)), text


def texts(letters: str, longest: int) -> list[str]:
    found, last = [""], [""]
    for _ in range(longest):
        last = [text + letter for text in last for letter in letters]
        found += last
    return found
