"""What single shapes know of themselves."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from ramet.runtime.grammar.closing.automaton import FAR
from ramet.runtime.grammar.closing.shapes import Arrays, Goal, Literals, Strings, quoted


def goal(least: int) -> Goal:
    found = Goal()
    found.least = least
    return found


def test_literals_are_found_by_their_beginning():
    literals = Literals({b'"green"', b'"grey"', b"7", b"true"})
    assert literals.beginning(b'"gre') == [b'"green"', b'"grey"']
    assert literals.begins(b"tr")
    assert not literals.begins(b"trx")
    assert literals.has(b"7")
    assert not literals.has(b"t")
    assert (literals.least, literals.worst, literals.text) == (1, 7, b"7")


@pytest.mark.parametrize(
    ("prefix", "items", "low", "rests"),
    [
        ((), 4, 0, [1, 1, 1]),
        ((), 4, 2, [11, 6, 1]),
        ((2, 3), 4, 3, [13, 10, 6, 1, 1]),
        ((2, 3), FAR, 1, [4, 1, 1]),
        ((2,), FAR, 3, [FAR, FAR]),
    ],
)
def test_an_array_knows_what_has_to_follow(prefix, items, low, rests):
    array = Arrays(tuple(map(goal, prefix)), goal(items), low, None)
    assert [array.rest(count) for count in range(len(rests))] == rests


def test_an_array_ends_where_nothing_can_follow():
    array = Arrays((goal(1), goal(FAR)), goal(1), 0, 5)
    assert array.child(0) is not None
    assert array.child(1) is None
    assert Arrays((), goal(1), 0, 5).child(4) is not None
    assert Arrays((), goal(1), 0, 5).child(5) is None


def test_a_string_of_no_length_at_all_is_none():
    assert Strings(3, 2, ()).least == FAR
    assert Strings(3, 3, ()).text == b'"aaa"'


@pytest.mark.parametrize("value", [None, True, 1, "é\n", ["a", {"b": []}], {"c": 1, "a": "x"}])
def test_values_are_written_as_json_has_them(value):
    assert quoted(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def test_decimals_are_written_without_exponent():
    assert quoted(Decimal("1E+2")) == b"100"
    assert quoted(Decimal("0.50")) == b"0.50"
