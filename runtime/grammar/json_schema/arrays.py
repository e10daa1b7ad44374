"""Arrays as rules."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from ramet.runtime.grammar.json_schema.reading import Unsupported
from ramet.runtime.grammar.json_schema.rules import Times
from ramet.runtime.grammar.json_schema.shapes import ArrayShape

if TYPE_CHECKING:
    from ramet.runtime.grammar.json_schema.builder import Builder

MAX_STATES: Final = 4_000
"""States of an array whose items are counted, each with its ways on."""


def write(builder: Builder, name: str, shape: ArrayShape) -> None:
    """Add an alternative to a rule: arrays of a shape."""
    if shape.repeated is not None:
        raise Unsupported(shape.repeated, "uniqueItems", "what must not hold of it")
    if shape.high is not None and shape.high < shape.low:
        return
    begin = builder.token("[", after=True)
    if shape.unique is not None and (shape.high is None or shape.high > 1):
        builder.rules.add(name, begin, f"{_unique(builder, shape)}::0")
    elif shape.counts:
        builder.rules.add(name, begin, _counted(builder, shape))
    else:
        builder.rules.add(name, begin, _plain(builder, shape))


def _plain(builder: Builder, shape: ArrayShape) -> str:
    """What follows the bracket: the items that differ, then a run of those that don't."""
    rules = builder.rules
    comma, end = builder.token(",", True, True), builder.token("]", before=True)
    states: dict[int, str] = {}
    width = max(shape.width, 1)
    if shape.high is not None:
        width = min(width, shape.high)
    for at in range(width + 1):
        states[at] = rules.name("a")
    for at in range(width + 1):
        if at == 0 and shape.low == 0:
            rules.add(states[0], builder.token("]"))
        elif at >= shape.low:
            rules.add(states[at], end)
        if at < width:
            comma_first = (comma,) if at else ()
            rules.add(states[at], *comma_first, builder.node(shape.item(at)), states[at + 1])
    more = None if shape.high is None else shape.high - width
    if width and (more is None or more > 0):
        run = Times((comma, builder.node(shape.item(width))), max(shape.low - width, 1), more)
        rules.add(states[width], run, end)
    return states[0]


def _counted(builder: Builder, shape: ArrayShape) -> str:
    """What follows the bracket, where some items are counted."""
    rules = builder.rules
    comma, end = builder.token(",", True, True), builder.token("]", before=True)
    cap = max(shape.low, shape.width, 1) if shape.high is None else shape.high
    size = min(cap, shape.high or cap) + 1
    for _, _, low, high, source in shape.counts:
        size *= (low if high is None else high) + 1
        if size * 2 ** len(shape.counts) > MAX_STATES:
            raise Unsupported(*source, "counts too far")
    names: dict[tuple[int, tuple[int, ...]], str] = {}
    waiting: list[tuple[int, tuple[int, ...]]] = []

    def state(length: int, counted: tuple[int, ...]) -> str:
        key = length, counted
        if key not in names:
            names[key] = rules.name("a")
            waiting.append(key)
        return names[key]

    start = state(0, (0,) * len(shape.counts))
    while waiting:
        length, counted = waiting.pop()
        name = names[length, counted]
        enough = all(n >= count[2] for n, count in zip(counted, shape.counts, strict=True))
        if enough and length >= shape.low:
            rules.add(name, end if length else builder.token("]"))
        if shape.high is not None and length == shape.high:
            continue
        for bits in itertools.product((False, True), repeat=len(counted)):
            literals = list(shape.item(length))
            after = []
            for bit, number, (begin, literal, low, high, _) in zip(
                bits, counted, shape.counts, strict=True
            ):
                if length < begin or not bit:
                    after.append(number)
                    if bit:
                        break  # It isn't counted here: one way is enough.
                    if length >= begin and high is not None:
                        literals.append((literal[0], not literal[1]))
                    continue
                if number == high:
                    break
                after.append(number + 1 if high is not None else min(number + 1, low))
                literals.append(literal)
            else:
                further = length + 1 if shape.high is not None else min(length + 1, cap)
                first = (comma,) if length else ()
                rules.add(name, *first, builder.node(literals), state(further, tuple(after)))
    return start


def _unique(builder: Builder, shape: ArrayShape) -> str:
    """What follows the bracket, where the items are some values and none comes twice."""
    schema = shape.unique
    assert schema is not None
    if shape.counts:
        raise Unsupported(schema, "uniqueItems", "not beside contains")
    rules = builder.rules
    different: list[str] = []
    states: list[str] = []
    begin, comma = builder.token("]"), builder.token(",", True, True)
    end = builder.token("]", before=True)
    width = max(shape.width, 1)
    ways: list[list[tuple[int, str]]] = []
    known: list[object] = []
    for at in range(width + 1):
        states.append(rules.name("u"))
        values = builder.finite(shape.item(at))
        if values is None:
            raise Unsupported(schema, "uniqueItems", "only of items that are one of a few values")
        found = []
        for value in values:
            number = builder.index(known, value)
            if number == len(different):
                different.append(builder.value(value))
            found.append((number, different[number]))
        ways.append(found)
    if len(different) > 60:
        raise Unsupported(schema, "uniqueItems", "only of items that are one of a few values")
    for at, found in enumerate(ways):
        last = begin if at == 0 else end
        rules.add(states[at], last, condition=f"bit_count_ge(_, {min(shape.low, 64)})")
        for number, value in found:
            condition = f"bit_clear({number})"
            if shape.high is not None and shape.high < 64:
                condition = f"and({condition}, bit_count_lt(_, {shape.high}))"
            after = states[min(at + 1, width)]
            first = (comma,) if at else ()
            rules.add(states[at], *first, value, f"{after}::set_bit({number})", condition=condition)
    if len(different) < shape.low:
        return "never"
    return states[0]
