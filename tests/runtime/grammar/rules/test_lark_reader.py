from __future__ import annotations

import sys

import pytest

from ramet.runtime.errors import GrammarError, UnsupportedFeature
from ramet.runtime.grammar.rules.lark_reader import Statements, common_terminals, lark_package


def test_statements() -> None:
    found = Statements('start: A\nA: "x"\n%ignore " "\n%import common (INT, WS)\n')
    assert list(found.definitions) == ["start", "A"]
    assert len(found.ignored) == 1
    assert found.aliases == {"INT": "common.INT", "WS": "common.WS"}


def test_common_is_lark_s() -> None:
    assert {"INT", "CNAME", "ESCAPED_STRING", "NEWLINE"} <= set(common_terminals())


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lark", None)
    with pytest.raises(UnsupportedFeature, match="needs the package lark"):
        lark_package()


def test_an_end_within_a_rule() -> None:
    with pytest.raises(GrammarError, match=r"^lark: line 2, column"):
        Statements('start: "a"\nA')
