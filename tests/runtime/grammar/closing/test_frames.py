"""Open objects and arrays, and what closes them."""

from __future__ import annotations

import json
from typing import Any

from ramet.runtime.grammar.closing.expansion import Expansion
from ramet.runtime.grammar.closing.frames import Frame, opened
from ramet.runtime.grammar.closing.least import Least
from ramet.runtime.grammar.json_schema.normal import normalise


def inner(schema: Any) -> Frame:
    """The frame of an object or array that a schema's document begins with."""
    least = Least(Expansion(normalise(json.dumps(schema))))
    outermost = Frame(least, None, (), 0, None)
    root = least.expansion.root
    return opened(least, outermost, [(shape, (0,)) for shape in (*root.objects, *root.arrays)])


OBJECT = {
    "type": "object",
    "properties": {"a": {}, "b": {"type": "null"}},
    "required": ["b"],
}


def test_a_required_key_is_needed_until_it_is_there():
    frame = inner(OBJECT)
    assert frame.endings() == [(9, b'"b":null}')]
    assert frame.closes() == set()
    frame = frame.with_key("a")
    assert frame.endings() == [(10, b',"b":null}')]
    assert frame.after >= 10
    frame = frame.with_key("b")
    assert frame.endings() == [(1, b"}")]
    assert frame.after == 1
    assert frame.closes() == {0}
    assert frame.present() == {"a", "b"}


def test_frames_never_change():
    frame = inner(OBJECT)
    frame.with_key("b")
    assert frame.endings() == [(9, b'"b":null}')]
    assert frame.present() == set()


def test_items_count():
    frame = inner({"type": "array", "items": {"const": 5}, "minItems": 2})
    assert frame.endings() == [(4, b"5,5]")]
    frame = frame.with_item()
    assert frame.endings() == [(3, b",5]")]
    assert [(goal.least, at) for goal, at in frame.children(None)] == [(1, 0)]
    assert frame.with_item().with_item().endings() == [(1, b"]")]


def test_a_key_out_of_its_order_drops_the_alternative_if_another_remains():
    other = {"type": "object", "properties": {"b": {}, "a": {}}, "required": ["b"]}
    frame = inner({"anyOf": [OBJECT, other]})
    assert len(frame.alternatives) == 2
    assert len(frame.with_key("b").with_key("a").alternatives) == 1
    assert len(inner(OBJECT).with_key("b").with_key("a").alternatives) == 1
