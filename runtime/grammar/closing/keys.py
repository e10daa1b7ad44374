"""Keys: how a key that is begun, or has to come, can go on to the end of the document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice

from ramet.runtime.grammar.closing.automaton import FAR
from ramet.runtime.grammar.closing.characters import continuations
from ramet.runtime.grammar.closing.frames import Alternative, Frame
from ramet.runtime.grammar.closing.least import Least, new_names
from ramet.runtime.grammar.closing.shapes import Objects, quoted
from ramet.runtime.grammar.closing.text import Text

MAX_DECLARED = 8
"""Declared keys tried for each alternative."""
MAX_OTHERS = 4
"""Other keys tried for each alternative."""


def key_closings(least: Least, frame: Frame, text: Text | None) -> Iterator[bytes]:
    """What closes the document from within a key on, or from before one that has to come."""
    names: dict[tuple[bytes, str], None] = {}
    present = frame.present()
    for alternative in frame.alternatives:
        names.update(dict.fromkeys(_names(alternative, present, text)))
    for rest, name in names:
        longer = frame.with_key(name)
        endings = longer.endings()
        for goal, at in longer.children(name):
            length, ending = endings[at]
            if length < FAR:
                yield rest + b":" + least.text(goal) + ending


def _names(
    alternative: Alternative, present: set[str], text: Text | None
) -> Iterator[tuple[bytes, str]]:
    """(the rest of a key with its quote, the key)."""
    shape = alternative.shape
    assert isinstance(shape, Objects)
    begun = b"" if text is None else b'"' + text.raw
    missing = [n for n in shape.required if n not in present and shape.order[n] >= alternative.last]
    next_needed = min((shape.order[name] for name in missing), default=len(shape.order))
    found = []
    for name, at in shape.order.items():
        if alternative.last <= at <= next_needed and name not in present:
            written = shape.names[name]
            least = shape.properties[name].least
            if least < FAR and written.startswith(begun):
                cost = 0 if at == next_needed else least
                found.append((len(written) + cost, written[len(begun) :], name))
    found.sort()
    yield from ((rest, name) for _, rest, name in found[:MAX_DECLARED])
    if not missing:
        yield from islice(_other_names(shape, present, text), MAX_OTHERS)


def _other_names(
    shape: Objects, present: set[str], text: Text | None
) -> Iterator[tuple[bytes, str]]:
    if text is None:
        for name in new_names(shape, present):
            yield quoted(name), name
        return
    whole = text.raw[: len(text.raw) - len(text.part) - (6 if text.high else 0)]
    base = decoded(whole)
    ways: list[tuple[bytes, str]] = [(b"", base)]
    if text.part or text.high:
        sets = [
            chars
            for automaton, _ in shape.generic[:2]
            if automaton is not None
            for chars in automaton.sets(automaton.after(base))
        ]
        more = [
            *islice(continuations(text.part, text.high, sets), 12),
            *islice(continuations(text.part, text.high, []), 4),
        ]
        ways = [(rest, base + chr(code)) for rest, code in more]
    for rest, begun in ways:
        for name in islice(new_names(shape, present, begun), MAX_OTHERS):
            tail = name[len(begun) :]
            yield rest + quoted(tail)[1:], name


def decoded(raw: bytes) -> str:
    """A key's text from what stands between its quotes."""
    if b"\\" in raw:
        try:
            name: str = json.loads(b'"' + raw + b'"')
        except ValueError:
            return raw.decode(errors="replace")
        return name
    return raw.decode(errors="replace")
