"""Made-up tokens: prompts by name, outputs by key, both deterministic and cheap.

A text of a simulated program is a *run*, written `"seed*length"`: equal runs have equal tokens,
runs of different seeds differ from the first token on.
"""

from __future__ import annotations

import functools

_SPREAD = 2_654_435_761
_STRIDE = 40_503
_RANGE = 1 << 29
_FIRST = 1 << 12
"""Above all ids that a tokenizer knows: made-up tokens have no text and end nothing."""
_LENGTH_BITS = 20


class Tokens:
    """Maps runs and keys to token ids."""

    def __init__(self, vocab_size: int | None = None) -> None:
        """`vocab_size` keeps ids below it, as a real model needs; None has no such limit."""
        self._first = _FIRST if vocab_size is None else 0
        self._range = _RANGE if vocab_size is None else vocab_size
        self.run = functools.lru_cache(maxsize=512)(self._run)
        """The ids of a run; not to be changed."""

    def _run(self, name: str) -> list[int]:
        seed, _, length = name.partition("*")
        start = int(seed) * _SPREAD
        span, first = self._range, self._first
        return [(start + i * _STRIDE) % span + first for i in range(int(length))]

    def sampled(self, key: int, index: int) -> int:
        """The token that the sample of that key decides at an index."""
        return (key * _SPREAD + index * _STRIDE) % self._range + self._first


def run(seed: int, length: int) -> str:
    """The name of a run of `length` tokens."""
    return f"{seed}*{length}"


def make_key(stream: int, length: int) -> int:
    """The key of a sample that is over after `length` tokens."""
    return stream << _LENGTH_BITS | length


def length_of(key: int) -> int:
    """After how many tokens the sample of that key is over."""
    return key & ((1 << _LENGTH_BITS) - 1)
