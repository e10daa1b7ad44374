"""Text: a JSON string or key as its bytes come in."""

from __future__ import annotations

import re
from itertools import islice

from ramet.runtime.grammar.charset import Ranges
from ramet.runtime.grammar.closing.automaton import FAR, Automaton, State, completion
from ramet.runtime.grammar.closing.characters import HEX, continuations, unfinished
from ramet.runtime.grammar.closing.shapes import Strings

LONGEST_PART = 11
"""Bytes that a begun escape may need: the rest of a high surrogate, and a low one."""

_SPECIAL = re.compile(rb'["\\]')
_ESCAPES = dict(zip(b'"\\/bfnrt', b'"\\/\x08\x0c\n\r\t', strict=True))


class Text:
    """How far a string has come; its characters are looked at only if they matter."""

    __slots__ = ("_keeps", "_tracks", "closed", "count", "high", "part", "raw", "states")

    def __init__(self, tracks: bool, automata: tuple[Automaton, ...], keeps: int) -> None:
        """`tracks`: whether length or characters matter; `keeps`: how many bytes are remembered."""
        self._tracks = tracks
        self._keeps = keeps
        self.states: dict[Automaton, State] = {a: a.start for a in automata}
        self.count = 0
        """Characters so far, if they matter."""
        self.part = b""
        """A begun escape or UTF-8 sequence."""
        self.high = 0
        """A high surrogate that waits for its low one."""
        self.raw = b""
        """What was read between the quotes; one byte more than are kept if it was too long."""
        self.closed = False

    def copy(self) -> Text:
        """The same, on its own from here."""
        twin = object.__new__(Text)
        twin._tracks = self._tracks
        twin._keeps = self._keeps
        twin.states = self.states  # Replaced as a whole, never changed.
        twin.count = self.count
        twin.part = self.part
        twin.high = self.high
        twin.raw = self.raw
        twin.closed = self.closed
        return twin

    def take(self, data: bytes, at: int) -> int:
        """Read on from an index; the index after what belongs to the string."""
        start, size = at, len(data)
        while at < size and not self.closed:
            if self.part[:1] == b"\\":
                at = self._escape(data, at)
                continue
            match = _SPECIAL.search(data, at)
            end = match.start() if match else size
            if end > at:
                self._plain(data[at:end])
            at = end
            if match:
                self.part = b""
                at = end + 1
                if match[0] == b'"':
                    self._flush()
                    self.closed = True
                else:
                    self.part = b"\\"
        if self._keeps and len(self.raw) <= self._keeps:
            self.raw += data[start : at - self.closed]
            self.raw = self.raw[: self._keeps + 1]
        return at

    def completions(self, shape: Strings) -> list[bytes]:
        """What closes the string so that it has a shape; a few, likely ones first."""
        states = [self.states[automaton] for automaton in shape.automata]
        found: list[bytes] = []

        def add(begun: bytes, now: list[State], count: int) -> None:
            if any(state.distance >= FAR for state in now):
                return
            low, high = shape.low - count, None if shape.high is None else shape.high - count
            if high is not None and high < 0:
                return
            rest = completion(shape.automata, now, max(low, 0), high)
            if rest is not None:
                found.append(begun + rest + b'"')

        if self.part or self.high:
            sets: list[Ranges] = []
            for automaton, state in zip(shape.automata[:1], states[:1], strict=True):
                sets = automaton.sets(state)
            for rest, code in islice(continuations(self.part, self.high, sets), 64):
                now = [a.step(s, code) for a, s in zip(shape.automata, states, strict=True)]
                add(rest, now, self.count + 1)
                if len(found) >= 4:
                    break
        if not self.part:
            add(b"", states, self.count + bool(self.high))
        return found

    def leads_on(self, shape: Strings) -> bool:
        """Whether something may close the string so that it has a shape."""
        if shape.high is not None and self.count > shape.high:
            return False
        return all(self.states[automaton].distance < FAR for automaton in shape.automata)

    def fits(self, shape: Strings) -> bool:
        """Whether the string, now closed, has a shape."""
        if self.count < shape.low or (shape.high is not None and self.count > shape.high):
            return False
        return all(self.states[automaton].accepting for automaton in shape.automata)

    def _plain(self, chunk: bytes) -> None:
        """Bytes without quotes and escapes."""
        self._flush()
        if not self._tracks:
            self.part = unfinished(self.part + chunk[-3:])
            return
        chunk = self.part + chunk
        self.part = unfinished(chunk)
        whole = chunk[: len(chunk) - len(self.part)].decode(errors="replace")
        self.count += len(whole)
        if self.states:
            for character in whole:
                self._step(ord(character))

    def _escape(self, data: bytes, at: int) -> int:
        """Go on with an escape; the index after what belongs to it."""
        if self.part == b"\\":
            if data[at] == 0x75:
                self.part = b"\\u"
            else:
                self.part = b""
                self._flush()
                self._add(_ESCAPES.get(data[at], 0xFFFD))
            return at + 1
        match = HEX.match(data, at, at + 6 - len(self.part))
        assert match is not None
        self.part += match[0]
        if len(self.part) == 6:
            self._code(int(self.part[2:], 16))
        elif match.end() < len(data):
            self.part = b""  # No escape; the mask engine would not have let it pass.
        return match.end()

    def _code(self, code: int) -> None:
        """A whole escape by number."""
        self.part = b""
        if self.high and 0xDC00 <= code <= 0xDFFF:
            code = 0x10000 + ((self.high - 0xD800) << 10) + (code - 0xDC00)
            self.high = 0
        else:
            self._flush()
        if 0xD800 <= code <= 0xDBFF:
            self.high = code
        else:
            self._add(code)

    def _flush(self) -> None:
        """A high surrogate stays alone."""
        if self.high:
            code, self.high = self.high, 0
            self._add(code)

    def _add(self, code: int) -> None:
        self.count += 1
        if self.states:
            self._step(code)

    def _step(self, code: int) -> None:
        self.states = {a: a.step(state, code) for a, state in self.states.items()}
