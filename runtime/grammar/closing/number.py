"""Numbers: bounds that a number keeps, and how a begun one gets within them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ramet.runtime.grammar.closing.automaton import FAR

MAX_DIGITS = 400
"""Digits that are added to a number at most."""
MAX_EXPONENT = 400
"""Of a larger one, the value isn't computed."""

_TEXT = re.compile(rb"(-?)([0-9]*)(?:(\.)([0-9]*))?([eE][+-]?)?([0-9]*)")
_WHOLE = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")

Bound = tuple[Fraction, bool]
"""A value, and whether it is excluded."""


class Numbers:
    """Numbers between bounds, multiples of a step, whole or not."""

    __slots__ = ("high", "integer", "least", "low", "step", "text", "worst")

    def __init__(
        self, integer: bool, low: Bound | None, high: Bound | None, step: Fraction | None
    ) -> None:
        self.integer = integer
        self.low = low
        self.high = high
        self.step = step
        self.worst = 2 + self._most_digits()
        """Nothing that completes a number is longer."""
        found = [*self.completions(b""), *(b"-" + rest for rest in self.completions(b"-"))]
        self.text = min(found, key=len, default=b"")
        """The shortest."""
        self.least = len(self.text) if found else FAR

    def has(self, value: Fraction) -> bool:
        """Whether a number is one of them."""
        low, high = self.low, self.high
        if low and (value < low[0] or (low[1] and value == low[0])):
            return False
        if high and (value > high[0] or (high[1] and value == high[0])):
            return False
        if self.integer and value.denominator != 1:
            return False
        return self.step is None or (value / self.step).denominator == 1

    def takes(self, text: bytes) -> bool:
        """Whether a text is one of them."""
        if not _WHOLE.fullmatch(text):
            return False
        if not (self.low or self.high or self.step or self.integer):
            return True
        if len(text) > MAX_DIGITS:
            return True
        if self.integer and not (self.low or self.high or self.step):
            return text.lstrip(b"-").isdigit()
        exponent = re.search(rb"[eE]([+-]?[0-9]+)", text)
        if exponent and abs(int(exponent[1])) > MAX_EXPONENT:
            return True
        return self.has(Fraction(text.decode()))

    def completions(self, text: bytes) -> list[bytes]:
        """What makes a begun number one of them; a few, the shortest first."""
        match = _TEXT.fullmatch(text)
        if match is None or len(text) > MAX_DIGITS:
            return [b""] if _WHOLE.fullmatch(text) else [b"0"]
        sign, digits, dot, places, exponent, _ = match.groups()
        found = [b""] if self.takes(text) else []
        way = -1 if sign else 1
        if exponent:
            rests = (b"0", b"1", b"2", b"3", b"5", b"9", b"00", b"01", b"10")
            found += [rest for rest in rests if self.takes(text + rest)]
        elif dot or digits != b"0":
            found += self._more_digits(way, digits, places or b"", bool(dot))
        if not dot and digits and not exponent and not self.integer:
            found += [b"." + rest for rest in self._more_digits(way, digits, b"", True)]
        if not (found or dot or exponent or self.integer) and digits != b"0":
            found = self._more_then_places(way, digits)
        # Minus zero is a number that grammars tend to forget.
        return sorted(dict.fromkeys(found), key=lambda rest: (len(rest), text + rest == b"-0"))[:8]

    def _more_digits(self, sign: int, digits: bytes, places: bytes, after: bool) -> list[bytes]:
        """Digits to add, `after` the point or before."""
        fixed = int(digits + places or b"0")
        found: list[bytes] = []
        for more in range(1, self.worst):
            scale = 10 ** (len(places) + more if after else 0)
            first = fixed * 10**more
            last = first + 10**more - 1
            if not digits and more > 1:
                first = 10 ** (more - 1)
            for chosen in self._within(sign, first, last, scale):
                text = str(chosen).encode().rjust(len(digits) + len(places) + more, b"0")
                found.append(text[-more:])
            if len(found) >= 3:
                break
        return found

    def _more_then_places(self, sign: int, digits: bytes) -> list[bytes]:
        """Digits to add, then a point and places: where no whole number is one of them."""
        low, high = (self.low, self.high) if sign > 0 else (self.high, self.low)
        for more in range(1, self.worst):
            first = int(digits or b"0") * 10**more
            last = first + 10**more - 1
            if not digits and more > 1:
                first = 10 ** (more - 1)
            if low:
                first = max(first, math.floor(low[0] * sign))
            if high:
                last = min(last, math.floor(high[0] * sign))
            for whole in sorted({first, min(first + 1, last), last}) if first <= last else ():
                text = b"%d" % whole
                places = self._more_digits(sign, text, b"", True)
                if places and len(text) == len(digits) + more:
                    return [text[len(digits) :] + b"." + each for each in places]
        return []

    def _within(self, sign: int, first: int, last: int, scale: int) -> Iterator[int]:
        """The ends of what is between two whole numbers and, over `scale`, one of these."""
        below, above = (self.low, self.high) if sign > 0 else (self.high, self.low)
        if below:
            edge = below[0] * sign * scale
            first = max(first, math.floor(edge) + 1 if below[1] else math.ceil(edge))
        if above:
            edge = above[0] * sign * scale
            last = min(last, math.ceil(edge) - 1 if above[1] else math.floor(edge))
        unit = scale if self.integer else 1
        if self.step is not None:
            unit = math.lcm(unit, (self.step * scale).numerator)
        first = -(-first // unit) * unit
        last = last // unit * unit
        if first <= last:
            yield first
            if last != first:
                yield last

    def _most_digits(self) -> int:
        """Digits that bounds and step may need, generously."""
        edges = [bound[0] for bound in (self.low, self.high) if bound]
        digits = sum(_size(edge) for edge in edges) + (2 * _size(self.step) if self.step else 0)
        if len(edges) == 2 and edges[0] != edges[1]:
            digits += _size(edges[1] - edges[0])
        return min(MAX_DIGITS, digits + 1)


def of_schemas(schemas: Iterable[Mapping[str, Any]], integer: bool) -> Numbers | None:
    """The numbers that all schemas allow; None if there are none."""
    low: Bound | None = None
    high: Bound | None = None
    step: Fraction | None = None
    for words in schemas:
        for keyword, is_open in (("minimum", False), ("exclusiveMinimum", True)):
            if keyword in words:
                bound = exact(words[keyword]), is_open
                low = bound if low is None or bound > low else low
        for keyword, is_open in (("maximum", False), ("exclusiveMaximum", True)):
            if keyword in words:
                bound = exact(words[keyword]), is_open
                tighter = high is None or (bound[0], not is_open) < (high[0], not high[1])
                high = bound if tighter else high
        if "multipleOf" in words:
            each = exact(words["multipleOf"])
            step = each if step is None else _lcm(step, each)
    numbers = Numbers(integer, low, high, step)
    return numbers if numbers.least < FAR else None


def is_number(value: Any) -> bool:
    """Whether a value read from JSON is a number."""
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def exact(value: int | Decimal) -> Fraction:
    """The number that the schema's text has."""
    return Fraction(value)


def _size(value: Fraction) -> int:
    """Digits to write a value, its inverse's size included."""
    return len(str(abs(value.numerator))) + len(str(value.denominator))


def _lcm(one: Fraction, other: Fraction) -> Fraction:
    below = math.lcm(one.denominator, other.denominator)
    return Fraction(math.lcm(int(one * below), int(other * below)), below)
