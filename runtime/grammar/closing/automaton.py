"""Automaton: a Pattern that characters are fed to, and that knows its shortest way to an end."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from ramet.runtime.grammar.charset import Ranges
from ramet.runtime.grammar.closing.characters import cheapest, common, holds
from ramet.runtime.grammar.patience import check
from ramet.runtime.grammar.pattern import Alt, Cat, Chars, Pattern, Repeat

MAX_NODES = 50_000
"""Nodes of one automaton; a larger pattern is not understood here."""
MAX_CACHED = 20_000
"""Transitions and states that an automaton remembers before it forgets all of them."""
MAX_MOVES = 20_000
"""Work of one search for a completion: characters tried, by each automaton, and sets of characters
put together; about a microsecond each."""
MAX_LENGTH = 1 << 20
"""Characters of a completion."""
FAR = 1 << 60
"""Longer than anything: there is no way."""


class TooLarge(Exception):
    """A pattern has more than MAX_NODES nodes when its counts are written out."""


class State:
    """A set of the automaton's nodes after some text."""

    __slots__ = ("accepting", "distance", "nodes")

    def __init__(self, nodes: frozenset[int], accepting: bool, distance: int) -> None:
        self.nodes = nodes
        """Those that a character leaves."""
        self.accepting = accepting
        """Whether the text so far matches."""
        self.distance = distance
        """Bytes of the shortest completion, as JSON writes it; FAR if there is none."""


class Automaton:
    """A Thompson automaton; its sets of nodes are made when a text first reaches them."""

    def __init__(self, pattern: Pattern) -> None:
        """Raises TooLarge."""
        self._chars: list[Ranges | None] = []
        self._to: list[list[int]] = []
        self._end = self._node()
        start = self._build(pattern, self._end)
        self._costs = {
            node: cheapest(chars)[0] for node, chars in enumerate(self._chars) if chars is not None
        }
        self._distances = self._measure()
        self._states: dict[frozenset[int], State] = {}
        self._steps: dict[tuple[State, int], State] = {}
        self.start = self._closure([start])
        """Before any text."""
        self.farthest = max((d for d in self._distances if d < FAR), default=FAR)
        """No completion is longer, wherever a text is."""
        self.dearest = max(self._costs.values(), default=1)
        """Bytes of the longest among the characters that completions use."""

    def step(self, state: State, code: int) -> State:
        """The state after one more character."""
        key = (state, code)
        found = self._steps.get(key)
        if found is None:
            if len(self._steps) > MAX_CACHED:
                self._steps.clear()
            followers = (self._to[n][0] for n in state.nodes if holds(self._chars[n] or (), code))
            found = self._steps[key] = self._closure(followers)
        return found

    def sets(self, state: State) -> list[Ranges]:
        """The sets of characters that lead on from a state, the nearest to an end first."""
        ranked = sorted(
            (self._costs[node] + self._distances[self._to[node][0]], node) for node in state.nodes
        )
        found = dict.fromkeys(self._chars[node] or () for total, node in ranked if total < FAR)
        return list(found)[:16]

    def matches(self, text: str) -> bool:
        """Whether the pattern matches the whole text."""
        return self.after(text).accepting

    def after(self, text: str) -> State:
        """The state after a text."""
        state = self.start
        for character in text:
            state = self.step(state, ord(character))
        return state

    def _node(self, chars: Ranges | None = None, *to: int) -> int:
        if len(self._chars) >= MAX_NODES:
            raise TooLarge
        self._chars.append(chars)
        self._to.append(list(to))
        return len(self._chars) - 1

    def _build(self, pattern: Pattern, then: int) -> int:
        """The node where a pattern begins that goes on to `then`; patterns nest little."""
        match pattern:
            case Chars():
                return self._node(pattern.ranges, then)
            case Cat():
                for part in reversed(pattern.parts):
                    then = self._build(part, then)
                return then
            case Alt():
                return self._node(None, *(self._build(each, then) for each in pattern.options))
            case Repeat():
                if pattern.high is None:
                    loop = self._node(None, then)
                    self._to[loop].append(self._build(pattern.body, loop))
                    then = loop
                else:
                    end = then
                    for _ in range(pattern.high - pattern.low):
                        then = self._node(None, end, self._build(pattern.body, then))
                for _ in range(pattern.low):
                    then = self._build(pattern.body, then)
                return then

    def _measure(self) -> list[int]:
        """Bytes from each node to the end."""
        sources: list[list[int]] = [[] for _ in self._to]
        for node, targets in enumerate(self._to):
            for target in targets:
                sources[target].append(node)
        distances = [FAR] * len(self._to)
        queue = [(0, self._end)]
        while queue:
            distance, node = heapq.heappop(queue)
            if distance >= distances[node]:
                continue
            distances[node] = distance
            for source in sources[node]:
                heapq.heappush(queue, (distance + self._costs.get(source, 0), source))
        return distances

    def _closure(self, nodes: Iterator[int] | Sequence[int]) -> State:
        check()
        reached: set[int] = set()
        stack = list(nodes)
        while stack:
            node = stack.pop()
            if node not in reached:
                reached.add(node)
                if self._chars[node] is None:
                    stack.extend(self._to[node])
        found = frozenset(node for node in reached if self._chars[node] is not None)
        accepting = self._end in reached
        key = found | {self._end} if accepting else found
        state = self._states.get(key)
        if state is None:
            if len(self._states) > MAX_CACHED:
                self._states.clear()
                self._steps.clear()
            ways = (self._costs[n] + self._distances[self._to[n][0]] for n in found)
            distance = 0 if accepting else min(ways, default=FAR)
            state = self._states[key] = State(found, accepting, distance)
        return state


def completion(
    automata: Sequence[Automaton], states: Sequence[State], low: int, high: int | None
) -> bytes | None:
    """The shortest text, as JSON writes it, that all the automata match from their states on.

    At least `low` characters, at most `high`. None if there is none, or none was found within
    MAX_MOVES.
    """
    if low > MAX_LENGTH:
        return None
    if not automata:
        return b"a" * low if high is None or low <= high else None
    start = tuple(states)
    queue: list[tuple[int, int, int, tuple[State, ...], int, bytes]] = []
    seen: set[tuple[tuple[State, ...], int]] = set()
    order = 0

    def put(cost: int, now: tuple[State, ...], length: int, text: bytes) -> None:
        nonlocal order
        left = max(*(s.distance for s in now), low - length)
        if left < FAR and (high is None or length <= high):
            order += 1
            heapq.heappush(queue, (cost + left, -length, order, now, length, text))

    put(0, start, 0, b"")
    moves = 0
    while queue and moves < MAX_MOVES:
        _, _, _, now, length, text = heapq.heappop(queue)
        # Longer than what is asked, only a limit tells lengths apart.
        key = (now, length if high is not None else min(length, low))
        if key in seen:
            continue
        seen.add(key)
        if length >= low and all(state.accepting for state in now):
            return text
        found, work = _moves(automata, now)
        moves += work
        for code, written in found:
            moves += len(automata)
            after = tuple(a.step(s, code) for a, s in zip(automata, now, strict=True))
            put(len(text) + len(written), after, length + 1, text + written)
    return None


def _moves(
    automata: Sequence[Automaton], states: tuple[State, ...]
) -> tuple[list[tuple[int, bytes]], int]:
    """Characters worth trying, one of each set that leads on; and how many sets were looked at."""
    sets = automata[0].sets(states[0])
    work = 1 + len(sets)
    for automaton, state in zip(automata[1:], states[1:], strict=True):
        others = automaton.sets(state)
        work += len(sets) * len(others)
        pairs = (common(one, other) for one in sets for other in others)
        sets = list(dict.fromkeys(both for both in pairs if both))[:64]
    found: dict[int, bytes] = {}
    for chars in sets:
        _, code, written = cheapest(chars)
        found.setdefault(code, written)
    return list(found.items()), work
