from __future__ import annotations

import pytest

from ramet.runtime.grammar.compiler import Bounds, compile_constraint
from ramet.runtime.grammar.dialect import parse
from ramet.runtime.grammar.lark_text import HEADER, lark_text, lone_terminal
from ramet.runtime.grammar.spec import Constraint


def body(regex: str) -> str:
    return lark_text(parse(regex)).removeprefix(f"{HEADER}start: WHOLE\n")


def test_literals_are_one_piece() -> None:
    assert body("ab") == "WHOLE: /\\x{61}\\x{62}/\n"
    assert body("") == 'WHOLE: ""\n'


def test_what_contains_something_has_a_name() -> None:
    assert body("(ab|c*)?") == ("WHOLE: T1?\nT0: /\\x{63}/*\nT1: /\\x{61}\\x{62}/ | T0\n")


@pytest.mark.parametrize(
    ("count", "written"),
    [("*", "*"), ("+", "+"), ("?", "?"), ("{2}", "{2,2}"), ("{2,}", "{2,}"), ("{0,3}", "{0,3}")],
)
def test_counts(count: str, written: str) -> None:
    assert body(f"[ab]{count}") == f"WHOLE: /[\\x{{61}}-\\x{{62}}]/{written}\n"


def test_a_large_set_stands_there_once() -> None:
    assert len(body(r"\w" * 1000)) < 2 * len(body(r"\w\w"))


def test_deep_nesting_is_no_nesting() -> None:
    regex = "(?:" * 99 + "a" + "b)?" * 99
    grammar = compile_constraint(Constraint("regex", regex), None, Bounds())
    matcher = grammar.byte_matcher()
    assert matcher.accepting
    assert matcher.advance(ord("a"))
    assert not matcher.accepting
    for _ in range(99):
        assert not matcher.accepting
        assert matcher.advance(ord("b"))
    assert matcher.accepting


def test_a_grammar_that_is_one_terminal() -> None:
    lark = lark_text(parse("(ab|c*)?"))
    assert lone_terminal(lark, "G_") == (
        "G_WHOLE",
        ["G_WHOLE: G_T1?", "G_T0: /\\x{63}/*", "G_T1: /\\x{61}\\x{62}/ | G_T0"],
    )
    text = f'{HEADER}start: A\nA: "A B" /A\\/ B/i B & ~A_1\nB: "b"\nA_1: /a/\n'
    assert lone_terminal(text, "X") == (
        "XA",
        ['XA: "A B" /A\\/ B/i XB & ~XA_1', 'XB: "b"', "XA_1: /a/"],
    )
    for other in ("start: a\na: A\nA: /a/", "start: A B", "start: A\nA: /a/\n%ignore / /"):
        assert lone_terminal(HEADER + other, "X") is None
