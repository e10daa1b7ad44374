from __future__ import annotations

import pytest

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.rules.assembly import source
from ramet.runtime.grammar.rules.ebnf import ebnf_book
from ramet.runtime.grammar.rules.lark_rules import lark_book


def test_everything_is_enforced() -> None:
    found = source("ebnf", ebnf_book('root ::= "a"'))
    assert found.unenforced == ()
    assert found == source("ebnf", ebnf_book('root ::= "a"'))


def test_a_skip_that_cant_be_told_apart_is_named() -> None:
    with pytest.raises(GrammarError, match=r"^lark: %ignore COMMENT: .* follows \"/\""):
        source("lark", lark_book('start: "x" ("/" "x")*\nCOMMENT: /\\/\\/.*/\n%ignore COMMENT'))
