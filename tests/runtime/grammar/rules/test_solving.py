from __future__ import annotations

import pytest

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.rules.ebnf import ebnf_book
from ramet.runtime.grammar.rules.solving import MAX_DEPTH, solved


def is_regular(grammar: str) -> bool:
    book = solved("ebnf", ebnf_book(grammar))
    return book.nodes.is_regular(book.bodies[book.start])


@pytest.mark.parametrize(
    "grammar",
    [
        'root ::= a b\na ::= "x" b\nb ::= "y"?',
        'root ::= root "," "x" | "x"',
        'root ::= "x" ("," root)?',
        'root ::= root "+" root | "-" root | root "!" | "x"',
        'root ::= a\na ::= b "x" | "y"\nb ::= a "z" | c\nc ::= b | "w" | c "v"',
        'root ::= "x" a | "y"\na ::= "z" root | "" | a2\na2 ::= ("," a | "w")',
        "root ::= p '!'\np ::= q | p 'k' | ''\nq ::= p",
    ],
)
def test_recursion_at_one_end_is_solved(grammar: str) -> None:
    assert is_regular(grammar)


@pytest.mark.parametrize(
    "grammar", ['root ::= "(" root ")" | "x"', 'root ::= a\na ::= "x" b "y" | "z"\nb ::= a a']
)
def test_recursion_within_stays(grammar: str) -> None:
    assert not is_regular(grammar)


def test_what_nests_too_deep_stays_rules() -> None:
    grammar = "root ::= r0\n" + "".join(f'r{i} ::= "a" r{i + 1}? "b"\n' for i in range(MAX_DEPTH))
    assert not is_regular(grammar + f'r{MAX_DEPTH} ::= "c"')


def test_without_texts() -> None:
    with pytest.raises(GrammarError, match=r"^lark: no text satisfies it"):
        solved("lark", ebnf_book("root ::= root"))
