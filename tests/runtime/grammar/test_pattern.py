from __future__ import annotations

from ramet.runtime.grammar.pattern import (
    EMPTY,
    NOWHERE,
    Alt,
    Cat,
    Chars,
    Repeat,
    alt,
    cat,
    num_positions,
    repeat,
)

A, B = Chars(((97, 97),)), Chars(((98, 98),))


def test_sequences_are_flat() -> None:
    assert cat([A, cat([B, A]), EMPTY]) == Cat((A, B, A))
    assert cat([A]) == A
    assert cat([]) == EMPTY
    assert cat([A, NOWHERE]) == NOWHERE


def test_choices_drop_what_nothing_matches_and_duplicates() -> None:
    assert alt([A, NOWHERE, B, A]) == Alt((A, B))
    assert alt([A, A]) == A
    assert alt([NOWHERE]) == NOWHERE
    assert alt([A, EMPTY]) == Alt((A, EMPTY))


def test_repetitions_of_little_are_simple() -> None:
    assert repeat(A, 1, 1) == A
    assert repeat(A, 0, 0) == EMPTY
    assert repeat(EMPTY, 3, None) == EMPTY
    assert repeat(NOWHERE, 0, 5) == EMPTY
    assert repeat(NOWHERE, 1, 5) == NOWHERE
    assert repeat(A, 2, None) == Repeat(A, 2, None)


def test_positions_count_repetitions() -> None:
    assert num_positions(cat([A, alt([A, cat([A, B])]), repeat(A, 2, 50)])) == 1 + 3 + 50
    assert num_positions(repeat(repeat(A, 0, 10), 3, None)) == 40
