"""Grammar: one compiled constraint, a maker of matchers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ramet.runtime.grammar.limits import Limits
from ramet.runtime.grammar.mask_engine import mask_engine
from ramet.runtime.grammar.matcher import Matcher, TooComplex, exceeded
from ramet.runtime.grammar.source import Source
from ramet.runtime.grammar.spec import Constraint
from ramet.runtime.grammar.vocabulary import Vocabulary

if TYPE_CHECKING:
    import llguidance

    from ramet.runtime.grammar.closing.closer import Closer


MAX_ITEMS = 20_000
"""What a grammar may have under way at one place: an object with thousands of optional properties
may go on with any of them."""


class Grammar:
    """One compiled constraint, over a model's tokens or over bytes."""

    def __init__(
        self,
        constraint: Constraint,
        source: Source,
        vocabulary: Vocabulary | None,
        limits: Limits,
    ) -> None:
        self.constraint = constraint
        self.source = source
        self.vocabulary = vocabulary
        self._limits = limits
        self.closer: Closer | None = None
        """What closes its documents, if they are JSON of one schema, and one of them is known."""
        self.opening: bytes | None = None
        """A short document, accepted by a matcher: what `closer` begins with."""
        self._tokens: llguidance.LLMatcher | None = None
        self._bytes: llguidance.LLMatcher | None = None

    def matcher(self) -> Matcher:
        """A matcher over the vocabulary's tokens, at the start of a text; raises as `check`."""
        assert self.vocabulary is not None
        if self._tokens is None or self._is_spent(self._tokens):
            self._tokens = self._build(self.vocabulary.native)
        make = functools.partial(self._build, self.vocabulary.native)
        bits, ends = self.vocabulary.text_bits, self.vocabulary.end_ids
        matcher = Matcher(self._tokens.deep_copy(), make, bits, ends)
        _ = matcher.next_tokens  # Its copies need not ask again.
        return matcher

    def check(self) -> None:
        """Raise TooComplex if the constraint needs more than the limits to start with."""
        if self.vocabulary is None:
            self.byte_matcher()
        else:
            self.matcher()

    def byte_matcher(self) -> Matcher:
        """A matcher whose tokens are the 256 bytes; raises as `check`."""
        make = functools.partial(self._build, _byte_tokenizer())
        if self._bytes is None or self._is_spent(self._bytes):
            self._bytes = make()
        return Matcher(self._bytes.deep_copy(), make, _byte_bits)

    def _is_spent(self, native: llguidance.LLMatcher) -> bool:
        """Whether the shared automaton is in error, or was driven into it by a copy."""
        native.compute_bitmask()
        return exceeded(native)

    def _build(self, tokenizer: llguidance.LLTokenizer) -> llguidance.LLMatcher:
        package = mask_engine()
        limits = package.LLParserLimits(
            initial_lexer_fuel=self._limits.compile_fuel,
            step_lexer_fuel=self._limits.step_fuel,
            max_lexer_states=self._limits.states,
            max_items_in_row=MAX_ITEMS,
            verbose_errors=False,
        )
        native: llguidance.LLMatcher = package.LLMatcher(
            tokenizer,
            package.LLMatcher.grammar_from_lark(self.source.lark),
            log_level=0,
            limits=limits,
        )
        if not native.is_error():
            native.compute_bitmask()
        if exceeded(native):
            kind, text = self.constraint.kind, self.constraint.text
            raise TooComplex(
                f"{kind}={text!r:.200}: the mask engine refuses it: "
                + native.get_error().splitlines()[0]
            )
        return native


def most_together(lark: str) -> int:
    """How many languages the terminals of a grammar meet at once, at most."""
    return 1 + max((line.count(" & ") for line in lark.splitlines()), default=0)


@functools.lru_cache(maxsize=1)
def _byte_tokenizer() -> llguidance.LLTokenizer:
    tokenizer: llguidance.LLTokenizer = mask_engine().LLTokenizer("byte")
    return tokenizer


def _byte_bits(mask: bytes) -> int:
    return int.from_bytes(mask[:32], "little")
