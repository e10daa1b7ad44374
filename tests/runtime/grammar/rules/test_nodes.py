from __future__ import annotations

from ramet.runtime.grammar.dialect import parse
from ramet.runtime.grammar.rules.nodes import HUGE, Alt, Cat, Chars, Nodes, Repeat


def test_equal_expressions_are_one_node() -> None:
    nodes = Nodes()
    assert nodes.text("ab") == nodes.cat([nodes.text("a"), nodes.empty, nodes.text("b")])
    assert nodes.pattern(parse("ab|c")) == nodes.alt([nodes.text("ab"), nodes.text("c")])


def test_what_no_text_is_vanishes() -> None:
    nodes = Nodes()
    a = nodes.text("a")
    assert nodes.cat([a, nodes.nowhere]) == nodes.nowhere
    assert nodes.alt([a, nodes.nowhere]) == a
    assert nodes.alt([]) == nodes.nowhere
    assert nodes.repeat(nodes.nowhere, 0, None) == nodes.empty
    assert nodes.repeat(nodes.nowhere, 1, None) == nodes.nowhere


def test_single_characters_of_a_choice_are_a_set() -> None:
    nodes = Nodes()
    choice = nodes[nodes.alt([nodes.text("a"), nodes.text("xy"), nodes.text("b")])]
    assert isinstance(choice, Alt)
    assert nodes[choice.parts[0]] == Chars(((97, 98),))


def test_repetitions_side_by_side_are_one() -> None:
    nodes = Nodes()
    a = nodes.text("a")
    maybe = nodes.repeat(a, 0, 1)
    assert nodes[nodes.cat([maybe] * 30)] == Repeat(a, 0, 30)
    assert nodes[nodes.cat([a, nodes.repeat(a, 0, None)])] == Repeat(a, 1, None)
    assert nodes[nodes.repeat(maybe, 2, 5)] == Repeat(a, 0, 5)
    assert nodes[nodes.repeat(nodes.repeat(a, 1, None), 0, None)] == Repeat(a, 0, None)
    assert nodes[nodes.text("aa")] == Cat((a, a))


def test_sizes_stop_growing() -> None:
    nodes = Nodes()
    node = nodes.text("a")
    for _ in range(200):
        node = nodes.cat([node, nodes.text("b"), node])
    assert nodes.size(node) == HUGE
    assert nodes.depth(node) == 200


def test_rebuilding_changes_what_mentions_rules_only() -> None:
    nodes = Nodes()
    rule = nodes.ref(3)
    whole = nodes.alt([nodes.cat([rule, nodes.text("x")]), nodes.text("yz")])
    assert nodes.rules(whole) == [3]
    assert not nodes.is_regular(whole)
    (found,) = nodes.rebuilt([whole], {rule: nodes.text("q")})
    assert found == nodes.alt([nodes.text("qx"), nodes.text("yz")]) or nodes.is_regular(found)
    assert nodes.rules(found) == []
