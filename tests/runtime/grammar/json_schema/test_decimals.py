"""Languages of numbers are exact, and so are their complements."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction

import llguidance
import pytest

from ramet.runtime.grammar.json_schema.decimals import Decimals, spellings
from ramet.runtime.grammar.json_schema.language import Language, all_of, not_
from ramet.runtime.grammar.json_schema.spelling import Terminals

PLAIN = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")
SCIENTIFIC = re.compile(PLAIN.pattern + r"([eE][-+]?\d{1,3})?")
LONG = "-1234567890123456789012345678901.234"
BOUNDS = [
    LONG,
    "0",
    "1",
    "4",
    "9",
    "10",
    "-40",
    "7",
    "1003",
    "0.5",
    "2.25",
    "-0.05",
    "99.99",
    "0.001",
    "-1000",
    "999",
]
STEPS = [
    "1",
    "2",
    "4",
    "5",
    "8",
    "10",
    "0.01",
    "0.5",
    "0.25",
    "100",
    "0.1",
    "2.5",
    "25",
    "1000",
    "0.05",
    "0.00000001",
    "20",
]


def matcher(language: Language) -> Callable[[str], bool]:
    terminals = Terminals()
    name = terminals.text(language)
    lines = "\n".join(f"{known}: {text}" for known, text in terminals.lines.items())
    native = llguidance.LLMatcher
    start = native(
        llguidance.LLTokenizer("byte"), native.grammar_from_lark(f"start: {name}\n{lines}")
    )
    assert not start.is_error(), start.get_error()

    def accepts(text: str) -> bool:
        copy, data = start.deep_copy(), list(text.encode())
        return copy.try_consume_tokens(data) == len(data) and copy.is_accepting()

    return accepts


def numbers(near: str) -> list[str]:
    source, exact = random.Random(near), Context(prec=100)
    found = {"0", "-0", "0.0", "-0.00", "02", "-", ".5", "1.", "3.e1", "+1", "1e5"}
    for step in ["0", "1", "-1", "0.1", "-0.1", "0.01", "-0.01", "10", "-10", "0.001", "9", "99"]:
        value = exact.add(Decimal(near), Decimal(step))
        text = format(value, "f")
        found |= {text, text + ("0" if "." in text else ".0"), format(value.copy_negate(), "f")}
    for _ in range(150):
        value = Decimal(source.randint(-20000, 20000)).scaleb(-source.randint(0, 4))
        found |= {format(value, "f"), format(value.normalize(), "f")}
    return sorted(found)


@pytest.mark.parametrize("bound", BOUNDS)
def test_bounds(bound: str):
    decimals, limit = Decimals(False), Decimal(bound)
    for language, holds in (
        (decimals.at_least(limit), lambda value: value >= limit),
        (decimals.above(limit), lambda value: value > limit),
        (decimals.equal(limit), lambda value: value == limit),
    ):
        inside, outside = matcher(language), matcher(all_of((decimals.every, not_(language))))
        for text in numbers(bound):
            is_number = PLAIN.fullmatch(text) is not None
            assert inside(text) == (is_number and holds(Decimal(text))), text
            assert outside(text) == (is_number and not holds(Decimal(text))), text


@pytest.mark.parametrize("step", STEPS)
def test_multiples(step: str):
    decimals, unit = Decimals(False), Decimal(step)
    language = decimals.multiples(unit)
    assert language is not None
    inside, outside = matcher(language), matcher(all_of((decimals.every, not_(language))))
    for text in numbers(step):
        is_number = PLAIN.fullmatch(text) is not None
        assert inside(text) == (is_number and Fraction(text) % Fraction(unit) == 0), text
        assert outside(text) == (is_number and Fraction(text) % Fraction(unit) != 0), text


def test_multiples_that_last_digits_do_not_tell():
    for step in ("3", "7", "0.3", "60"):
        assert Decimals(False).multiples(Decimal(step)) is None


def test_exponents_and_signs():
    decimals, zero = Decimals(True), Decimal(0)
    for language, holds in (
        (decimals.every, lambda value: True),
        (decimals.at_least(zero), lambda value: value >= 0),
        (decimals.above(zero), lambda value: value > 0),
    ):
        accepts = matcher(language)
        for text in [
            "0",
            "-0",
            "0e5",
            "-0.0e1",
            "1e5",
            "-1E-5",
            "0.001e3",
            "1e08",
            "1e+10",
            "3.e1",
            "1e",
            "0.0",
            "12",
            "-3.5e+07",
        ]:
            expected = SCIENTIFIC.fullmatch(text) is not None and holds(Decimal(text))
            assert accepts(text) == expected, text
        assert not accepts("1e400")


def test_spellings_are_as_written_and_as_writers_write():
    assert spellings(5).texts == ("5",)
    assert spellings(Decimal("1.50")).texts == ("1.5", "1.50")
    assert "1.0" in spellings(Decimal("1.0")).texts
