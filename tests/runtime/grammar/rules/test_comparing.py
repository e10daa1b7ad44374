from __future__ import annotations

import pytest

from ramet.runtime.grammar.dialect import parse
from ramet.runtime.grammar.rules.automaton import MAX_POSITIONS, bits
from ramet.runtime.grammar.rules.comparing import ANY_BYTE, Comparisons
from ramet.runtime.grammar.rules.nodes import Nodes


def onward(one: str, other: str) -> tuple[bool, str]:
    nodes = Nodes()
    roots = [nodes.pattern(parse(regex)) for regex in (one, other)]
    common, found = Comparisons(nodes, roots).onward(*roots)
    return common, "".join(map(chr, bits(found)))


@pytest.mark.parametrize(
    ("one", "other", "common", "found"),
    [
        ("if", "[a-c]+", False, ""),
        ("if", "[a-z]+", True, "abcdefghijklmnopqrstuvwxyz"),
        ("[a-b]+", "[a-b]+", True, "ab"),
        ("x", "xyz", False, "y"),
        ("xyz", "x", False, ""),
        ("a|abc", "ab?", True, "b"),
        ("é", "éa|è", False, "a"),
        ("a", "aé", False, "\xc3"),
        ("a*", "b?", False, ""),
    ],
)
def test_onward(one: str, other: str, common: bool, found: str) -> None:
    assert onward(one, other) == (common, found)


def test_what_is_too_large_to_ask_is_taken_to_go_on() -> None:
    nodes = Nodes()
    large, small = nodes.text("ab" * MAX_POSITIONS), nodes.text("ac")
    other = nodes.text("c")
    comparisons = Comparisons(nodes, [large, small, other])
    assert comparisons.onward(small, large) == (True, ANY_BYTE)
    assert comparisons.onward(other, large) == (False, 0)
