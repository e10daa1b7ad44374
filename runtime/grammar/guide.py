"""Guide: one sample under a constraint: what may come next, and when it is over.

Rules, where a constraint meets the other arguments of a call:

- **End.** The end ids are allowed exactly where the text so far is a whole one. Where nothing else
  could follow, the text is over at once, whatever `min_tokens` and `ignore_eos` say.
- **Stops.** A stop ends the text only where what stays of it is a whole one; elsewhere a stop text
  is ordinary text, and a stop id an ordinary token. Where the text so far is a whole one, a token
  that begins a stop is allowed besides those that the constraint allows, and then what completes
  that stop; likewise with what `stop_regex` matches. So `regex="[0-9]+", stop=")"` ends at `37)`
  with the value `37`.
- **include_stop** makes the stop part of the value, which the constraint describes. So then
  nothing is allowed besides, and a stop counts only where the text with it is a whole one.
- **Special tokens** never are text; one may be sampled only as an end id or a stop id.
- **Forced text** (`jump_forward`) is taken as it stands, without sampling, where the text so far is
  no whole one.
"""

from __future__ import annotations

from collections.abc import Sequence

from ramet.runtime.errors import GrammarError, InvalidArgument, RametError
from ramet.runtime.grammar.bits import bits_of
from ramet.runtime.grammar.budget import Budget
from ramet.runtime.grammar.closing.pace import Pace
from ramet.runtime.grammar.compiler import Compilation
from ramet.runtime.grammar.grammar import Grammar
from ramet.runtime.grammar.jump import Jumps
from ramet.runtime.grammar.matcher import Matcher
from ramet.runtime.request import SamplingParams

MAX_WAYS = 8
"""Matches of `stop_regex` that are followed at once, the earliest; those begun later end alike."""


class Guide:
    """The matcher of one sample, with the stops that may follow it."""

    def __init__(
        self,
        compilation: Compilation,
        params: SamplingParams,
        jumps: Jumps,
        stop: Compilation | None = None,
    ) -> None:
        """A sample at the beginning. Until it is `begun`, only what is said to be may be asked.

        `stop`: the grammar of what `stop_regex` matches; None where nothing is allowed for it.
        """
        self._compilation = compilation
        self._stop_compilation = stop
        self._stop_start: Matcher | None = None
        self._stop_ways: list[Matcher] = []
        """How far the matches of `stop_regex` have come that have begun where they may."""
        self._params = params
        self._jumps = jumps
        self._vocabulary = jumps.vocabulary
        # A forced token has no log-probability when it is taken, and may be a banned one.
        plain = not params.return_logprob and all(bias > -100 for _, bias in params.logit_bias)
        self._may_jump = params.jump_forward and plain
        self._alive = True
        """Whether the constraint takes the whole text so far; else a stop has begun."""
        self._stops = () if params.include_stop else tuple(s.encode() for s in params.stop)
        self._begun: list[bytes] = []
        """What is missing of the stops that have begun where they may."""
        special = (t for t in params.stop_token_ids if not self._vocabulary.token_bytes(t))
        stop_ids = special if params.include_stop else params.stop_token_ids
        ends = 0 if params.ignore_eos else self._vocabulary.end_bits
        self._end_bits = ends | bits_of(stop_ids)
        self._error: RametError | None = None
        self.begun = False
        """Whether `begin` has been called."""
        self._matcher: Matcher
        self._whole: _Prefix
        self._pace: Pace | None = None
        self._budget: Budget | None = None

    def ready(self, seconds: float = 0.0) -> bool:
        """Whether the grammar is compiled, or can't be; waits for it for so long at most."""
        stop = self._stop_compilation
        return self._compilation.wait(seconds) and (stop is None or stop.wait(seconds))

    def begin(self, limit: int) -> None:
        """Go to the beginning of the text, which may have `limit` tokens.

        Raises GrammarError if the constraint doesn't compile, InvalidArgument if a document that is
        to be closed within its budget needs more tokens than that.
        """
        self.begun = True
        grammar = self._compilation.grammar
        self._matcher = grammar.matcher()
        self._whole = _Prefix(grammar)
        if self._stop_compilation is not None:
            self._stop_start = self._stop_compilation.grammar.matcher()
        if grammar.constraint.kind == "json_schema":
            self._pace = Pace(self._vocabulary.barred)
        closer, opening = grammar.closer, grammar.opening
        if closer is None or opening is None or not self._params.close_within_budget:
            return
        token_bytes, split = self._vocabulary.token_bytes, self._jumps.split
        least = len(opening) // self._vocabulary.longest  # Of a long one, that says enough.
        ids = split((), opening) if least <= limit else ()
        if ids is None:
            return  # A document that this model has no tokens for is no certificate.
        size = len(ids) or least
        if size > limit:
            known = "shortest document" if closer.sure else "shortest document that is known"
            raise InvalidArgument(
                f"max_tokens={limit}: the {known} of this schema has {size} tokens: "
                f"{opening.decode()!r:.200}; close_within_budget=False allows one that is cut"
            )
        self._budget = Budget(closer, grammar.byte_matcher(), token_bytes, split, ids)

    @property
    def closes(self) -> bool | None:
        """Whether the text has been, so far, one that could be closed within its budget; None
        where that isn't asked for."""
        if self._pace is None or not self._params.close_within_budget:
            return None
        return self._budget is not None and not self._budget.lost

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
        return self.begun and self._error is None and self._alive and self._matcher.accepting

    @property
    def unenforced(self) -> tuple[str, ...]:
        """What of the constraint is to be checked on the finished text."""
        return self._compilation.grammar.source.unenforced if self.begun else ()

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
                if self._stop_start is not None:
                    bits |= self._stop_start.next_tokens
        if self._pace is not None and (kept := bits ^ (bits & self._pace.barred)):
            bits = kept
        for rest in self._begun:
            bits |= self._vocabulary.beginning(rest)
        for way in self._stop_ways:
            bits |= way.next_tokens
        if not bits:
            constraint = self._compilation.grammar.constraint
            kind, text = constraint.kind, constraint.text
            raise GrammarError(
                f"{kind}={text!r:.200}: no token of this model can follow the text so far"
            )
        return self._vocabulary.packed(bits)

    def choose(self, token: int, before: Sequence[int], left: int) -> int | None:
        """The token to take where `token` was sampled, so that the text can be closed in its
        budget; None where it is whole and has to end.

        `before` are the last ids of the path, `left` how many may still come, this one included.
        """
        if self._budget is None or self._error is not None or not self._alive:
            return token
        try:
            if not self._matcher.next_tokens >> token & 1:
                return token  # It ends the text.
            return self._budget.choose(token, before, left)
        except GrammarError as error:
            self._error = error
            return token

    def take(self, token: int, may_end: bool) -> None:
        """Go on by the token that was chosen, or is forced."""
        begun, ways = list(self._begun), self._stop_ways
        try:
            if self._alive:
                if may_end and self._matcher.accepting:
                    begun += self._stops
                    if self._stop_start is not None:
                        ways = [*ways, self._stop_start.copy()]
                self._alive = self._matcher.advance(token)
            text = self._vocabulary.token_bytes(token)
            if self._pace is not None:
                self._pace.push(text)
            self._stop_ways = [way for way in ways if way.advance(token)][:MAX_WAYS]
            # One that the token completes is over: the sample's output ends with it.
            self._begun = [
                rest[len(text) :]
                for rest in begun
                if len(text) < len(rest) and rest.startswith(text)
            ]
        except GrammarError as error:
            self._error = error

    def forced(self, before: Sequence[int], left: int) -> tuple[int, ...]:
        """The tokens that the text goes on with whatever is sampled, to be taken each; `before` and
        `left` as in `choose`."""
        if not self._may_jump or not self._alive or self._error is not None:
            return ()
        if self._begun or self._stop_ways:
            return ()
        try:
            tokens = self._jumps.tokens(self._matcher, before)
            if self._budget is not None and not self._budget.follows(tokens, before, left):
                return ()  # The certificate spells it in fewer.
            return tokens
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
