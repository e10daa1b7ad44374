from __future__ import annotations

import pytest

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.lark_text import HEADER
from ramet.runtime.grammar.rules.ebnf import ebnf_source


def test_a_regular_grammar_is_one_terminal() -> None:
    source = ebnf_source('root ::= "ab" [c-d]*').lark
    assert source.startswith(f"{HEADER}start: T")
    assert "\nr" not in source


def test_a_rule_over_terminals() -> None:
    lines = ebnf_source('root ::= "(" root ")" | "x"').lark.splitlines()[1:]
    names = {line.split(":")[0] for line in lines}
    mentioned = {word for line in lines for word in line.split()[1:] if word[0] in "rT"}
    assert mentioned == names - {"start"}


def test_sizes() -> None:
    with pytest.raises(GrammarError, match=r"^ebnf: too large: .* 3,003,00. parts, and at most"):
        ebnf_source('root ::= (("a" | "b" root){1,1000}){1,1000} | "c"')


def test_nesting() -> None:
    with pytest.raises(GrammarError, match=r"^ebnf: rules are nested deeper than 1000"):
        ebnf_source("root ::= " + '("a" ' * 2000 + 'root? "c"' + ")" * 2000)
