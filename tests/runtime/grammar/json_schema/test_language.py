"""Languages simplify to what they are; the engine knows which are empty."""

from __future__ import annotations

from ramet.runtime.grammar.json_schema.emptiness import is_empty
from ramet.runtime.grammar.json_schema.language import (
    CHARACTER,
    EMPTY,
    EVERY,
    NOTHING,
    Chars,
    Repeat,
    Words,
    all_of,
    any_of,
    cat,
    is_larger,
    is_nullable,
    min_width,
    not_,
    num_positions,
    repeat,
)

A = Chars(((97, 97),))
B = Chars(((98, 98),))


def test_words_are_compared_at_once():
    assert all_of((Words(("a", "b")), Words(("b", "c")))) == Words(("b",))
    assert all_of((Words(("a", "b")), not_(Words(("b",))))) == Words(("a",))
    assert all_of((Words(("a",)), Words(("b",)))) == NOTHING
    assert any_of((Words(("a",)), Words(("b", "a")))) == Words(("a", "b"))


def test_neutral_and_final_parts():
    assert all_of((EVERY, A)) == A
    assert all_of(()) == EVERY
    assert any_of((NOTHING, A)) == A
    assert any_of(()) == NOTHING
    assert any_of((A, EVERY)) == EVERY
    assert cat(A, NOTHING) == NOTHING
    assert cat(EMPTY, A, EMPTY) == A
    assert not_(not_(A)) == A
    assert all_of((A, not_(A))) == NOTHING
    assert repeat(NOTHING, 0, 3) == EMPTY


def test_bounds_of_a_length_become_one():
    bounds = (repeat(CHARACTER, 2, None), repeat(CHARACTER, 0, 9), repeat(CHARACTER, 3, 12))
    assert all_of(bounds) == Repeat(CHARACTER, 3, 9)
    assert all_of((repeat(CHARACTER, 3, None), repeat(CHARACTER, 0, 2))) == NOTHING


def test_measures():
    some = cat(A, repeat(B, 2, 5))
    assert (min_width(some), num_positions(some), is_nullable(some)) == (3, 6, False)
    assert is_nullable(all_of((not_(A), repeat(A, 0, 2))))
    assert min_width(any_of((some, A))) == 1


def test_emptiness():
    assert is_empty(NOTHING)
    assert is_empty(all_of((A, B)))
    assert is_empty(all_of((repeat(A, 3, None), repeat(CHARACTER, 0, 2))))
    assert is_empty(all_of((A, not_(Words(("a",))))))
    assert not is_empty(all_of((repeat(A, 2, None), repeat(CHARACTER, 0, 2))))
    assert not is_empty(not_(A))
    assert not is_empty(EMPTY)


def test_what_is_shared_is_hashed_once():
    language = A
    for _ in range(60):
        language = any_of((all_of((language, not_(B))), all_of((B, not_(language)))))
    assert hash(language) == hash(any_of((language,)))
    assert is_larger(language, 10_000)


def test_larger_counts_all_parts():
    both = any_of((cat(A, B), repeat(A, 2, 3)))
    assert not is_larger(both, 6)
    assert is_larger(both, 5)


def test_what_bars_some_texts_only_is_not_empty():
    assert not is_empty(not_(Words(("a", "b"))))
    assert not is_empty(all_of((not_(Words(("a",))), not_(Words(("b",))))))
