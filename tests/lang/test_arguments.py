from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import ramet.lang as rm
from ramet.lang.arguments import Arguments


def arguments(body: Callable[..., Any], **bound: Any) -> Arguments:
    return Arguments("prog", inspect.signature(body), bound)


def given(bound: inspect.BoundArguments) -> dict[str, Any]:
    bound.apply_defaults()
    return dict(bound.arguments)


def test_the_bodys_own_arguments_come_after_its_state() -> None:
    found = arguments(lambda s, a, b=2, *rest, c, **more: None)
    assert found.names == ["a", "b", "c"]
    assert found.open_ended
    assert not arguments(lambda s, a: None).open_ended
    for body in (lambda: None, lambda *s: None, lambda *, s: None, lambda **s: None):
        with pytest.raises(rm.InvalidArgument, match=r"prog: .*first parameter"):
            arguments(body)


def test_a_call_fills_them_and_positions_replace_what_is_bound() -> None:
    found = arguments(lambda s, a, b=2: None, a=1)
    assert given(found.fill((), {})) == {"s": None, "a": 1, "b": 2}
    assert given(found.fill((7,), {"b": 8})) == {"s": None, "a": 7, "b": 8}
    more = found.bind({"b": 5})
    assert given(more.fill((), {})) == {"s": None, "a": 1, "b": 5}
    assert found.bound == {"a": 1}
    for args, own in (((1, 2, 3), {}), ((1,), {"a": 2})):
        with pytest.raises(rm.InvalidArgument, match="prog: "):
            arguments(lambda s, a, b=2: None).fill(args, own)
    with pytest.raises(rm.InvalidArgument, match="prog: missing a required argument: 'a'"):
        arguments(lambda s, a: None).fill((), {})


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    found = arguments(lambda s, a, b: None)
    with pytest.raises(rm.InvalidArgument, match=r"prog: .*'c'; there are: a, b"):
        found.check_names(["a", "c"])
    anything = arguments(lambda s, a, **more: None)
    anything.check_names(["c"])
    with pytest.raises(rm.InvalidArgument, match="'c'"):
        anything.check_names(["c"], exactly=True)
    assert "none" in str(arguments(lambda s: None).unknown("x", []))


def test_what_is_left_open() -> None:
    left = arguments(lambda s, a, b=1, *rest, c, **more: None).without(["a"])
    assert left.names == ["b", "c"]
    assert not left.open_ended
    assert given(left.fill((5,), {"c": 6})) == {"s": None, "b": 5, "c": 6}
    assert arguments(lambda s, a: None).without(["a"]).names == []


def test_items_are_dicts_or_in_order() -> None:
    found = arguments(lambda s, a, b=2: None)
    assert given(found.fill_item({"a": 1})) == {"s": None, "a": 1, "b": 2}
    assert given(found.fill_item((1, 3))) == given(found.fill_item([1, 3]))
    items = [{"a": 1}, (2,)]
    filled = found.check_items(items)
    assert [given(one) for one in filled] == [given(found.fill_item(item)) for item in items]
    lazy = iter([{"wrong": 1}])
    assert found.check_items(lazy) is lazy, "a generator's items are checked as they come"
    bad: Any
    for bad, said in (
        ([{"a": 1}, {"c": 1}], "item 1 of run_batch: .*'c'"),
        ([3], "item 0 of run_batch: .*3"),
        ([()], "item 0 of run_batch"),
        ("ab", "list of dicts"),
        ({"a": 1}, "list of dicts"),
        (3, "list of dicts"),
    ):
        with pytest.raises(rm.InvalidArgument, match=said):
            found.check_items(bad)


def test_a_body_is_called_by_name_whatever_its_parameters_are() -> None:
    def body(s: Any, a: int, /, b: int, *rest: int, c: int = 3, **more: int) -> Any:
        return s, a, b, rest, c, more

    assert arguments(body).call(body, "state", {"b": 2, "a": 1, "d": 4}) == (
        "state",
        1,
        2,
        (),
        3,
        {"d": 4},
    )
