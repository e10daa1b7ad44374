"""Acceptance: does a finished text satisfy a constraint, by the same compiler and matcher."""

from __future__ import annotations

import dataclasses

from ramet.runtime.grammar.compiler import Bounds, compile_constraint
from ramet.runtime.grammar.front_ends import violations
from ramet.runtime.grammar.spec import Constraint
from ramet.runtime.grammar.vocabulary import vocabulary_of
from ramet.runtime.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True, slots=True)
class Acceptance:
    """The answer; true or false as a condition."""

    accepted: bool
    position: int | None = None
    """Where a refused text goes wrong: the index of the first character that can't stand there, or
    the text's length if it only lacks more."""
    reason: str = ""
    """Why it is refused."""

    def __bool__(self) -> bool:
        return self.accepted


def check_text_against(
    constraint: Constraint, text: str, tokenizer: Tokenizer | None = None
) -> Acceptance:
    """Whether `text` satisfies `constraint`, byte by byte, or token by token of a tokenizer.

    Raises GrammarError for a constraint or a text that exceeds the limits.
    """
    if tokenizer is None:
        grammar = compile_constraint(constraint, None, Bounds())
        matcher = grammar.byte_matcher()
        pieces = [(byte, 1) for byte in text.encode()]
    else:
        grammar = compile_constraint(constraint, vocabulary_of(tokenizer), Bounds())
        matcher = grammar.matcher()
        ids = tokenizer.encode([(text, "content")], continuation=True)
        pieces = [(token, len(tokenizer.token_bytes(token))) for token in ids]
    taken = 0
    for token, size in pieces:
        if not matcher.advance(token):
            position = len(text.encode()[:taken].decode(errors="ignore"))
            return Acceptance(False, position, f"{text[position : position + 20]!r} can't follow")
        taken += size
    if not matcher.accepting:
        return Acceptance(False, len(text), "the text ends before it is a whole one")
    if grammar.source.unenforced and (broken := violations(constraint, text)):
        return Acceptance(False, len(text), broken[0])
    return Acceptance(True)
