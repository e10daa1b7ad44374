from __future__ import annotations

import collections
import json
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

import pytest

import ramet.lang as rm
from ramet.lang.marked import plain_text
from ramet.lang.symbols import SetValue, Symbol, Symbols, SymbolValue
from ramet.lang.values import GatheredValue, GivenValue
from ramet.runtime.graph_values import Opaque, Ref, Template

Q = Ref(arg="q")
AS_TEXT = Ref(arg="q", text=True)


@pytest.fixture
def symbols() -> Symbols:
    return Symbols()


@pytest.fixture
def q(symbols: Symbols) -> Symbol:
    return Symbol(symbols, Q)


def test_marks_are_found_again_wherever_they_stand(symbols: Symbols, q: Symbol) -> None:
    other = Symbol(symbols, Ref(node=3))
    assert symbols.parts(f"a{q}{other}b\x00") == ("a", AS_TEXT, Ref(node=3, text=True), "b\x00")
    assert symbols.parts("a" + q + "b" + q) == ("a", Q, "b", Q)
    assert symbols.parts(q + other) == (Q, Ref(node=3))
    assert symbols.parts("%s" % q) == (AS_TEXT,)  # noqa: UP031
    assert symbols.parts("".join([str(q)] * 300)) == (AS_TEXT,) * 300
    assert symbols.parts("plain \U00100000") == ("plain \U00100000",)
    assert symbols.parts("") == ()


@pytest.mark.parametrize(
    "damage",
    [
        str.upper,
        str.lower,
        str.title,
        str.swapcase,
        str.capitalize,
        str.casefold,
        repr,
        json.dumps,
        ascii,
        lambda text: text[::-1],
        lambda text: text.replace("a", "b"),
        *(lambda text, i=i: text[:i] for i in range(1, 20)),
        *(lambda text, i=i: text[-i:] for i in range(1, 20)),
        *(lambda text, i=i: text[i] for i in (0, 1, 4, -1)),
        lambda text: text[3:8],
        lambda text: text.encode("unicode_escape").decode(),
    ],
)
def test_a_damaged_mark_is_refused_with_its_line(
    symbols: Symbols, q: Symbol, damage: Callable[[str], str]
) -> None:
    with pytest.raises(rm.ProgramError, match=r"test_symbols\.py:\d+: .*cut or changed"):
        symbols.parts(damage(plain_text(f"{q}")))


def test_what_only_shows_a_symbol_is_no_text(symbols: Symbols, q: Symbol) -> None:
    for text in (f"{q!r}", f"{[q]}", str({"k": q})):
        with pytest.raises(rm.ProgramError, match="cut or changed"):
            symbols.parts(text)
    assert symbols.readable(f"{q!r} and {q}") == "<symbol {q}> and {q}"


class Colour(Enum):
    RED = "red"


class Point(NamedTuple):
    x: Any
    y: Any


def test_values_are_lowered_with_what_is_inside(symbols: Symbols, q: Symbol) -> None:
    node = Ref(node=2)
    kept = SymbolValue(symbols, node)
    assert symbols.lower(q) == Q
    assert symbols.lower([q, (q, 1), {"k": f"<{q}>"}]) == [
        Q,
        (Q, 1),
        {"k": Template(("<", AS_TEXT, ">"))},
    ]
    assert symbols.lower(GatheredValue([kept, GatheredValue([kept])])) == (node, (node,))
    assert symbols.lower(GivenValue([q])) == [Q]
    assert symbols.lower(SetValue((1, 2), node)) == node
    assert symbols.lower(None) is None
    assert not symbols.objects


def test_what_is_no_plain_data_keeps_its_identity(symbols: Symbols, q: Symbol) -> None:
    objects = [object(), Colour.RED, Point(1, 2), {1}, collections.Counter("ab"), b"bytes", len]
    for index, value in enumerate(objects):
        assert symbols.lower(value) == Opaque(repr(value), index)
        assert symbols.objects[index] is value
    for holder in (Point(q, 1), {f"a{q}"}, collections.OrderedDict(a=q), {f"a{q}": 1}):
        with pytest.raises(rm.ProgramError, match="can't hold"):
            symbols.lower(holder)


def test_symbols_are_seen_in_names_and_lists(symbols: Symbols, q: Symbol) -> None:
    holders: list[Any] = [
        q,
        f"a{q}",
        ["a", f"{q}"],
        (q,),
        {"a", f"a{q}"},
        {f"a{q}": 1},
        {"k": f"a{q}"},
    ]
    assert all(symbols.has_mark(value) for value in holders)
    others: list[Any] = ["a", ["a"], None, 3, {"a": 1}]
    assert not any(symbols.has_mark(value) for value in others)


def test_marks_of_two_traces_are_not_confused() -> None:
    first, second = Symbols(), Symbols()
    mark = plain_text(str(Symbol(first, Q)))
    assert first.parts(mark) == (AS_TEXT,)
    assert second.parts(mark) == (mark,)


def test_variables_while_tracing(symbols: Symbols) -> None:
    value = SymbolValue(symbols, Ref(node=1))
    assert value.read().ref == Ref(node=1)
    assert list(value.pending()) == []
    for use in (value.meta, value.chunks, value.achunks):
        with pytest.raises(rm.ProgramError, match=r"test_symbols\.py:\d+: .*while tracing"):
            use()
