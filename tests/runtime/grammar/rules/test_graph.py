from __future__ import annotations

from ramet.runtime.grammar.rules import graph
from ramet.runtime.grammar.rules.ebnf import ebnf_book


def test_productive() -> None:
    book = ebnf_book('root ::= a | b\na ::= a "x"\nb ::= c{0} a? | "y" a\nc ::= a c')
    found = dict(zip(book.names, graph.productive(book), strict=True))
    assert found == {"root": True, "a": False, "b": True, "c": False}


def test_why_there_are_no_texts() -> None:
    book = ebnf_book('root ::= "x" a\na ::= b b\nb ::= "y" | a\nb2 ::= "z"'.replace('"y" | ', ""))
    names = [book.names[rule] for rule in graph.empty_because(book, graph.productive(book))]
    assert names == ["root", "a", "b", "a"]


def test_components_come_after_what_they_lead_to() -> None:
    arrows = {"a": "bd", "b": "c", "c": "b", "d": "c", "e": "a"}
    found = graph.components("a", lambda name: arrows[name])
    assert [sorted(component) for component in found] == [["b", "c"], ["d"], ["a"]]


def test_components_of_long_paths() -> None:
    count = 20_000
    found = graph.components(0, lambda node: [node + 1] if node < count else [])
    assert found[0] == [count]
    assert len(found) == count + 1
