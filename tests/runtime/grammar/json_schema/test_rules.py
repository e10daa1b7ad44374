"""Grammars lose what can't be finished, and are refused where the engine's stack would end."""

from __future__ import annotations

import pytest

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.json_schema import rules as module
from ramet.runtime.grammar.json_schema.rules import MAX_DEPTH, Rules, Times
from ramet.runtime.grammar.json_schema.trees import (
    ALWAYS,
    MAX_ALTERNATIVES,
    NEVER,
    TooMany,
    all_trees,
    alternatives,
    any_trees,
    atom,
)


def test_what_never_ends_is_dropped():
    rules = Rules()
    a = rules.terminals.named("/a/")
    rules.add("start1", a)
    rules.add("start1", a, "endless")
    rules.add("start1", Times((a, "missing"), 1, None), a)
    rules.add("endless", a, "endless")
    text = rules.lark("start1")
    assert text is not None
    assert "endless" not in text
    assert "missing" not in text
    assert f"start1: {a}\n" in text


def test_nothing_is_none():
    rules = Rules()
    rules.add("start1", "start1")
    assert rules.lark("start1") is None
    assert Rules().lark("start1") is None


def test_only_terminals_in_use_are_written():
    rules = Rules()
    used, other = rules.terminals.named("/a/"), rules.terminals.named("/b/")
    rules.add("start1", used)
    text = rules.lark("start1")
    assert text is not None
    assert other not in text


def test_depth_is_bounded():
    rules = Rules()
    end = rules.terminals.named("/a/")
    for at in range(MAX_DEPTH + 2):
        rules.add(f"r{at}", end, f"r{at + 1}")
    rules.add(f"r{MAX_DEPTH + 2}", end)
    with pytest.raises(GrammarError, match="nested too deep"):
        rules.lark("r0")


def test_size_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MAX_RULES", 3)
    rules = Rules()
    for _ in range(3):
        rules.add("r")
    with pytest.raises(GrammarError, match="too many alternatives"):
        rules.add("r")


def test_alternatives_are_all_ways_that_do_not_clash():
    tree = all_trees(
        (atom("a"), any_trees((atom("b"), atom("c"))), any_trees((atom("b"), atom("d"))), ALWAYS)
    )

    def clash(way: tuple[tuple[str, ...], ...]) -> bool:
        return ("b",) in way and ("c",) in way

    assert alternatives(tree, clash) == [
        (("a",), ("b",), ("b",)),
        (("a",), ("b",), ("d",)),
        (("a",), ("c",), ("d",)),
    ]
    assert alternatives(NEVER, clash) == []
    assert alternatives(ALWAYS, clash) == [()]
    assert all_trees((NEVER, atom("a"))) == NEVER
    assert any_trees((ALWAYS, atom("a"))) == ALWAYS


def test_too_many_alternatives():
    pair = [any_trees((atom(i, 0), atom(i, 1))) for i in range(MAX_ALTERNATIVES.bit_length())]
    with pytest.raises(TooMany):
        alternatives(all_trees(pair), lambda way: False)
