from __future__ import annotations

import pytest

from ramet.runtime.grammar.rules.ebnf import ebnf_book
from ramet.runtime.grammar.rules.lexing import exact_plan
from ramet.runtime.grammar.rules.plan import Plan
from ramet.runtime.grammar.rules.solving import solved


def exact(grammar: str) -> Plan:
    def refuse(terminal: int, skip: int) -> None:
        raise AssertionError((terminal, skip))

    return exact_plan(solved("ebnf", ebnf_book(grammar)), refuse)


@pytest.mark.parametrize(
    "grammar",
    [
        'root ::= "(" root ")" | [a-z]+',
        'root ::= "[" (root ("," root)*)? "]" | [0-9]+ ("." [0-9]+)? | "\\"" [^"]* "\\""',
        'root ::= "if " root ";" | [a-z]+',
        'root ::= ([a-z ]+ | "(" root ")")*',
    ],
)
def test_large_terminals_stay(grammar: str) -> None:
    assert exact(grammar).num_wide() == 0


@pytest.mark.parametrize(
    "grammar",
    ['root ::= "(" root ")" | [a-z]+ [a-z]', 'root ::= "(" root ")" root | [a-z]+ root | "-"'],
)
def test_terminals_that_go_on_are_fine_where_nothing_is_lost(grammar: str) -> None:
    assert exact(grammar).num_wide() == 0


def test_terminals_that_lose_texts_are_taken_apart() -> None:
    assert exact('root ::= "(" root ")" | "a" root "ab" | [ab]').num_wide() == 1


def test_terminals_are_carved_at_words() -> None:
    grammar = 'root ::= "return" root ";" | [a-z]+ | "(" root ")"'
    assert exact(grammar).num_wide() == 0
