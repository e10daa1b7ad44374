from __future__ import annotations

import json
from typing import Any

import pytest

from ramet.runtime.errors import InvalidArgument
from ramet.runtime.graph_values import (
    Opaque,
    Ref,
    Template,
    from_wire,
    is_plain,
    plain,
    refs_in,
    replaced,
    shown_value,
    to_wire,
)

Q, NODE = Ref(arg="q"), Ref(node=3, text=True)
VALUES: list[Any] = [
    None,
    True,
    3,
    -0.5,
    "text",
    "",
    Q,
    NODE,
    Ref(arg=""),
    Ref(node=0),
    Ref(node=1, part="typed"),
    Template(("a", Q, NODE)),
    Template(()),
    Opaque("<object>", 2),
    Opaque("<object>"),
    (),
    [],
    {},
    (1, [2, (3,)], {"k": [Q]}),
    [Template((Q,)), {"k": Opaque("x", 0)}],
    {"k": (Q, None)},
    {1: "int key", (2, "b"): "tuple key", None: 0, 1.5: []},
    {"ref": "q"},
    {"ref": 1, "text": True},
    {"template": ["a"]},
    {"object": "x", "index": 1},
    {"map": [["k", 1]]},
    {"list": [1]},
    [{"list": ({"map": {}},)}],
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_every_value_survives_the_wire(value: Any) -> None:
    data = json.loads(json.dumps(to_wire(value)))
    found = from_wire(data)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "data",
    [{}, {"ref": None}, {"ref": 1.5}, {"template": 3}, {"object": "x"}, {"jump": 1}, {"map": {}}],
)
def test_what_is_no_value_is_refused(data: Any) -> None:
    with pytest.raises(InvalidArgument, match="not a value"):
        from_wire(data)


def test_references_are_found_wherever_they_are() -> None:
    value = [Q, (1, {"k": Template(("a", NODE))}), "q", Opaque("x", 1)]
    assert list(refs_in(value)) == [Q, NODE]
    assert list(refs_in({Q: 1})) == []


def test_leaves_are_replaced_and_shapes_stay() -> None:
    value = (Q, [Q, {"k": Template(("a", Q))}], "b", None)
    found = replaced(value, lambda leaf: NODE if leaf == Q else leaf)
    assert found == (NODE, [NODE, {"k": Template(("a", NODE))}], "b", None)
    assert value[0] is Q


def test_what_is_no_plain_data_is_named() -> None:
    class Thing:
        def __repr__(self) -> str:
            return "<thing>"

    thing = Thing()
    assert plain([thing, {"k": (thing, 1)}]) == [
        Opaque("<thing>"),
        {"k": (Opaque("<thing>"), 1)},
    ]
    assert [is_plain(value) for value in (None, 1, "a", 0.5, Q, Opaque("x"))] == [True] * 6
    assert not is_plain(b"bytes")
    assert not is_plain(thing)


def test_values_for_a_person() -> None:
    assert shown_value(Q) == str(Q) == "{q}"
    assert shown_value([Ref(node=1), "a", (None,)]) == "[{#1}, 'a', [None]]"
    assert shown_value({"k": Template(("a", Q))}) == "{k: a{q}}"
    assert shown_value(Opaque("<thing>", 1)) == "<thing>"
