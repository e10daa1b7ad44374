from __future__ import annotations

import time

import lark
import pytest

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.rules.tree import parse_tree

SUMS = 'start: e\n?e: e "+" t -> add | t\n?t: N\nN: /[0-9]+/\n%ignore " "'


def test_a_tree_is_lark_s_own() -> None:
    tree = parse_tree(SUMS, "1 + 22 +3")
    assert isinstance(tree, lark.Tree)
    assert tree == lark.Lark(SUMS).parse("1 + 22 +3")


def test_terminals_end_anywhere_if_they_have_to() -> None:
    assert parse_tree("start: /[a-z]+/ /[a-z]/", "abc").children == ["ab", "c"]


def test_empty_terminals_leave_nothing() -> None:
    grammar = 'start: row+\nrow: ">" REST /b*|c?/ NL\nREST: /a*/ | "x"?\nNL: "\\n"'
    rows = parse_tree(grammar, ">\n>aab\n>xc\n").children
    assert [row.children for row in rows] == [["\n"], ["aa", "b", "\n"], ["x", "c", "\n"]]


def test_what_is_ignored_at_the_end() -> None:
    tree = parse_tree('start: "ab" | Z\nZ: /a*b/ /c?/\n%ignore " "\n%ignore "c"', "ab c ")
    assert isinstance(tree, lark.Tree)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("1 +\n x", "line 1, column 4: '.n x' can't follow"),
        ("1 + x", "line 1, column 5: 'x' can't follow"),
        ("1 +", "it ends before it is a whole one"),
        ("", "it ends before it is a whole one"),
    ],
)
def test_a_text_that_is_none_of_the_grammar_s(document: str, message: str) -> None:
    with pytest.raises(GrammarError, match=f"^lark: the text doesn't satisfy .*{message}"):
        parse_tree(SUMS, document)


def test_hostile_ambiguity_takes_no_longer_than_it_may() -> None:
    begun = time.monotonic()
    with pytest.raises(GrammarError, match="in the time allowed"):
        parse_tree('start: start start | "a" | ', "a" * 300, seconds=1)
    assert time.monotonic() - begun < 10


def test_what_lark_would_write_out_endlessly_is_refused() -> None:
    with pytest.raises(GrammarError, match="different sequences"):
        parse_tree("start: " + '"a"? ' * 40, "a")


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ("start: x\n%import .other.x", "only terminals of common"),
        ("start: /(?!a)b/", "line 1, column 8"),
        ("start: E\nE: /x{0}/", "only ever empty"),
    ],
)
def test_grammars_are_refused_as_before(grammar: str, message: str) -> None:
    with pytest.raises(GrammarError, match=message):
        parse_tree(grammar, "b")


def test_deep_texts() -> None:
    tree = parse_tree('start: "(" start ")" | "a"', "(" * 2000 + "a" + ")" * 2000)
    depth = 0
    while tree.children:
        (tree,) = tree.children
        depth += 1
    assert depth == 2000
