"""Arithmetic: what the engine does with logits, as one part that can be exchanged.

The engine only passes logits on, from its runner to these functions. With torch they are tensors;
a simulation has its own kind, and needs no torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from ramet.runtime.sampling.rows import Sampled, SampleRow

Logits = Any
"""What `Runner.logits` gives: a Tensor [n, vocab] of a real model."""


@dataclasses.dataclass(frozen=True, slots=True)
class Arithmetic:
    """The functions of `sampler` and `logprobs`, with the same arguments and results."""

    sample: Callable[[Logits, Sequence[SampleRow]], list[Sampled]]
    greedy: Callable[[Sequence[int], Sequence[float]], list[Sampled]]
    token_logprobs: Callable[[Logits, Sequence[int]], list[float]]
    top_logprobs: Callable[[Logits, Sequence[int]], list[list[tuple[float, int]]]]
    log_masses: Callable[[Logits, Sequence[Sequence[int]]], list[float]]
    pair_logprobs: Callable[[Logits, Sequence[Sequence[int]]], list[list[float]]]


def torch_arithmetic() -> Arithmetic:
    """The real one; imports torch."""
    from ramet.runtime.sampling import logprobs, sampler

    return Arithmetic(
        sampler.sample,
        sampler.outcomes,
        logprobs.token_logprobs,
        logprobs.top_logprobs,
        logprobs.log_masses,
        logprobs.pair_logprobs,
    )
