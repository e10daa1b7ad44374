"""Pattern: a regular language as a small tree, after all of a dialect's conveniences are gone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ramet.runtime.grammar.charset import Ranges


@dataclasses.dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set; of none, it is the language that nothing belongs to."""

    ranges: Ranges


@dataclasses.dataclass(frozen=True, slots=True)
class Cat:
    """One after another; of no parts, the empty text."""

    parts: tuple[Pattern, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Alt:
    """Any of at least two."""

    options: tuple[Pattern, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Repeat:
    """`low` to `high` times, or any number from `low` on."""

    body: Pattern
    low: int
    high: int | None


Pattern = Chars | Cat | Alt | Repeat

EMPTY = Cat(())
NOWHERE = Chars(())


def cat(parts: Iterable[Pattern]) -> Pattern:
    """A sequence, flattened."""
    flat: list[Pattern] = []
    for part in parts:
        if part == NOWHERE:
            return NOWHERE
        flat.extend(part.parts if isinstance(part, Cat) else (part,))
    return flat[0] if len(flat) == 1 else Cat(tuple(flat))


def alt(options: Iterable[Pattern]) -> Pattern:
    """A choice, without the options that nothing matches and without duplicates."""
    kept = dict.fromkeys(option for option in options if option != NOWHERE)
    if not kept:
        return NOWHERE
    return next(iter(kept)) if len(kept) == 1 else Alt(tuple(kept))


def repeat(body: Pattern, low: int, high: int | None) -> Pattern:
    """A repetition; of nothing or of no text it is simpler."""
    if high == 0 or body == EMPTY:
        return EMPTY
    if body == NOWHERE:
        return EMPTY if low == 0 else NOWHERE
    return body if low == high == 1 else Repeat(body, low, high)


def num_positions(pattern: Pattern) -> int:
    """How many characters the pattern would have with all its counts written out."""
    match pattern:
        case Chars():
            return 1
        case Cat():
            return sum(map(num_positions, pattern.parts))
        case Alt():
            return sum(map(num_positions, pattern.options))
        case Repeat():
            times = pattern.low + 1 if pattern.high is None else pattern.high
            return num_positions(pattern.body) * times
