"""Numbers within bounds, from any beginning."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.grammar.closing.number import Numbers, of_schemas


def numbers(integer: bool = False, **words: Any) -> Numbers:
    found = of_schemas([words], integer)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("words", "integer", "begun", "rest"),
    [
        ({}, False, b"", b"0"),
        ({"maximum": 0}, False, b"-1.", b"0"),
        ({}, False, b"1.", b"0"),
        ({}, False, b"1e", b"0"),
        ({}, False, b"1e-", b"0"),
        ({}, True, b"12", b""),
        ({"minimum": 7, "maximum": 1003}, True, b"1", b"0"),
        ({"minimum": 7, "maximum": 1003}, True, b"9", b""),
        ({"minimum": 1000}, True, b"", b"1000"),
        ({"exclusiveMinimum": 0, "maximum": 1}, False, b"0", b".1"),
        ({"minimum": Decimal("2.5"), "maximum": Decimal("2.75")}, False, b"", b"2.5"),
        ({"minimum": Decimal("-2.75"), "maximum": Decimal("-2.5")}, False, b"-", b"2.5"),
        ({"multipleOf": 7}, True, b"1", b"4"),
        ({"multipleOf": Decimal("0.25")}, False, b"1.", b"0"),
        ({"maximum": -40}, True, b"-4", b"0"),
    ],
)
def test_the_shortest_rest(words, integer, begun, rest):
    found = numbers(integer, **words).completions(begun)
    assert found[0] == rest
    assert all(numbers(integer, **words).takes(begun + each) for each in found)


def test_bounds_that_cross_leave_none():
    assert of_schemas([{"minimum": 3}, {"maximum": 2}], False) is None
    assert of_schemas([{"exclusiveMinimum": 3}, {"maximum": 3}], False) is None
    assert of_schemas([{"minimum": 3}, {"maximum": 3}], True) is not None


def test_schemas_hold_together():
    both = of_schemas([{"multipleOf": 4, "minimum": 5}, {"multipleOf": 6, "minimum": 13}], True)
    assert both is not None
    assert both.text == b"24"


def test_minus_zero_comes_after_other_numbers():
    assert numbers(maximum=50).completions(b"-")[0] != b"0"
    assert b"0" in numbers(maximum=50).completions(b"-")


decimals = st.decimals(-2000, 2000, allow_nan=False, places=2)


@given(decimals, decimals, st.booleans(), st.decimals(-2000, 2000, places=2), st.data())
def test_every_beginning_of_a_number_has_a_rest(one, other, integer, value, data):
    found = of_schemas([{"minimum": min(one, other), "maximum": max(one, other)}], integer)
    value = value.to_integral_value() if integer else value
    if found is None or not found.has(Fraction(value)):
        return
    text = format(abs(value), "f").encode()
    text = b"-" + text if value < 0 else text
    begun = text[: data.draw(st.integers(1 + (value < 0), len(text)))]
    rests = found.completions(begun)
    assert rests, begun
    assert all(found.takes(begun + rest) for rest in rests)
    assert max(map(len, rests)) <= found.worst
