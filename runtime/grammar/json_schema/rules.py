"""Rules: a grammar under construction, less what can never be finished."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Final

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.json_schema.spelling import Terminals

MAX_DEPTH: Final = 1_500
"""Rules that lead to one another, before the first is done; the engine compiles them one within
another, on a stack."""
MAX_RULES: Final = 60_000
"""Alternatives of all rules together."""

HEADER: Final = '%llguidance {"no_forcing": true}\n'
"""As in `lark_text`: masks show every token that may come next."""

_TERMINAL = re.compile(r"\bT\d+\b")


@dataclasses.dataclass(frozen=True)
class Times:
    """Some symbols, `low` to `high` times, at least once."""

    symbols: tuple[str, ...]
    low: int
    high: int | None


@dataclasses.dataclass(frozen=True)
class Alternative:
    """One right side: names of rules and terminals, and when it may be taken."""

    symbols: tuple[str | Times, ...]
    condition: str = ""
    """On the parameter of a rule that has one, in the engine's words."""


class Rules:
    """Rules by name. A name in use that has no rule, or no finite text, is what nothing satisfies.

    Terminals' names begin with a capital. A call of a rule with a parameter is `name::argument`.
    """

    def __init__(self) -> None:
        self.terminals = Terminals()
        self._rules: dict[str, list[Alternative]] = {}
        self._parametric: set[str] = set()
        self._count = 0
        self._size = 0

    @property
    def size(self) -> int:
        """Alternatives so far."""
        return self._size

    def name(self, letter: str) -> str:
        """A new name."""
        self._count += 1
        return f"{letter}{self._count}"

    def add(self, name: str, *symbols: str | Times, condition: str = "") -> None:
        """One more alternative of a rule."""
        self._size += 1
        if self._size > MAX_RULES:
            raise GrammarError("json_schema: too large: its grammar has too many alternatives")
        if condition:
            self._parametric.add(name)
        self._rules.setdefault(name, []).append(Alternative(symbols, condition))

    def lark(self, start: str) -> str | None:
        """The grammar's text; None if nothing satisfies it."""
        self._prune()
        if start not in self._rules:
            return None
        if self._depth(start) > MAX_DEPTH:
            raise GrammarError(
                f"json_schema: nested too deep: more than {MAX_DEPTH:,} rules within one another"
            )
        lines = [f"{HEADER}start: {start}"]
        waiting, seen = [start], {start}
        terminals: set[str] = set()
        while waiting:
            name = waiting.pop()
            ways = list(dict.fromkeys(self._rules[name]))
            mark = "::_" if name in self._parametric else ""
            lines.append(f"{name}{mark}: " + "\n  | ".join(map(_written, ways)))
            for symbol in _symbols(ways):
                if symbol[0].isupper():
                    terminals.add(symbol)
                elif symbol not in seen:
                    seen.add(symbol)
                    waiting.append(symbol)
        return "\n".join((*lines, *self._terminal_lines(terminals), ""))

    def _terminal_lines(self, used: set[str]) -> Iterator[str]:
        lines = self.terminals.lines
        waiting = list(used)
        while waiting:
            for name in _TERMINAL.findall(lines[waiting.pop()]):
                if name not in used:
                    used.add(name)
                    waiting.append(name)
        return (f"{name}: {text}" for name, text in lines.items() if name in used)

    def _depth(self, start: str) -> int:
        """How deep the engine will go."""
        seen = {start}
        stack = [self._children(start)]
        deepest = 1
        while stack:
            for name in stack[-1]:
                if name not in seen:
                    seen.add(name)
                    stack.append(self._children(name))
                    deepest = max(deepest, len(stack))
                    break
            else:
                stack.pop()
        return deepest

    def _children(self, name: str) -> Iterator[str]:
        return (s for s in _symbols(self._rules[name]) if not s[0].isupper())

    def _prune(self) -> None:
        """Keep the alternatives that have a finite text."""
        users: dict[str, list[tuple[str, Alternative]]] = {}
        missing: dict[int, int] = {}
        ready: list[str] = []
        kept: dict[str, set[int]] = {}
        for name, ways in self._rules.items():
            for way in ways:
                needed = {s for s in _symbols([way]) if not s[0].isupper()}
                missing[id(way)] = len(needed)
                for symbol in needed:
                    users.setdefault(symbol, []).append((name, way))
                if not needed:
                    ready.append(name)
                    kept.setdefault(name, set()).add(id(way))
        done: set[str] = set()
        while ready:
            name = ready.pop()
            if name in done:
                continue
            done.add(name)
            for user, way in users.get(name, ()):
                missing[id(way)] -= 1
                if missing[id(way)] == 0:
                    kept.setdefault(user, set()).add(id(way))
                    ready.append(user)
        self._rules = {
            name: [way for way in ways if id(way) in kept[name]]
            for name, ways in self._rules.items()
            if name in kept
        }


def _symbols(ways: Sequence[Alternative]) -> Iterator[str]:
    for way in ways:
        for symbol in way.symbols:
            for name in symbol.symbols if isinstance(symbol, Times) else (symbol,):
                yield name.partition("::")[0]


def _written(way: Alternative) -> str:
    parts = []
    for symbol in way.symbols:
        if isinstance(symbol, str):
            parts.append(symbol)
            continue
        high = "" if symbol.high is None else str(symbol.high)
        inner = " ".join(symbol.symbols)
        count = "+" if (symbol.low, symbol.high) == (1, None) else f"{{{symbol.low},{high}}}"
        parts.append(f"({inner}){count}")
    condition = f" %if {way.condition}" if way.condition else ""
    return (" ".join(parts) or '""') + condition
