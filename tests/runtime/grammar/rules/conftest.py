"""Grammars of rules, followed byte by byte."""

from __future__ import annotations

from collections.abc import Callable

import llguidance
import pytest

from ramet.runtime.grammar.matcher import Matcher

BYTES = llguidance.LLTokenizer("byte")
END = 256


class Followed:
    """A grammar's matcher over bytes."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._native = self._make()

    def _make(self) -> llguidance.LLMatcher:
        grammar = llguidance.LLMatcher.grammar_from_lark(self._source)
        limits = llguidance.LLParserLimits(
            initial_lexer_fuel=1_000_000, step_lexer_fuel=200_000, max_lexer_states=100_000
        )
        native = llguidance.LLMatcher(BYTES, grammar, log_level=0, limits=limits)
        assert not native.is_error(), native.get_error()
        return native

    def matcher(self) -> Matcher:
        """With 256 as the id that ends a text."""
        return Matcher(
            self._native.deep_copy(),
            self._make,
            lambda mask: int.from_bytes(mask[:32], "little"),
            (END,),
        )

    def __call__(self, text: str) -> bool:
        """Whether a text is one of the grammar's."""
        matcher = self.matcher()
        return all(map(matcher.advance, text.encode())) and matcher.accepting

    def after(self, text: str) -> set[str]:
        """The ASCII characters that may follow the beginning of a text."""
        matcher = self.matcher()
        assert all(map(matcher.advance, text.encode())), text
        return {chr(code) for code in range(128) if matcher.next_tokens >> code & 1}


@pytest.fixture(scope="session")
def follow() -> Callable[[str], Followed]:
    """What follows a source's text."""
    return Followed
