from __future__ import annotations

import dataclasses

import pytest

import ramet.lang as rm
from ramet.lang import ProgramError, gen
from ramet.lang.expr import Gen, Sum, Text, nodes_of


def test_sums_are_flat_and_keep_their_order() -> None:
    expr = "a" + rm.gen("x") + "b" + ("c" + rm.gen("y"))
    assert isinstance(expr, Sum)
    kinds = [node.text if isinstance(node, Text) else node.name for node in expr.parts]
    assert kinds == ["a", "x", "b", "c", "y"]


def test_an_expression_can_be_used_again_and_does_not_change() -> None:
    first = rm.gen("x")
    second = first + "!"
    assert isinstance(first, Gen)
    assert next(nodes_of(second)) is first
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.name = "y"  # type: ignore[misc]


@pytest.mark.parametrize("value", [3, None, b"x", ["a"], object])
def test_what_is_no_text_and_no_expression_is_refused_by_name(value: object) -> None:
    with pytest.raises(rm.InvalidArgument, match=type(value).__name__):
        list(nodes_of(value))
    with pytest.raises(rm.InvalidArgument):
        rm.gen("x") + value
    with pytest.raises(rm.InvalidArgument):
        value + rm.gen("x")


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(rm.InvalidArgument, match="surrogate"):
        list(nodes_of("a\ud800"))


def test_a_call_inside_a_text_is_refused() -> None:
    with pytest.raises(ProgramError, match="append it with"):
        _ = f"a{gen('x')}"
    with pytest.raises(ProgramError, match="append it with"):
        str(gen("x"))
