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
    missing = [n for n in shape.required if n not in present and shape.order[n] >= alternative.last]
    next_needed = min((shape.order[name] for name in missing), default=shape.num_declared)
    found = []
    for name, at in shape.order.items():
        if alternative.last <= at <= next_needed and name not in present:
            least = shape.properties[name].least
            rest = rest_of(name, shape.names[name], text) if least < FAR else None
            if rest is not None:
                cost = 0 if name in shape.required else least
                found.append((len(rest) + cost, rest, name))
    found.sort()
    yield from ((rest, name) for _, rest, name in found[:MAX_DECLARED])
    if next_needed == shape.num_declared:
        yield from islice(_other_names(shape, present, text), MAX_OTHERS)


def rest_of(name: str, written: bytes, text: Text | None) -> bytes | None:
    """What makes a begun key or string a certain one, `written` by itself; None if nothing does."""
    if text is None:
        return written
    if written.startswith(b'"' + text.raw):
        return written[1 + len(text.raw) :]
    if b"\\" not in text.raw:
        return None
    base = decoded(text.raw[: len(text.raw) - len(text.part) - (6 if text.high else 0)])
    if not name.startswith(base):
        return None
    if not text.part and not text.high:
        return quoted(name[len(base) :])[1:]
    code = ord(name[len(base)]) if len(name) > len(base) else -1
    for rest, found in islice(continuations(text.part, text.high, [((code, code),)]), 16):
        if found == code:
            return rest + quoted(name[len(base) + 1 :])[1:]
    return None


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
