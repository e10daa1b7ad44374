"""Numbers as texts: which decimals lie above a bound, are whole, or are multiples.

A `Decimals` says what a number may look like at all. Its languages are exact on such texts: each
has all spellings (`5`, `5.0`, `5.00`) of its numbers, so that complements are complements.
"""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from fractions import Fraction
from typing import Final

from ramet.runtime.grammar.json_schema.language import (
    EMPTY,
    Chars,
    Language,
    Words,
    all_of,
    any_of,
    cat,
    not_,
    repeat,
)

MAX_RUN: Final = 40
"""Digits before, and after, the point of a generated number, so that a run of digits ends."""
MAX_ENDINGS: Final = 2_000
"""Endings of numbers that are told apart for a `multipleOf`."""

_DIGIT: Final = Chars(((48, 57),))
_NONZERO: Final = Chars(((49, 57),))
_MINUS: Final = Words(("-",))
_SIGN: Final = Words(("", "-"))
_POINT: Final = Words((".",))
_ZERO: Final = Words(("0",))
_EXPONENT: Final = cat(
    Words(("e", "E")),
    any_of(
        (
            cat(Words(("-",)), repeat(_DIGIT, 1, 3)),
            cat(Words(("", "+")), repeat(_DIGIT, 1, 2)),
            cat(Words(("", "+")), Words(("0", "1")), _DIGIT, _DIGIT),
        )
    ),
)
"""Never beyond what a double can hold."""


@dataclasses.dataclass(frozen=True)
class Decimals:
    """Numbers of at most `run` digits before and after the point, perhaps with an exponent.

    With exponents only the sign of a number is seen: bounds other than 0, and what is more than
    that, need a Decimals without.
    """

    exponents: bool
    run: int = MAX_RUN

    @property
    def every(self) -> Language:
        """All of them."""
        return cat(_SIGN, self._unsigned)

    @property
    def _unsigned(self) -> Language:
        tail = repeat(_EXPONENT, 0, 1) if self.exponents else EMPTY
        return cat(self._whole, self._fraction, tail)

    @property
    def _whole(self) -> Language:
        return any_of((_ZERO, cat(_NONZERO, repeat(_DIGIT, 0, self.run - 1))))

    @property
    def _fraction(self) -> Language:
        return repeat(cat(_POINT, repeat(_DIGIT, 1, self.run)), 0, 1)

    @property
    def integers(self) -> Language:
        """Whole numbers as they are asked for: without a point."""
        return cat(_SIGN, self._whole)

    @property
    def whole(self) -> Language:
        """Whole numbers in any spelling."""
        assert not self.exponents
        zeros = repeat(cat(_POINT, repeat(_ZERO, 1, self.run)), 0, 1)
        return cat(_SIGN, self._whole, zeros)

    def at_least(self, bound: Decimal) -> Language:
        """Numbers from a bound on."""
        return any_of((self._above(bound), self._equal(bound)))

    def above(self, bound: Decimal) -> Language:
        """Numbers above a bound."""
        return self._above(bound)

    def equal(self, value: Decimal) -> Language:
        """One number in all its spellings."""
        return self._equal(value)

    def multiples(self, step: Decimal) -> Language | None:
        """Multiples of a step; None if they can't be told by their last digits."""
        assert not self.exponents
        share = Fraction(step)
        places = 0
        while share.denominator > 1 and places <= self.run:
            share *= 10
            places += 1
        unit = share.numerator
        if share.denominator > 1 or _digits_needed(unit) is None:
            return None
        options = []
        for length in range(places + 1):
            part = Fraction(unit, 10 ** (places - length)).numerator
            zeros = length == places
            found = self._ending(part, length, zeros)
            if found is None:
                return None
            options.append(found)
        return cat(_SIGN, any_of(options))

    def _ending(self, unit: int, length: int, zeros: bool) -> Language | None:
        """Unsigned numbers of so many decimals, whose digits make a multiple of `unit`.

        `zeros`: more decimals may follow, if they are zeros.
        """
        count = _digits_needed(unit)
        if count is None or 10**count // unit > MAX_ENDINGS:
            return None
        free = max(length - count, 0)  # Decimals that don't matter, before those that do.
        heads: dict[str, list[str]] = {}
        for value in range(0, 10**count, unit):
            digits = str(value).zfill(max(count, length)) if count or length else ""
            split = len(digits) - length
            heads.setdefault(digits[split:][free:], []).append(digits[:split])
        padding = any_of((EMPTY, cat(_NONZERO, repeat(_DIGIT, 0, self.run))))
        options: list[Language] = []
        for tail, found in heads.items():
            wholes = self._whole
            if count > length:
                short = Words(tuple(dict.fromkeys(head.lstrip("0") or "0" for head in found)))
                wholes = any_of((cat(padding, Words(tuple(found))), short))
                wholes = all_of((wholes, self._whole))
            decimals = cat(_POINT, repeat(_DIGIT, free, free), Words((tail,))) if length else EMPTY
            options.append(cat(wholes, decimals))
        more: Language = EMPTY
        if zeros:
            more = repeat(_ZERO, 0, self.run)
            if not length:
                more = repeat(cat(_POINT, repeat(_ZERO, 1, self.run)), 0, 1)
        return cat(any_of(options), more)

    def _above(self, bound: Decimal) -> Language:
        if bound >= 0:
            return self._more(bound)
        size = bound.copy_negate()  # A minus sign would round.
        smaller = all_of((self._unsigned, not_(self._more(size)), not_(self._same(size))))
        return any_of((self._unsigned, cat(_MINUS, smaller)))

    def _equal(self, value: Decimal) -> Language:
        if value == 0:
            return cat(_SIGN, self._same(value))
        return cat(_MINUS, self._same(value.copy_abs())) if value < 0 else self._same(value)

    def _same(self, value: Decimal) -> Language:
        """Unsigned numbers that are `value`."""
        if self.exponents:
            assert value == 0
            return all_of((self._unsigned, not_(self._more(value))))
        whole, decimals = _written(value)
        if not decimals:
            zeros = repeat(cat(_POINT, repeat(_ZERO, 1, self.run)), 0, 1)
            return cat(Words((whole,)), zeros)
        return cat(Words((f"{whole}.{decimals}",)), repeat(_ZERO, 0, self.run))

    def _more(self, bound: Decimal) -> Language:
        """Unsigned numbers above a bound that isn't negative."""
        if bound == 0:
            some = any_of((_POINT, _DIGIT))
            mantissa = cat(repeat(some, 0, None), _NONZERO, repeat(some, 0, None))
            tail = repeat(_EXPONENT, 0, 1) if self.exponents else EMPTY
            return all_of((self._unsigned, cat(mantissa, tail)))
        assert not self.exponents
        whole, decimals = _written(bound)
        options = [
            cat(_NONZERO, repeat(_DIGIT, len(whole), max(self.run, len(whole))), self._fraction)
        ]
        for at, digit in enumerate(whole):
            if digit < "9":
                rest = len(whole) - at - 1
                options.append(
                    cat(
                        Words((whole[:at],)),
                        Chars(((ord(digit) + 1, 57),)),
                        repeat(_DIGIT, rest, rest),
                        self._fraction,
                    )
                )
        after = repeat(_DIGIT, 0, self.run)
        for at, digit in enumerate(decimals):
            if digit < "9":
                begin = Words((f"{whole}.{decimals[:at]}",))
                options.append(cat(begin, Chars(((ord(digit) + 1, 57),)), after))
        begin = Words((f"{whole}.{decimals}",))
        options.append(cat(begin, repeat(_ZERO, 0, self.run), _NONZERO, after))
        return all_of((self._unsigned, any_of(options)))


def spellings(value: int | Decimal) -> Words:
    """How a schema's number is asked for: as it is written there, and as JSON writers write it."""
    if isinstance(value, int):
        return Words((str(value),))
    text = format(value, "f")
    short = text.rstrip("0").rstrip(".") if "." in text else text
    found = [short, text, repr(float(value))]
    return Words(tuple(dict.fromkeys(text for text in found if text not in ("inf", "-inf"))))


def _written(value: Decimal) -> tuple[str, str]:
    """The digits before and after the point, without zeros that say nothing."""
    whole, _, decimals = format(value, "f").partition(".")
    return whole, decimals.rstrip("0")


def _digits_needed(unit: int) -> int | None:
    """How many last digits tell whether a number is a multiple; None if all of them."""
    counts = []
    for prime in (2, 5):
        count = 0
        while unit % prime == 0:
            unit //= prime
            count += 1
        counts.append(count)
    return max(counts) if unit == 1 else None
