from __future__ import annotations

from ramet.runtime.grammar.rules.ebnf import ebnf_book
from ramet.runtime.grammar.rules.plan import Call, Choice, Many, Plan, Sequence, Terminal
from ramet.runtime.grammar.rules.solving import solved


def plan(grammar: str) -> Plan:
    return Plan(solved("ebnf", ebnf_book(grammar)))


def test_what_is_regular_is_one_terminal() -> None:
    found = plan('root ::= a b\na ::= "x"+\nb ::= a | "y" b')
    assert isinstance(found.items[found.start], Terminal)
    assert len(found.items) == 1


def test_neighbours_and_options_are_one_terminal_each() -> None:
    found = plan('root ::= "a" "b" root "c" | "d" | "e"')
    choice = found.items[found.start]
    assert isinstance(choice, Choice)
    kinds = [type(found.items[item]) for item in choice.items]
    assert kinds == [Terminal, Sequence]
    (sequence,) = (found.items[item] for item in choice.items[1:])
    assert isinstance(sequence, Sequence)
    assert [type(found.items[item]) for item in sequence.items] == [Terminal, Call, Terminal]


def test_splitting() -> None:
    found = plan('root ::= "a" [b-c]*')
    found.split(found.start)
    (first, second) = found.terminals()
    assert found.is_single(first)
    assert found.num_wide() == 0
    found.split(second)
    assert isinstance(found.items[second], Many)
    assert found.num_wide() == 1


def test_repeated_choices_keep_terminals_apart() -> None:
    found = plan('root ::= node*\nnode ::= [a-z]+ | "(" node* ")"')
    assert found.num_wide() == 0
    sequences = [item for item in found.items if isinstance(item, Sequence)]
    assert any(isinstance(found.items[item.items[0]], Terminal) for item in sequences)
