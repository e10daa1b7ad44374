"""Shapes: what a value may be, as alternatives without references or combinators.

A Goal is what one place of a document asks for: any of its shapes. Goals are shared by all places
that ask for the same, so a recursive schema has finitely many.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from ramet.runtime.grammar.closing.automaton import FAR, Automaton, completion
from ramet.runtime.grammar.closing.number import Numbers

SHORT_NAME = 8
"""Bytes in which a name can always be found that isn't taken."""


class Goal:
    """Any of its shapes."""

    __slots__ = ("arrays", "best", "least", "literals", "numbers", "objects", "strings")

    def __init__(self) -> None:
        self.literals: list[Literals] = []
        self.numbers: list[Numbers] = []
        self.strings: list[Strings] = []
        self.arrays: list[Arrays] = []
        self.objects: list[Objects] = []
        self.least = FAR
        """Bytes of the shortest value; FAR if there is none."""
        self.best: Shape | None = None
        """A shape that has it."""

    def shapes(self) -> list[Shape]:
        """All of them."""
        return [*self.literals, *self.numbers, *self.strings, *self.arrays, *self.objects]


class Literals:
    """One of some texts: `true`, `null`, or the scalars of an `enum`."""

    __slots__ = ("least", "texts", "worst")

    def __init__(self, texts: set[bytes]) -> None:
        self.texts = sorted(texts)
        self.least = min(map(len, self.texts))
        self.worst = max(map(len, self.texts))

    def beginning(self, text: bytes) -> list[bytes]:
        """Those that begin with a text."""
        first = bisect_left(self.texts, text)
        last = bisect_left(self.texts, text + b"\xff")
        return self.texts[first:last]

    def has(self, text: bytes) -> bool:
        """Whether a text is one of them."""
        at = bisect_left(self.texts, text)
        return at < len(self.texts) and self.texts[at] == text

    def begins(self, text: bytes) -> bool:
        """Whether any begins with a text."""
        at = bisect_left(self.texts, text)
        return at < len(self.texts) and self.texts[at].startswith(text)

    @property
    def text(self) -> bytes:
        """The shortest."""
        return min(self.texts, key=len)


class Strings:
    """Strings of some length that match patterns."""

    __slots__ = ("automata", "high", "least", "low", "text", "tracked", "worst")

    def __init__(self, low: int, high: int | None, automata: tuple[Automaton, ...]) -> None:
        self.low = low
        self.high = high
        self.automata = automata
        self.tracked = bool(low or high is not None or automata)
        """Whether it matters what is in the string."""
        found = completion(automata, [a.start for a in automata], low, high)
        self.text = b'"' + (found or b"") + b'"'
        """The shortest."""
        self.least = FAR if found is None else len(self.text)
        self.worst = 1 + low if not automata else FAR
        """No text that closes such a string is longer, not counting what its last, unfinished
        character needs; FAR if that isn't known."""
        if len(automata) == 1:
            dearest, farthest = automata[0].dearest, automata[0].farthest
            self.worst = 1 + low * dearest + farthest * (1 if high is None else dearest)


class Arrays:
    """Arrays by position."""

    __slots__ = ("_rest", "high", "items", "low", "prefix")

    def __init__(self, prefix: tuple[Goal, ...], items: Goal, low: int, high: int | None) -> None:
        self.prefix = prefix
        self.items = items
        self.low = low
        self.high = high
        self._rest: list[int] | None = None

    def child(self, index: int) -> Goal | None:
        """What the item at an index has to be; None if there can't be one."""
        if self.high is not None and index >= self.high:
            return None
        goal = self.prefix[index] if index < len(self.prefix) else self.items
        return goal if goal.least < FAR else None

    def rest(self, index: int) -> int:
        """Bytes of what has to follow `index` items, with a comma before each, and the bracket."""
        if index >= self.low:
            return 1
        if index >= len(self.prefix):
            return min(FAR, 1 + (self.low - index) * (1 + self.items.least))
        if self._rest is None:
            tail = self.rest(len(self.prefix))
            rest = [tail]
            for at in reversed(range(len(self.prefix))):
                needed = 1 + self.prefix[at].least if at < self.low else 0
                rest.append(min(FAR, rest[-1] + needed))
            self._rest = rest[::-1]
        return self._rest[index]

    @property
    def least(self) -> int:
        """Bytes of the shortest; asked again and again until it doesn't change."""
        self._rest = None
        whole = self.rest(0)
        self._rest = None
        return min(FAR, whole + (0 if self.low else 1)) if whole < FAR else FAR


class Objects:
    """Objects by name: declared ones in their order, then others in any."""

    __slots__ = (
        "_sorted",
        "costs",
        "find",
        "generic",
        "high",
        "low",
        "names",
        "num_declared",
        "order",
        "properties",
        "required",
        "worst_key",
    )

    def __init__(
        self,
        properties: dict[str, Goal],
        num_declared: int,
        required: dict[str, None],
        generic: list[tuple[Automaton | None, Goal]],
        find: Callable[[str], Goal],
        low: int,
        high: int | None,
    ) -> None:
        self.properties = properties
        """Those with names, the declared ones first and in their order."""
        self.num_declared = num_declared
        self.required = required
        self.generic = generic
        """Other names: what they match (None: anything else), and what they have."""
        self.find = find
        """What a name that isn't declared has."""
        self.low = low
        self.high = high
        self.order = {name: min(at, num_declared) for at, name in enumerate(properties)}
        """The place of a name; all names that aren't declared have the last."""
        self.names = {name: quoted(name) for name in properties}
        self.costs: dict[str, int] = {}
        """Bytes of a required property, comma included."""
        self.worst_key = 0
        """`fill`, once that doesn't change any more."""
        self._sorted: list[bytes] = []

    def child(self, name: str) -> Goal | None:
        """What the property of a name has to be; None if there can't be one."""
        goal = self.properties.get(name) or self.find(name)
        return goal if goal.least < FAR else None

    def close(self) -> None:
        """Its children's lengths don't change any more."""
        self.worst_key = self.fill
        names = (name for name, goal in self.properties.items() if goal.least < FAR)
        self._sorted = sorted(self.names[name] for name in names)

    def may_begin(self, key: bytes, declared: bool) -> bool:
        """Whether a begun key, its quote included, may become one that has a value.

        `declared`: whether only declared ones can come yet.
        """
        at = bisect_left(self._sorted, key)
        if at < len(self._sorted) and self._sorted[at].startswith(key):
            return True
        return not declared and any(goal.least < FAR for _, goal in self.generic)

    @property
    def fixed(self) -> int:
        """Bytes of all required properties."""
        return min(FAR, sum(self.costs.values()))

    @property
    def fill(self) -> int:
        """No property takes more bytes, the comma included, when all of it is chosen; 0 if there
        can be none."""
        found = 0
        for automaton, goal in self.generic:
            if goal.least < FAR:
                key = SHORT_NAME if automaton is None else 6 * automaton.farthest
                found = max(found, key + goal.least + 4)
        for name, goal in self.properties.items():
            if goal.least < FAR:
                found = max(found, len(self.names[name]) + goal.least + 2)
        return found

    @property
    def least(self) -> int:
        """Bytes of the shortest, about; asked again and again until it doesn't change."""
        self.costs = {
            name: len(self.names[name]) + 2 + self.properties[name].least for name in self.required
        }
        if any(cost >= FAR for cost in self.costs.values()):
            return FAR
        lacking = self.low - len(self.required)
        more = 0
        if lacking > 0:
            more = lacking * self.fill
            if not more:
                return FAR
        return min(FAR, self.fixed + more + 2)


Shape = Literals | Numbers | Strings | Arrays | Objects


def quoted(value: Any) -> bytes:
    """A name, or any value, as JSON writes it, compactly."""
    if isinstance(value, Decimal):
        return format(value, "f").encode()
    if isinstance(value, list):
        return b"[" + b",".join(map(quoted, value)) + b"]"
    if isinstance(value, dict):
        return b"{" + b",".join(quoted(k) + b":" + quoted(v) for k, v in value.items()) + b"}"
    return json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")
