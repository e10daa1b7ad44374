"""Assembly: the way from a book of rules to the mask engine's grammar, for all front ends."""

from __future__ import annotations

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.rules.book import Book
from ramet.runtime.grammar.rules.lexing import exact_plan
from ramet.runtime.grammar.rules.plan import MAX_ITEMS, TooManyItems
from ramet.runtime.grammar.rules.solving import solved
from ramet.runtime.grammar.rules.writing import written
from ramet.runtime.grammar.source import Source


def source(kind: str, book: Book) -> Source:
    """The mask engine's grammar of a book; raises GrammarError for one without texts, or one that
    is too large."""

    def refuse(terminal: int, skip: int) -> None:
        ignored = book.labels.get(skip, "a terminal")
        before = book.labels.get(terminal, "another terminal")
        raise GrammarError(
            f"{kind}: %ignore {ignored}: where it begins can't be told: it can go on with what "
            f"follows {before}, or {before} can begin within it; let them begin with different "
            "characters, or let what is ignored end with a character of its own, as a comment "
            "with the end of its line"
        )

    try:
        plan = exact_plan(solved(kind, book), refuse)
    except TooManyItems:
        raise GrammarError(
            f"{kind}: too large: read character by character it has more than {MAX_ITEMS:,} parts"
        ) from None
    return Source(written(kind, plan))
