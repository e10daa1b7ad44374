from __future__ import annotations

import re

import pytest

from ramet.runtime.grammar.dialect import parse
from ramet.runtime.grammar.rules.automaton import MAX_POSITIONS, Alphabet, Automaton, bits
from ramet.runtime.grammar.rules.nodes import Chars, Nodes


def automaton(regex: str) -> tuple[Automaton, Alphabet]:
    nodes = Nodes()
    node = nodes.pattern(parse(regex))
    inner = (nodes[part] for part in nodes.within([node]))
    alphabet = Alphabet(part.ranges for part in inner if isinstance(part, Chars))
    return Automaton(nodes, node, alphabet, 0), alphabet


@pytest.mark.parametrize(
    "regex", ["a(b|c)*d?", "(ab?){2,3}", "[^a]b|a{2,}", "((a|b)*c)?", "(a?b?)+"]
)
def test_texts_are_those_of_re(regex: str) -> None:
    machine, alphabet = automaton(regex)
    waiting = [("", 0)]
    while waiting:
        text, state = waiting.pop()
        if text:
            assert machine.accepts(state) == bool(re.fullmatch(regex, text)), text
        for letter in "abcd" if len(text) < 5 else "":
            code = ord(letter)
            for mask, after in machine.moves(state):
                if any(first <= code <= last for first, last in alphabet.ranges(mask)):
                    waiting.append((text + letter, after))


def test_classes_of_an_alphabet() -> None:
    alphabet = Alphabet([((97, 122),), ((97, 97), (0xE9, 0xE9)), ((0x10000, 0x10FFFF),)])
    assert alphabet.ranges(alphabet.mask(((97, 122),))) == ((97, 122),)
    assert list(bits(alphabet.lead_bytes(alphabet.mask(((97, 97), (0xE9, 0xE9)))))) == [97, 0xC3]
    assert list(bits(alphabet.lead_bytes(alphabet.mask(((0x10000, 0x10FFFF),))))) == [
        0xF0,
        0xF1,
        0xF2,
        0xF3,
        0xF4,
    ]
    assert alphabet.mask(((98, 122),)) == alphabet.mask(((97, 122),)) & ~alphabet.mask(
        ((97, 97), (0xE9, 0xE9))
    )


def test_a_large_one_is_not_known() -> None:
    assert automaton("a" * MAX_POSITIONS)[0].is_known
    assert not automaton("a" * (MAX_POSITIONS + 1))[0].is_known
