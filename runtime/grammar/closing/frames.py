"""Frames: the open objects and arrays of a partial document, with what each may still be.

A frame never changes: an item more, a key more or a shape less makes a new one. So copies of a walk
share them, and what is known of an outer frame stays known while an inner one grows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from ramet.runtime.grammar.closing.automaton import FAR
from ramet.runtime.grammar.closing.least import Least, array_rest, object_rest
from ramet.runtime.grammar.closing.shapes import Arrays, Goal, Objects

MAX_ALTERNATIVES = 64
"""Shapes that one open value is followed as; of more, the first are kept."""


class Alternative(NamedTuple):
    """One shape that an open object or array may have."""

    shape: Objects | Arrays
    parents: tuple[int, ...]
    """Which of the outer frame's alternatives allow it there."""
    needed: int
    """Bytes of the required properties that are missing."""
    last: int
    """Where, in the order of properties, the next may stand."""


Names = tuple[str, "Names"] | None
"""Keys, the last first."""


class Frame:
    """One open object or array; the outermost, with no shapes, holds the document."""

    __slots__ = ("_endings", "_least", "after", "alternatives", "count", "names", "outer")

    def __init__(
        self,
        least: Least,
        outer: Frame | None,
        alternatives: tuple[Alternative, ...],
        count: int,
        names: Names,
    ) -> None:
        self._least = least
        self.outer = outer
        self.alternatives = alternatives
        self.count = count
        """Items or properties so far, the one in progress included."""
        self.names = names
        self._endings: list[tuple[int, bytes]] | None = None
        self.after = 0
        """Nothing that closes the document after the current item is longer."""
        if outer is not None:
            self.after = outer.after + max(map(self._own_bound, alternatives), default=0)

    @property
    def is_object(self) -> bool:
        """Whether keys come."""
        return isinstance(self.alternatives[0].shape, Objects)

    def children(self, key: str | None) -> list[tuple[Goal, int]]:
        """What the item in progress has to be: goals, and by which alternative."""
        if self.outer is None:
            root = self._least.expansion.root
            return [(root, 0)] if root.least < FAR else []
        found: list[tuple[Goal, int]] = []
        for at, alternative in enumerate(self.alternatives):
            shape = alternative.shape
            if isinstance(shape, Arrays):
                goal = shape.child(self.count - 1)
            else:
                assert key is not None
                goal = shape.child(key)
            if goal is not None and goal.least < FAR:
                found.append((goal, at))
        return found

    def with_item(self) -> Frame:
        """The array with one more item begun."""
        return Frame(self._least, self.outer, self.alternatives, self.count + 1, None)

    def with_key(self, key: str) -> Frame:
        """The object with one more key, and only the shapes that allow it here."""
        kept: list[Alternative] = []
        strays: list[Alternative] = []
        for alternative in self.alternatives:
            shape = alternative.shape
            assert isinstance(shape, Objects)
            at = shape.order.get(key, shape.num_declared)
            needed = alternative.needed - shape.costs.get(key, 0)
            after = Alternative(shape, alternative.parents, needed, min(at + 1, shape.num_declared))
            (kept if at >= alternative.last else strays).append(after)
        names = (key, self.names)
        return Frame(self._least, self.outer, tuple(kept or strays), self.count + 1, names)

    def only(self, kept: Collection[int]) -> Frame:
        """With some of the alternatives."""
        if len(kept) == len(self.alternatives) or self.outer is None:
            return self
        some = tuple(self.alternatives[at] for at in sorted(kept))
        return Frame(self._least, self.outer, some, self.count, self.names)

    def closes(self) -> set[int]:
        """The outer frame's alternatives that remain when this one is closed as it is."""
        found: set[int] = set()
        for shape, parents, needed, _ in self.alternatives:
            if needed == 0 and self.count >= shape.low:
                found.update(parents)
        return found

    def present(self) -> set[str]:
        """The keys so far."""
        found = set()
        names = self.names
        while names:
            found.add(names[0])
            names = names[1]
        return found

    def endings(self) -> list[tuple[int, bytes]]:
        """By alternative, (bytes, text) of what closes the document after the current item."""
        chain: list[Frame] = []
        frame: Frame | None = self
        while frame is not None and frame._endings is None:
            chain.append(frame)
            frame = frame.outer
        for each in reversed(chain):
            each._endings = each._find_endings()
        assert self._endings is not None
        return self._endings

    def ending(self, parents: Iterable[int]) -> tuple[int, bytes]:
        """The shortest of some of them."""
        endings = self.endings()
        return min((endings[at] for at in parents), key=_length)

    def _find_endings(self) -> list[tuple[int, bytes]]:
        if self.outer is None:
            return [(0, b"")]
        present = self.present()
        found: list[tuple[int, bytes]] = []
        for shape, parents, _, last in self.alternatives:
            length, text = self.outer.ending(parents)
            if isinstance(shape, Arrays):
                parts = array_rest(shape, self.count) if shape.rest(self.count) < FAR else None
            else:
                parts = object_rest(shape, present, last)
            if parts is None or length >= FAR:
                found.append((FAR, b""))
            else:
                text = self._least.join(parts) + text
                found.append((len(text), text))
        return found

    def _own_bound(self, alternative: Alternative) -> int:
        shape = alternative.shape
        if isinstance(shape, Arrays):
            return shape.rest(self.count)
        more = max(shape.low - self.count, 0) * shape.worst_key if shape.low else 0
        return alternative.needed + more + 1


def opened(
    least: Least, outer: Frame, shapes: Sequence[tuple[Objects | Arrays, tuple[int, ...]]]
) -> Frame:
    """The frame of an object or array that has just begun."""
    alternatives = tuple(
        Alternative(shape, parents, shape.fixed if isinstance(shape, Objects) else 0, 0)
        for shape, parents in shapes[:MAX_ALTERNATIVES]
    )
    return Frame(least, outer, alternatives, 0, None)


def _length(ending: tuple[int, bytes]) -> int:
    return ending[0]
