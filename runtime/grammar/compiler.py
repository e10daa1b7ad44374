"""Compiler: constraints to grammars that matchers start from, kept by their content."""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict
from typing import TYPE_CHECKING

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar import dialect
from ramet.runtime.grammar.lark_text import lark_text
from ramet.runtime.grammar.matcher import Matcher, exceeded
from ramet.runtime.grammar.spec import Constraint
from ramet.runtime.grammar.vocabulary import Vocabulary, mask_engine

if TYPE_CHECKING:
    import llguidance


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What the engine may spend on one grammar before it gives up, with an error."""

    compile_fuel: int = 1_000_000
    """Steps of building; about 50 a microsecond."""
    step_fuel: int = 200_000
    """Steps of the automaton per token; about 14 a microsecond."""
    states: int = 100_000
    """States of the automaton; about a kilobyte each."""


class Grammar:
    """One compiled constraint: a maker of matchers, over a model's tokens or over bytes."""

    def __init__(self, constraint: Constraint, vocabulary: Vocabulary | None, limits: Limits):
        self.constraint = constraint
        self.vocabulary = vocabulary
        self._limits = limits
        self._source = lark_text(dialect.parse(constraint.text))
        self._tokens: llguidance.LLMatcher | None = None

    def matcher(self) -> Matcher:
        """A matcher over the vocabulary's tokens, at the start of a text.

        Raises GrammarError if the constraint needs more than the limits to start with.
        """
        assert self.vocabulary is not None
        if self._tokens is None or self._is_spent(self._tokens):
            self._tokens = self._build(self.vocabulary.native)
        make = functools.partial(self._build, self.vocabulary.native)
        bits, ends = self.vocabulary.text_bits, self.vocabulary.end_ids
        matcher = Matcher(self._tokens.deep_copy(), make, bits, ends)
        _ = matcher.next_tokens  # Its copies need not ask again.
        return matcher

    def byte_matcher(self) -> Matcher:
        """A matcher whose tokens are the 256 bytes."""
        make = functools.partial(self._build, _byte_tokenizer())
        return Matcher(make(), make, _byte_bits)

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
            verbose_errors=False,
        )
        native: llguidance.LLMatcher = package.LLMatcher(
            tokenizer,
            package.LLMatcher.grammar_from_lark(self._source),
            log_level=0,
            limits=limits,
        )
        if not native.is_error():
            native.compute_bitmask()
        if exceeded(native):
            kind, text = self.constraint.kind, self.constraint.text
            raise GrammarError(
                f"{kind}={text!r:.200}: the mask engine refuses it: "
                + native.get_error().splitlines()[0]
            )
        return native


class Compiler:
    """Compiles constraints for one vocabulary; the last used are kept."""

    def __init__(
        self, vocabulary: Vocabulary, *, capacity: int = 128, limits: Limits | None = None
    ) -> None:
        self.vocabulary = vocabulary
        self._capacity = capacity
        self._limits = limits or Limits()
        self._known: OrderedDict[Constraint, Grammar] = OrderedDict()

    def compile(self, constraint: Constraint) -> Grammar:
        """The grammar of a constraint.

        Raises GrammarError for one that exceeds the limits, UnsupportedFeature without the mask
        engine's package. A failure is not kept.
        """
        grammar = self._known.get(constraint)
        if grammar is None:
            grammar = Grammar(constraint, self.vocabulary, self._limits)
            grammar.matcher()
            self._known[constraint] = grammar
            if len(self._known) > self._capacity:
                self._known.popitem(last=False)
        self._known.move_to_end(constraint)
        return grammar


@functools.lru_cache(maxsize=1)
def _byte_tokenizer() -> llguidance.LLTokenizer:
    tokenizer: llguidance.LLTokenizer = mask_engine().LLTokenizer("byte")
    return tokenizer


def _byte_bits(mask: bytes) -> int:
    return int.from_bytes(mask[:32], "little")
