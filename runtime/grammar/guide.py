"""Guide: one sample under a constraint: what may come next, and when it is over.

Rules, where a constraint meets the other arguments of a call:

- **End.** The end ids are allowed exactly where the text so far is a whole one. Where nothing else
  could follow, the text is over at once, whatever `min_tokens` and `ignore_eos` say.
- **Stops.** A stop ends the text only where what stays of it is a whole one; elsewhere a stop text
  is ordinary text, and a stop id an ordinary token. Where the text so far is a whole one, a token
  that begins a stop is allowed besides those that the constraint allows, and then what completes
  that stop. So `regex="[0-9]+", stop=")"` ends at `37)` with the value `37`.
- **include_stop** makes the stop part of the value, which the constraint describes. So then
  nothing is allowed besides, and a stop counts only where the text with it is a whole one.
- **Special tokens** never are text; one may be sampled only as an end id or a stop id.
- **Forced text** (`jump_forward`) is taken as it stands, without sampling, where the text so far is
  no whole one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.compiler import Compilation
from ramet.runtime.grammar.grammar import Grammar
from ramet.runtime.grammar.jump import Jumps
from ramet.runtime.grammar.matcher import Matcher
from ramet.runtime.grammar.vocabulary import Vocabulary, bits_of
from ramet.runtime.request import SamplingParams


class Guide:
    """The matcher of one sample, with the stops that may follow it."""

    def __init__(
        self, compilation: Compilation, params: SamplingParams, jumps: Jumps | None = None
    ) -> None:
        """A sample at the beginning. Until the grammar is compiled, only `ready` may be asked.

        `jumps` finds the tokens of forced text; without it no text counts as forced.
        """
        self._compilation = compilation
        self._params = params
        self._jumps = jumps
        self._alive = True
        """Whether the constraint takes the whole text so far; else a stop has begun."""
        self._stops = () if params.include_stop else tuple(s.encode() for s in params.stop)
        self._begun: list[bytes] = []
        """What is missing of the stops that have begun where they may."""
        self._error: GrammarError | None = None

    @property
    def ready(self) -> bool:
        """Whether the grammar is compiled, or can't be."""
        return self._compilation.done

    def wait(self, seconds: float) -> bool:
        """Wait for the grammar, for so long at most; `ready`."""
        return self._compilation.wait(seconds)

    @functools.cached_property
    def _grammar(self) -> Grammar:
        return self._compilation.grammar

    @functools.cached_property
    def _vocabulary(self) -> Vocabulary:
        assert self._grammar.vocabulary is not None
        return self._grammar.vocabulary

    @functools.cached_property
    def _matcher(self) -> Matcher:
        return self._grammar.matcher()

    @functools.cached_property
    def _whole(self) -> _Prefix:
        return _Prefix(self._grammar)

    @functools.cached_property
    def _end_bits(self) -> int:
        """The end ids and stop ids that end a whole text."""
        params = self._params
        special = (t for t in params.stop_token_ids if not self._vocabulary.token_bytes(t))
        stop_ids = special if params.include_stop else params.stop_token_ids
        ends = 0 if params.ignore_eos else self._vocabulary.end_bits
        return ends | bits_of(stop_ids)

    @property
    def finished(self) -> bool:
        """Whether the text is a whole one and the constraint allows no more."""
        try:
            return self._error is None and self._alive and self._matcher.finished
        except GrammarError as error:
            # It belongs to this sample; it is raised when that asks for the next token.
            self._error = error
            return False

    @property
    def matcher(self) -> Matcher | None:
        """The matcher, where the constraint takes the whole text so far."""
        return self._matcher if self._alive and self._error is None else None

    @property
    def complete(self) -> bool:
        """Whether the text so far is a whole one."""
        return self._error is None and self._alive and self._matcher.accepting

    def mask(self, may_end: bool) -> bytes:
        """The tokens allowed next, as 32-bit words (`Vocabulary.packed`).

        `may_end`: whether `min_tokens` have been sampled. Raises GrammarError if nothing may
        follow, or if the constraint is too complex for the engine's limits.
        """
        if self._error is not None:
            raise self._error
        bits = 0
        if self._alive:
            bits = self._matcher.next_tokens
            if may_end and self._matcher.accepting:
                bits |= self._end_bits
                for stop in self._stops:
                    bits |= self._vocabulary.beginning(stop)
        for rest in self._begun:
            bits |= self._vocabulary.beginning(rest)
        if not bits:
            kind, text = self._grammar.constraint.kind, self._grammar.constraint.text
            raise GrammarError(
                f"{kind}={text!r:.200}: no token of this model can follow the text so far"
            )
        return self._vocabulary.packed(bits)

    def take(self, token: int, may_end: bool) -> None:
        """Go on by the token that was sampled, or is forced."""
        begun = list(self._begun)
        try:
            if self._alive:
                if may_end and self._matcher.accepting:
                    begun += self._stops
                self._alive = self._matcher.advance(token)
            text = self._vocabulary.token_bytes(token)
            # One that the token completes is over: the sample's output ends with it.
            self._begun = [
                rest[len(text) :]
                for rest in begun
                if len(text) < len(rest) and rest.startswith(text)
            ]
        except GrammarError as error:
            self._error = error

    def forced(self, before: Sequence[int]) -> tuple[int, ...]:
        """The tokens that the text goes on with whatever is sampled; `before` are the last ids of
        the path. Each has to be taken."""
        if self._jumps is None or not self._alive or self._begun or self._error is not None:
            return ()
        try:
            return self._jumps.tokens(self._matcher, before)
        except GrammarError as error:
            self._error = error
            return ()

    def may_cut(self, data: bytes | bytearray, cut: int) -> bool:
        """Whether the first `cut` bytes of the sample's text are a whole one."""
        try:
            return self._whole.accepts(data, cut)
        except GrammarError:
            return False


class _Prefix:
    """Which beginnings of a growing text are whole ones, byte by byte."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._matcher: Matcher | None = None
        self._taken = 0
        self._failed: int | None = None

    def accepts(self, data: bytes | bytearray, cut: int) -> bool:
        """Whether `data[:cut]` satisfies the constraint; `data` only ever grows."""
        if self._matcher is None:
            self._matcher = self._grammar.byte_matcher()
        if cut < self._taken:
            self._matcher.rollback(self._taken - cut)
            self._taken = cut
        while self._taken < cut and self._taken != self._failed:
            if self._matcher.advance(data[self._taken]):
                self._taken += 1
            else:
                self._failed = self._taken
        return self._taken == cut and self._matcher.accepting
