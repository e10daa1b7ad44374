"""Book: the rules of one grammar by name, before anything is decided about them."""

from __future__ import annotations

import bisect
import dataclasses
from typing import NoReturn

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.rules.nodes import Nodes


@dataclasses.dataclass(slots=True)
class Book:
    """Rules; `bodies[i]` is what the rule called `names[i]` says. One that no user wrote has no
    name."""

    nodes: Nodes
    names: list[str]
    bodies: list[int]
    start: int
    skips: tuple[int, ...] = ()
    """What may stand between the parts of a text where a rule mentions `skip_rule`; each is taken
    as long as it can be, and none is ever split or merged with what stands beside it."""
    skip_rule: int = -1
    """The rule whose mention means any number of skips; -1 if there is none."""
    labels: dict[int, str] = dataclasses.field(default_factory=dict)
    """What users call some nodes, for messages."""


class Places:
    """Where in a grammar's text an error is."""

    def __init__(self, kind: str, text: str) -> None:
        self._kind = kind
        self._text = text
        self._lines = [0, *(i + 1 for i, c in enumerate(text) if c == "\n")]

    def fail(self, offset: int, message: str) -> NoReturn:
        """Raise GrammarError for what stands at an offset."""
        line = bisect.bisect_right(self._lines, offset)
        self.fail_at(line, offset - self._lines[line - 1] + 1, message)

    def fail_at(self, line: int, column: int, message: str) -> NoReturn:
        """Raise GrammarError for what stands at a line and column, both from 1."""
        raise GrammarError(f"{self._kind}: line {line}, column {column}: {message}")
