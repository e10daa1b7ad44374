"""Closer: what one schema's documents need to be closed, and the closing of one of them.

How a caller keeps a document within its budget: while `walk.bound` (bytes, so at most as many
tokens of a vocabulary that has all bytes) is no more than what is left, any token will do, and
nothing else is looked at. Where it is more, or None, `closing_for` says after each token what
follows it; a token after which nothing that fits follows isn't taken, and the closing found before
it is written instead, which stays a closing as it gets shorter.
"""

from __future__ import annotations

from ramet.runtime.grammar.closing.expansion import Expansion
from ramet.runtime.grammar.closing.least import Least
from ramet.runtime.grammar.closing.search import repaired
from ramet.runtime.grammar.closing.walk import Walk
from ramet.runtime.grammar.json_schema.normal import normalise
from ramet.runtime.grammar.matcher import Matcher

MAX_OPENING = 1 << 16
"""Bytes of a document that is tried on a matcher."""


class Closer:
    """One schema's shortest values; made once and shared by all walks."""

    def __init__(self, schema_text: str, whitespace: str = "compact") -> None:
        """`schema_text` is JSON; raises GrammarError for what is no schema.

        `whitespace` is the constraint's. Closings are compact in any case.
        """
        self.whitespace = whitespace
        self._least = Least(Expansion(normalise(schema_text)))

    @property
    def sure(self) -> bool:
        """Whether the schema was understood whole, so that a walk's bounds can be trusted."""
        return self._least.expansion.sure

    @property
    def shortest(self) -> bytes | None:
        """A shortest document; None if none is known."""
        root = self._least.expansion.root
        return self._least.text(root) if root.best is not None else None

    def opening(self, matcher: Matcher) -> bytes | None:
        """A short document, as a matcher at its beginning has it; None if none is found.

        A shortest one where the schema was understood whole; else it may be longer than that.
        """
        shortest = self.shortest
        if shortest is None or len(shortest) > MAX_OPENING:
            return shortest if self.sure else None
        return closing_for(self.walk(), matcher)

    def walk(self) -> Walk:
        """A walk at the beginning of a document."""
        return Walk(self._least)


def closing_for(walk: Walk, matcher: Matcher) -> bytes | None:
    """A short text that makes a document whole, as the matcher has it; None if none is found.

    `matcher` is over bytes, stands where the walk stands, and is left there. The empty text is an
    answer: the document is whole. Where the walk proposes nothing that the matcher takes, a bounded
    search goes on from as far as it came.
    """
    tried: list[bytes] = []
    for text in walk.closings():
        taken = _taken(matcher, text)
        if taken == len(text) and matcher.accepting:
            matcher.rollback(taken)
            return text
        matcher.rollback(taken)
        tried.append(text[:taken])
    return repaired(walk, matcher, tried)


def _taken(matcher: Matcher, text: bytes) -> int:
    """How many bytes of a text the matcher takes."""
    for at, byte in enumerate(text):
        if not matcher.advance(byte):
            return at
    return len(text)
