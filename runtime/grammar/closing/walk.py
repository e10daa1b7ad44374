"""Walk: one partial JSON document, followed byte by byte through its schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ramet.runtime.grammar.closing.automaton import FAR
from ramet.runtime.grammar.closing.frames import MAX_ALTERNATIVES, Frame, opened
from ramet.runtime.grammar.closing.keys import decoded, key_closings, rest_of
from ramet.runtime.grammar.closing.least import Least
from ramet.runtime.grammar.closing.number import Numbers
from ramet.runtime.grammar.closing.shapes import Goal, Literals, Objects, Shape, Strings, quoted
from ramet.runtime.grammar.closing.text import LONGEST_PART, Text

MAX_CANDIDATES = 16
"""Closing texts that a walk proposes."""

_VALUE, _ITEM, _KEY, _MORE_KEY, _COLON, _AFTER, _STRING, _NAME, _WORD, _LOST = range(10)
"""What comes next: a value; an item or `]`; a key or `}`; a key; `:`; what follows a value; the
rest of a string, of a key, of a number or a word; something that isn't JSON."""

_WORD_BYTES = re.compile(rb"[-+.0-9A-Za-z]*")
_SPACE = b" \t\n\r"
_MAX_KEY = 1 << 16
MAX_ESCAPED = 256
"""Literals tried for a string that has escapes in it."""

Candidate = tuple[bytes, tuple[int, ...]]
"""What completes the current item, and by which of the frame's alternatives."""
Leaf = tuple[Shape, tuple[int, ...]]
"""A shape that the scalar in progress may have, and by which of the frame's alternatives."""


class Walk:
    """How far a document has come, and what would close it."""

    __slots__ = (
        "_extra",
        "_frame",
        "_goals",
        "_least",
        "_leaves",
        "_mode",
        "_sure",
        "_text",
        "_word",
    )

    def __init__(self, least: Least) -> None:
        self._least = least
        self._frame = Frame(least, None, (), 0, None)
        self._text: Text | None = None
        """The string or key in progress."""
        self._word = b""
        """The number or word in progress."""
        self._leaves: list[Leaf] = []
        self._goals: list[tuple[Goal, int]] = []
        """What the next value has to be."""
        self._mode = _VALUE
        self._sure = True
        """Whether the text was always what the schema, as it is understood here, allows."""
        self._extra = 0
        """Bytes that close the current item, at most."""
        self._expect_value(None)

    def copy(self) -> Walk:
        """The same, on its own from here."""
        twin = object.__new__(Walk)
        twin._least = self._least
        twin._frame = self._frame
        twin._text = self._text.copy() if self._text is not None else None
        twin._word = self._word
        twin._leaves = self._leaves
        twin._goals = self._goals
        twin._mode = self._mode
        twin._sure = self._sure
        twin._extra = self._extra
        return twin

    @property
    def lost(self) -> bool:
        """Whether the text can't be followed any more."""
        return self._mode == _LOST

    @property
    def in_string(self) -> bool:
        """Whether the text ends within a string or a key."""
        return self._mode in (_STRING, _NAME)

    @property
    def finished(self) -> bool:
        """Whether the document is over, so that nothing but white space could follow."""
        return self._mode == _AFTER and self._frame.outer is None

    @property
    def bound(self) -> int | None:
        """No text of `closings` is longer, in bytes; None if that isn't known."""
        if not (self._sure and self._least.expansion.sure and self._leads_on()):
            return None
        found = self._frame.after + self._extra
        return found if found < FAR else None

    def _leads_on(self) -> bool:
        """Whether the schema, as it is understood here, has a way on from a begun string or key.

        It may not have one where the grammar is wider.
        """
        if self._text is None:
            return self._mode != _LOST
        if self._mode == _NAME:
            key = b'"' + self._text.raw
            return any(
                isinstance(shape, Objects) and shape.may_begin(key, needed > 0)
                for shape, _, needed, _ in self._frame.alternatives
            )
        return any(
            self._text.leads_on(shape)
            if isinstance(shape, Strings)
            else isinstance(shape, Literals) and any(True for _ in self._literal_rests(shape))
            for shape, _ in self._leaves
        )

    def push(self, data: bytes) -> None:
        """Read on; what isn't JSON ends the walk."""
        at, size = 0, len(data)
        while at < size and self._mode != _LOST:
            mode = self._mode
            if mode >= _STRING:
                at = self._within(mode, data, at)
                continue
            byte = data[at]
            if byte in _SPACE:
                at += 1
                continue
            if mode == _ITEM and byte != 0x5D:
                self._next_item()
                continue  # The same byte begins it.
            at += 1
            if mode == _VALUE:
                self._begin_value(byte, data[at - 1 : at])
            elif byte == 0x2C and mode == _AFTER and self._frame.outer is not None:
                self._next_item()
            elif byte == 0x22 and mode in (_KEY, _MORE_KEY):
                self._begin_key()
            elif byte == 0x3A and mode == _COLON:
                self._mode = _VALUE
            elif byte in b"]}" and mode in (_AFTER, _ITEM, _KEY) and self._frame.outer is not None:
                self._close()
            else:
                self._mode = _LOST

    def closings(self) -> Iterator[bytes]:
        """Texts that should close the document, likely and short ones first."""
        ranked: dict[bytes, int] = {}
        if self._mode == _LOST:
            return
        if self._mode in (_NAME, _MORE_KEY):
            text = self._text if self._mode == _NAME else None
            found = dict.fromkeys(key_closings(self._least, self._frame, text))
            yield from sorted(found, key=len)[:MAX_CANDIDATES]
            return
        endings = self._frame.endings()
        for rank, (begun, parents) in enumerate(self._candidates()):
            for at in parents:
                length, ending = endings[at]
                if length < FAR:
                    # What is less likely right counts as if it were longer.
                    ranked.setdefault(begun + ending, len(begun) + length + min(rank, 1))
        yield from sorted(ranked, key=ranked.__getitem__)[:MAX_CANDIDATES]

    def _candidates(self) -> Iterable[Candidate]:
        """What completes the current item."""
        mode, everywhere = self._mode, tuple(range(max(1, len(self._frame.alternatives))))
        if mode in (_AFTER, _ITEM, _KEY):
            return [(b"", everywhere)]
        if mode in (_VALUE, _COLON):
            return self._value_candidates(b":" if mode == _COLON else b"")
        return self._leaf_candidates()

    def _value_candidates(self, before: bytes) -> Iterator[Candidate]:
        for goal, at in self._goals:
            yield before + self._least.text(goal), (at,)
        for goal, at in self._goals[:MAX_CANDIDATES]:
            for shape in goal.shapes()[:MAX_CANDIDATES]:
                if shape.least < 1 << 12:
                    yield before + self._least.shape_text(shape), (at,)

    def _leaf_candidates(self) -> Iterator[Candidate]:
        for shape, parents in self._leaves:
            if isinstance(shape, Literals):
                rests = sorted(self._literal_rests(shape), key=len)[:8]
            elif isinstance(shape, Numbers):
                rests = shape.completions(self._word)
            else:
                assert isinstance(shape, Strings)
                assert self._text is not None
                rests = self._text.completions(shape)
            for rest in rests:
                yield rest, parents

    def _literal_rests(self, shape: Literals) -> Iterator[bytes]:
        text = self._text
        if text is not None and b"\\" in text.raw:
            # Letters may be written as escapes.
            for literal in shape.texts[:MAX_ESCAPED]:
                if literal[:1] == b'"':
                    rest = rest_of(decoded(literal[1:-1]), literal, text)
                    if rest is not None:
                        yield rest
        else:
            begun = self._word if text is None else b'"' + text.raw
            yield from (literal[len(begun) :] for literal in shape.beginning(begun))

    def _expect_value(self, key: str | None) -> None:
        self._goals = self._frame.children(key)
        if not self._goals:
            # The grammar allows what the schema, as it is understood here, doesn't.
            self._sure = False
            anything = self._least.expansion.goal(())
            self._least.settle()
            self._goals = [(anything, at) for at in range(max(1, len(self._frame.alternatives)))]
        self._extra = 1 + max(goal.least for goal, _ in self._goals)
        self._mode = _VALUE

    def _begin_value(self, byte: int, first: bytes) -> None:
        found: dict[Shape, list[int]] = {}
        for goal, at in self._goals:
            for shape in _beginning(goal, byte, first):
                found.setdefault(shape, []).append(at)
        leaves = [(s, tuple(p)) for s, p in list(found.items())[:MAX_ALTERNATIVES]]
        if not leaves:
            self._sure = False
            anything = self._least.expansion.goal(())
            self._least.settle()
            shapes = list(_beginning(anything, byte, first))
            leaves = [(s, tuple(at for _, at in self._goals)) for s in shapes]
            if not leaves:
                self._mode = _LOST
                return
        if byte in b"{[":
            containers = [
                (s, p) for s, p in leaves if not isinstance(s, (Literals, Numbers, Strings))
            ]
            self._frame = opened(self._least, self._frame, containers)
            self._mode = _KEY if byte == 0x7B else _ITEM
            self._extra = 0
            return
        self._leaves = leaves
        self._extra = LONGEST_PART + max(_worst(shape) for shape, _ in leaves)
        if byte == 0x22:
            strings = [s for s, _ in leaves if isinstance(s, Strings)]
            automata = {a: None for s in strings for a in s.automata}
            keeps = 6 * max((s.worst for s, _ in leaves if isinstance(s, Literals)), default=0)
            self._text = Text(any(s.tracked for s in strings), tuple(automata), keeps)
            self._mode = _STRING
        else:
            self._word = first
            self._text = None
            self._mode = _WORD

    def _begin_key(self) -> None:
        self._text = Text(False, (), _MAX_KEY)
        self._extra = self._key_bound()
        self._mode = _NAME

    def _key_bound(self) -> int:
        alternatives = self._frame.alternatives
        shapes = [a.shape for a in alternatives if isinstance(a.shape, Objects)]
        return LONGEST_PART + max((shape.worst_key for shape in shapes), default=0)

    def _next_item(self) -> None:
        if self._frame.is_object:
            self._extra = self._key_bound()
            self._mode = _MORE_KEY
        else:
            self._frame = self._frame.with_item()
            self._expect_value(None)

    def _within(self, mode: int, data: bytes, at: int) -> int:
        """Read on in a scalar or a key; the index after what belongs to it."""
        if mode == _WORD:
            match = _WORD_BYTES.match(data, at)
            assert match is not None
            self._word += match[0]
            if match.end() < len(data):
                self._finish(self._takes_word(shape) for shape, _ in self._leaves)
            return match.end()
        assert self._text is not None
        at = self._text.take(data, at)
        if self._text.closed and mode == _NAME:
            self._end_key()
        elif self._text.closed:
            self._finish(self._takes_string(shape) for shape, _ in self._leaves)
        return at

    def _end_key(self) -> None:
        assert self._text is not None
        key = decoded(self._text.raw)
        self._text = None
        self._frame = self._frame.with_key(key)
        self._expect_value(key)
        self._mode = _COLON

    def _takes_word(self, shape: Shape) -> bool:
        if isinstance(shape, Literals):
            return shape.has(self._word)
        return isinstance(shape, Numbers) and shape.takes(self._word)

    def _takes_string(self, shape: Shape) -> bool:
        assert self._text is not None
        if isinstance(shape, Literals):
            raw = self._text.raw
            return shape.has(b'"' + raw + b'"') or (
                b"\\" in raw and shape.has(quoted(decoded(raw)))
            )
        return isinstance(shape, Strings) and self._text.fits(shape)

    def _finish(self, fits: Iterable[bool]) -> None:
        """The scalar is over."""
        kept = {
            at
            for fit, (_, parents) in zip(fits, self._leaves, strict=True)
            if fit
            for at in parents
        }
        self._leaves = []
        self._text = None
        self._after(kept)

    def _close(self) -> None:
        frame = self._frame
        kept = frame.closes()
        assert frame.outer is not None
        self._frame = frame.outer
        self._after(kept)

    def _after(self, kept: set[int]) -> None:
        """A value is over, and some of the frame's alternatives have allowed it."""
        if kept:
            self._frame = self._frame.only(kept)
        else:
            self._sure = False
        self._extra = 0
        self._mode = _AFTER


def _beginning(goal: Goal, byte: int, first: bytes) -> Iterator[Shape]:
    """The shapes whose values may begin with a byte."""
    if byte == 0x7B:
        yield from goal.objects
    elif byte == 0x5B:
        yield from goal.arrays
    else:
        if byte == 0x22:
            yield from goal.strings
        elif byte in b"-0123456789":
            yield from goal.numbers
        yield from (shape for shape in goal.literals if shape.begins(first))


def _worst(shape: Shape) -> int:
    return 0 if not isinstance(shape, (Literals, Numbers, Strings)) else shape.worst
