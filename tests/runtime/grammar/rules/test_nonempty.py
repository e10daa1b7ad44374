from __future__ import annotations

import itertools
import re

import pytest

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.dialect import parse
from ramet.runtime.grammar.rules.nodes import Nodes
from ramet.runtime.grammar.rules.nonempty import nonempty_regex


@pytest.mark.parametrize(
    "regex", ["a*", "a?b?", "(a|b?)*", "(a?){2,3}", "(a*b?)(ba)?", "(ab){0,2}"]
)
def test_all_texts_but_the_empty_one(regex: str) -> None:
    nodes = Nodes()
    found = nonempty_regex(nodes, nodes.pattern(parse(regex)))
    assert found is not None
    assert re.match(found, "") is None
    for length in range(6):
        for letters in itertools.product("ab", repeat=length):
            text = "".join(letters)
            assert bool(re.fullmatch(found, text)) == bool(text and re.fullmatch(regex, text)), text


def test_what_is_never_empty_is_left_alone() -> None:
    nodes = Nodes()
    assert nonempty_regex(nodes, nodes.pattern(parse("a|b+"))) is None


def test_what_is_only_empty_is_refused() -> None:
    nodes = Nodes()
    with pytest.raises(GrammarError, match="only ever empty"):
        nonempty_regex(nodes, nodes.empty)
