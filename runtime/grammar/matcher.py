"""Matcher: how far a text of tokens has come in a grammar."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Final

from ramet.runtime.errors import GrammarError

if TYPE_CHECKING:
    import llguidance

FEW: Final = 4
"""Fewer masks are computed one by one."""


class TooComplex(GrammarError):
    """The mask engine gave up on a grammar, under its limits."""


Make = Callable[[], "llguidance.LLMatcher"]


def exceeded(native: llguidance.LLMatcher) -> bool:
    """Whether a matcher whose mask was asked for is in error, other than by having no way on."""
    return native.is_error() and not native.get_error().startswith("NoExtension")


class Matcher:
    """The state of one text. Tokens go in one by one; sets of tokens are bits (`vocabulary`).

    Copies of one compiled grammar share the engine's automaton, which grows as texts need it. When
    it meets the engine's limits, all copies are in error, for good. A matcher in error is thrown
    away: `make` builds one with an automaton of its own, which takes the same tokens again. Only
    what fails even so raises GrammarError.
    """

    def __init__(
        self,
        native: llguidance.LLMatcher,
        make: Make,
        text_bits: Callable[[bytes], int],
        end_ids: Collection[int] = (),
    ) -> None:
        self._native = native
        self._make = make
        self._text_bits = text_bits
        self._end_ids = end_ids
        self._taken: list[int] = []
        self._ended = False
        self._next: int | None = None

    @property
    def accepting(self) -> bool:
        """Whether the text so far is a whole one."""
        _ = self.next_tokens  # Sees to it that the state is no error.
        return self._native.is_accepting()

    @property
    def next_tokens(self) -> int:
        """The tokens with text that may follow; raises GrammarError if the engine's limits say
        no."""
        if self._ended:
            return 0
        if self._next is None:
            mask = self._native.compute_bitmask()
            if exceeded(self._native):
                self._renew()
                mask = self._native.compute_bitmask()
            # A matcher that found no way on shows the end ids, whether it accepts or not.
            self._next = self._text_bits(mask)
        return self._next

    @property
    def next_is_unknown(self) -> bool:
        """Whether asking for `next_tokens` will make the engine compute them."""
        return self._next is None and not self._ended

    def learn(self, mask: bytes) -> None:
        """Take the mask that the engine computed for it, unless it is in error."""
        if not exceeded(self._native):
            self._next = self._text_bits(mask)

    @property
    def finished(self) -> bool:
        """Whether the text is a whole one and nothing but its end can follow."""
        return self.accepting and not self.next_tokens

    def advance(self, token: int) -> bool:
        """Take a token; False, and the state is as before, if it can't follow.

        An end id can follow a whole text, and nothing can follow it.
        """
        if self._ended:
            return False
        if token in self._end_ids:
            # Not for the engine: it takes one or refuses it by how the text came to its end.
            if self.accepting:
                self._ended = True
                self._taken.append(token)
            return self._ended
        if self._native.try_consume_tokens([token]) == 1:
            self._taken.append(token)
            self._next = None
            return True
        if self._next is None or self._next >> token & 1:
            # An engine in error takes nothing, and says so only when it is asked for a mask.
            self._native.compute_bitmask()
            if exceeded(self._native):
                self._renew()
                return self.advance(token)
        return False

    def forced(self) -> bytes:
        """The bytes that every text goes on with from here, as far as the engine sees."""
        if self._ended or self.accepting:
            return b""
        return self._native.compute_ff_bytes()

    def rollback(self, count: int) -> None:
        """Take back the last `count` tokens."""
        if not 0 <= count <= len(self._taken):
            raise ValueError(f"count={count}: {len(self._taken)} tokens were taken")
        del self._taken[len(self._taken) - count :]
        self._next = None
        if self._ended and count:
            self._ended = False
            count -= 1
        if not self._native.rollback(count):
            self._renew()

    def copy(self) -> Matcher:
        """A matcher in the same state, on its own from here."""
        twin = Matcher(self._native.deep_copy(), self._make, self._text_bits, self._end_ids)
        twin._taken = list(self._taken)
        twin._ended = self._ended
        twin._next = self._next
        return twin

    def _renew(self) -> None:
        """Start again with an automaton of its own; raises GrammarError if that fails as well."""
        native = self._make()
        for token in self._taken[: len(self._taken) - self._ended]:
            if native.try_consume_tokens([token]) != 1:
                break
        native.compute_bitmask()
        if exceeded(native):
            raise TooComplex(
                "the constraint is too complex to follow this text: "
                + native.get_error().splitlines()[0]
            )
        self._native = native
        self._next = None


def look_ahead(matchers: Iterable[Matcher], masks: Callable[[list[Any]], list[bytes]]) -> None:
    """Find the next tokens of many matchers at once, where that is faster.

    `masks` computes those of native matchers, on all cores (`Vocabulary.masks`).
    """
    stale = [matcher for matcher in matchers if matcher.next_is_unknown]
    if len(stale) < FEW:
        return
    for matcher, mask in zip(stale, masks([m._native for m in stale]), strict=True):
        matcher.learn(mask)
