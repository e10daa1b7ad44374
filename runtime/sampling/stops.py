"""The stop texts of a call as one automaton over UTF-8 bytes (Aho & Corasick 1975)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class StopSet:
    """An immutable matcher of several stop texts; a state is an int, 0 at the start.

    The state after some bytes stands for the longest suffix of them that begins a stop. Shared
    freely between sequences. Each byte costs amortised constant time, whatever the number of
    stops.
    """

    __slots__ = ("_children", "_fail", "_found", "_held")

    def __init__(self, stops: Iterable[str]) -> None:
        self._children: list[dict[int, int]] = [{}]
        self._found: list[str | None] = [None]
        depth = [0]
        for stop in stops:
            node = 0
            for byte in stop.encode():
                child = self._children[node].get(byte)
                if child is None:
                    child = len(depth)
                    self._children[node][byte] = child
                    self._children.append({})
                    self._found.append(None)
                    depth.append(depth[node] + 1)
                node = child
            if node:
                self._found[node] = stop
        self._fail = [0] * len(depth)
        self._held = [0] * len(depth)
        self._link(depth)

    def _link(self, depth: list[int]) -> None:
        """Breadth first: failure links, then what each state inherits along its link."""
        queue = deque(self._children[0].values())
        while queue:
            node = queue.popleft()
            fail = self._fail[node]
            if self._found[node] is None:
                self._found[node] = self._found[fail]
            # A leaf is a whole stop and no proper prefix of one: only a shorter suffix can be.
            self._held[node] = depth[node] if self._children[node] else self._held[fail]
            for byte, child in self._children[node].items():
                self._fail[child] = self.advance(fail, byte)
                queue.append(child)

    def __bool__(self) -> bool:
        return len(self._children) > 1

    def advance(self, state: int, byte: int) -> int:
        """The state after one more byte."""
        children = self._children
        while True:
            child = children[state].get(byte)
            if child is not None:
                return child
            if not state:
                return 0
            state = self._fail[state]

    def found(self, state: int) -> str | None:
        """The longest stop that ends at this state, or None."""
        return self._found[state]

    def held(self, state: int) -> int:
        """How many of the last bytes are a proper prefix of some stop (the longest such)."""
        return self._held[state]
