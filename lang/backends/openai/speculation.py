"""Text that a completions endpoint wrote ahead of its program: `num_api_spec_tokens`.

One longer call is made without the program's stops. What follows the first value is kept, and as
long as the program's next literals are what the model wrote itself, the values between them are
read from that text, with no further call. A literal that differs drops the rest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Self

from ramet.runtime.request import SamplingParams


@dataclasses.dataclass(frozen=True, slots=True)
class Taken:
    """A value that was read from text written ahead."""

    text: str
    finish_reason: str
    """"stop", "length" or "eos", as a call of its own would have had."""
    matched: str | None
    """The stop that ended it."""
    num_tokens: int
    """Tokens that carry a character of it."""
    rest: Ahead
    """What is left, from the stop on."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ahead:
    """Text written ahead, from `start` on; immutable."""

    text: str
    ends: tuple[int, ...]
    """Where each token of `text` ends, in characters."""
    ended: bool
    """Whether the model ended here by itself, rather than at the call's limit."""
    params: SamplingParams
    """What it was sampled with, without its stops and its limit."""
    start: int = 0

    @classmethod
    def of(
        cls, tokens: Sequence[str], text: str, ended: bool, params: SamplingParams
    ) -> Self | None:
        """From a call's answer; None if its tokens don't join to its text, so can't be counted."""
        ends, end = [], 0
        for token in tokens:
            end += len(token)
            ends.append(end)
        if "".join(tokens) != text:
            return None
        return cls(text, tuple(ends), ended, without_ends(params))

    def after(self, literal: str) -> Ahead | None:
        """What is left behind a literal, which must be what the model wrote; else None."""
        if not self.text.startswith(literal, self.start):
            return None
        return dataclasses.replace(self, start=self.start + len(literal))

    def take(self, params: SamplingParams) -> Taken | None:
        """The value that a call with `params` would have had here.

        None if the text doesn't say: it was sampled otherwise, or it is too short. A stop is
        matched in the value only, and only the tokens of the value count for its limit.
        """
        if not can_speculate(params) or without_ends(params) != self.params:
            return None
        limit = params.max_new_tokens
        tokens = [end for end in self.ends if end > self.start]
        cut = tokens[limit - 1] if isinstance(limit, int) and len(tokens) >= limit else None
        last = len(self.text) if cut is None else cut
        # A stop counts once its last character is there, within the limit.
        found = [(self.text.find(stop, self.start, last), stop) for stop in params.stop]
        found = [(at, stop) for at, stop in found if at >= 0]
        if found:
            return self._taken(*min(found, key=lambda pair: pair[0]))
        if cut is not None:
            return self._taken(cut, None, "length")
        return self._taken(last, None, "eos") if self.ended else None

    def _taken(self, at: int, matched: str | None, reason: str = "stop") -> Taken:
        num = sum(1 for i, end in enumerate(self.ends) if end > self.start and self._begin(i) < at)
        rest = dataclasses.replace(self, start=at)
        return Taken(self.text[self.start : at], reason, matched, num, rest)

    def _begin(self, index: int) -> int:
        return self.ends[index - 1] if index else 0


def can_speculate(params: SamplingParams) -> bool:
    """Whether a call's value can be cut from a longer text without asking for more about it."""
    return (
        params.n == 1
        and not params.return_logprob
        and not params.min_new_tokens
        and params.constraint is None
        and params.max_new_tokens != "context"
    )


def without_ends(params: SamplingParams) -> SamplingParams:
    """What two calls must share for one's text to stand for the other's."""
    return dataclasses.replace(params, stop=(), max_new_tokens=1)
