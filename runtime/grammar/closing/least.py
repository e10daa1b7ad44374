"""Least: the shortest value of every goal, and what an open object or array still needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from ramet.runtime.grammar.closing.automaton import FAR, completion
from ramet.runtime.grammar.closing.expansion import Expansion
from ramet.runtime.grammar.closing.shapes import SHORT_NAME, Arrays, Goal, Objects, Shape, quoted

MAX_ROUNDS = 64
"""Rounds over all goals until their lengths don't change; recursion needs more than two."""
MAX_BYTES = 1 << 20
"""A longer value counts as none."""
MAX_KEPT = 1 << 14
"""A longer text is put together again when it is asked for again."""

_TAILS = ("", *"abcdefghijklmnopqrstuvwxyz", *(f"{a}{n}" for n in range(999) for a in "ab"))
"""Ends of names, the shortest first; some always make a name that isn't taken."""

Part = bytes | Goal


class Least:
    """The shortest values of one schema's goals."""

    def __init__(self, expansion: Expansion) -> None:
        self.expansion = expansion
        self._texts: dict[Goal, bytes] = {}
        self.settle()
        expansion.settle = self.settle

    def settle(self) -> None:
        """Give the goals their lengths that were asked for since the last time."""
        goals = self.expansion.pending()
        goals.reverse()
        changed = bool(goals)
        for _ in range(MAX_ROUNDS):
            if not changed:
                break
            changed = False
            for goal in goals:
                for shape in goal.shapes():
                    least = shape.least
                    if least < goal.least and least <= MAX_BYTES:
                        goal.least, goal.best = least, shape
                        changed = True
        if changed:
            self.expansion.sure = False
        for goal in goals:
            goal.objects = [shape for shape in goal.objects if shape.least < FAR]
            goal.arrays = [shape for shape in goal.arrays if shape.least < FAR]
            for shape in goal.objects:
                shape.close()

    def text(self, goal: Goal) -> bytes:
        """The shortest value of a goal that has one."""
        assert goal.best is not None
        return self.join([goal])

    def shape_text(self, shape: Shape) -> bytes:
        """The shortest value of a shape."""
        return self.join(_parts(shape))

    def join(self, parts: list[Part]) -> bytes:
        """The parts as one text, goals as their shortest values."""
        written: list[bytes] = []
        stack: list[Part | tuple[Goal, int]] = list(reversed(parts))
        while stack:
            part = stack.pop()
            if isinstance(part, bytes):
                written.append(part)
            elif isinstance(part, tuple):
                goal, start = part
                text = b"".join(written[start:])
                del written[start:]
                written.append(text)
                if len(text) <= MAX_KEPT:
                    self._texts[goal] = text
            elif (known := self._texts.get(part)) is not None:
                written.append(known)
            else:
                assert part.best is not None
                stack.append((part, len(written)))
                stack.extend(reversed(_parts(part.best)))
        return b"".join(written)


def _parts(shape: Shape) -> list[Part]:
    """The shortest value of a shape, its children as goals."""
    if isinstance(shape, Arrays):
        return [b"[", *array_rest(shape, 0)]
    if isinstance(shape, Objects):
        return [b"{", *(object_rest(shape, (), 0) or [b"}"])]
    return [shape.text]


def array_rest(shape: Arrays, count: int) -> list[Part]:
    """What follows `count` items."""
    parts: list[Part] = []
    for index in range(count, shape.low):
        goal = shape.child(index)
        assert goal is not None
        parts += [b"," if index else b"", goal]
    return [*parts, b"]"]


def object_rest(shape: Objects, present: Collection[str], last: int) -> list[Part] | None:
    """What follows the properties `present`, of which the last stands at `last` in the order.

    None if there are not enough properties left.
    """
    names = [name for name in shape.required if name not in present]
    lacking = shape.low - len(present) - len(names)
    more: list[str] = []
    if lacking > 0:
        chosen = list(islice(_fillers(shape, present, last), lacking))
        if len(chosen) < lacking:
            return None
        names += [name for name in chosen if name in shape.properties]
        more = [name for name in chosen if name not in shape.properties]
    parts: list[Part] = []
    comma = b"," if present else b""
    for name in [*sorted(names, key=shape.order.__getitem__), *more]:
        goal = shape.child(name)
        if goal is None:
            return None
        parts += [comma + (shape.names.get(name) or quoted(name)) + b":", goal]
        comma = b","
    return [*parts, b"}"]


def _fillers(shape: Objects, present: Collection[str], last: int) -> Iterator[str]:
    """Properties that needn't be there, the shortest first.

    Shortest first also means that a recursive one is never within itself for ever.
    """
    optional = [
        (len(shape.names[name]) + goal.least, name)
        for name, goal in shape.properties.items()
        if goal.least < FAR
        and name not in shape.required
        and name not in present
        and shape.order[name] >= last
    ]
    optional.sort()
    others = min((goal.least for _, goal in shape.generic), default=FAR) + SHORT_NAME
    yield from (name for cost, name in optional if cost <= others)
    yield from new_names(shape, present)
    yield from (name for cost, name in optional if cost > others)


def new_names(shape: Objects, present: Collection[str], begun: str = "") -> Iterator[str]:
    """Short names that aren't declared and that an object may still have, all with a beginning."""
    for automaton, goal in sorted(shape.generic, key=lambda pair: pair[1].least):
        if goal.least >= FAR:
            continue
        if automaton is None:
            tails: Iterable[str] = _TAILS
        else:
            state = automaton.after(begun)
            found = (completion([automaton], [state], low, None) for low in range(4))
            usable = (tail for tail in found if tail is not None and b"\\" not in tail)
            tails = dict.fromkeys(tail.decode() for tail in usable)
        for tail in tails:
            name = begun + tail
            if name not in shape.properties and name not in present and shape.child(name):
                yield name
