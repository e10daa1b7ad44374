from __future__ import annotations

import re

import pytest

from ramet.runtime.grammar.dialect import parse
from ramet.runtime.grammar.rules.lazy import first_ends, has_lazy
from ramet.runtime.grammar.rules.nodes import Nodes
from ramet.runtime.grammar.rules.nonempty import regex_of


def test_has_lazy() -> None:
    assert has_lazy("a(b|c*?)d")
    assert has_lazy("(?:a{2,3}?)*")
    assert not has_lazy(r"a?\??[*?]?(?:b)")
    assert not has_lazy("(?")


@pytest.mark.parametrize(
    "regex", ["a.*?b", "ab*?a", "a.*?aba", "(.|\n)+?ab", "aa[ab]{1,3}?b", "ab+?"]
)
def test_the_first_end_is_that_of_re(regex: str) -> None:
    nodes = Nodes()
    found = first_ends(nodes, nodes.pattern(parse(regex)))
    assert found is not None
    written = re.compile(regex_of(nodes, found))
    waiting = [""]
    while waiting:
        text = waiting.pop()
        match = re.match(regex, text)
        assert bool(written.fullmatch(text)) == (match is not None and match.end() == len(text)), (
            text
        )
        if len(text) < 7:
            waiting += [text + "a", text + "b"]


@pytest.mark.parametrize("regex", ["a*?b+", "(ab)*?c", "a.*?(b|cd)", "a{0,99}?b", "a*?b*?c"])
def test_others_are_none(regex: str) -> None:
    nodes = Nodes()
    assert first_ends(nodes, nodes.pattern(parse(regex))) is None


def test_what_may_be_empty_ends_at_once() -> None:
    nodes = Nodes()
    assert first_ends(nodes, nodes.pattern(parse("a*?"))) == nodes.empty
