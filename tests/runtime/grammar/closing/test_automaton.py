"""Automata agree with Python's engine and know their shortest completions."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.grammar import dialect
from ramet.runtime.grammar.closing.automaton import FAR, Automaton, TooLarge, completion

PATTERNS = ("a*b", "(ab|cd){2,3}", "[a-c]{3}|d", "x?y+(z|)", "(a|b)*abb", "a{0,5}c")


@pytest.mark.parametrize("pattern", PATTERNS)
@given(text=st.text("abcdxyz", max_size=8))
def test_the_same_texts_match(pattern, text):
    automaton = Automaton(dialect.parse(pattern))
    assert automaton.matches(text) == bool(re.fullmatch(pattern, text))


@pytest.mark.parametrize("pattern", PATTERNS)
@given(text=st.text("abcdxyz", max_size=6))
def test_a_completion_completes_and_is_as_long_as_was_said(pattern, text):
    automaton = Automaton(dialect.parse(pattern))
    state = automaton.after(text)
    found = completion([automaton], [state], 0, None)
    if state.distance >= FAR:
        assert found is None
    else:
        assert found is not None
        assert len(found) == state.distance <= automaton.farthest
        assert re.fullmatch(pattern, text + found.decode())


def test_lengths_are_kept():
    automaton = Automaton(dialect.parse("(ab)*"))
    assert completion([automaton], [automaton.start], 3, None) == b"abab"
    assert completion([automaton], [automaton.start], 3, 3) is None
    assert completion([], [], 3, 5) == b"aaa"
    assert completion([], [], 6, 5) is None


def test_several_patterns_at_once():
    both = [Automaton(dialect.parse(pattern)) for pattern in ("(aa)*b", "(aaa)*b")]
    assert completion(both, [each.after("a") for each in both], 0, None) == b"aaaaab"
    never = [Automaton(dialect.parse(pattern)) for pattern in ("a+", "b+")]
    assert completion(never, [each.start for each in never], 0, None) is None


def test_what_has_to_be_escaped_costs_more():
    automaton = Automaton(dialect.parse('"\n'))
    assert automaton.start.distance == 4
    assert completion([automaton], [automaton.start], 0, None) == b'\\"\\n'


def test_a_large_pattern_is_refused():
    with pytest.raises(TooLarge):
        Automaton(dialect.parse("(a{200}){250}"))


def test_the_search_is_bounded_for_many_automata():
    automata = [Automaton(dialect.parse(f".*{a}.*{b}.*")) for a in "abcdef" for b in "ghijkl"]
    began = time.thread_time()
    completion(automata, [automaton.start for automaton in automata], 0, None)
    assert time.thread_time() - began < 2
