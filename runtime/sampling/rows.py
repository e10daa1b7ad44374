"""What the sampler is asked, and what it answers: plain data, without torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ramet.runtime.errors import RametError
from ramet.runtime.request import SamplingParams


@dataclasses.dataclass(slots=True)
class SampleRow:
    """One token to sample: where from, how, and with which randomness.

    Not frozen: one is made for each row of each step, and a frozen one takes five times as long.
    """

    row: int
    """The row of the logits; several may name one row (siblings of a fork)."""
    params: SamplingParams
    key: int
    """The sequence's stream (`streams.stream_key`)."""
    index: int
    """The token's index in the call, which is the element of the stream."""
    counts: Mapping[int, int] = dataclasses.field(default_factory=dict)
    """How often each token was generated in this call (no zeros); read if there is a penalty."""
    prompt_ids: frozenset[int] | None = None
    """The prompt's tokens; read if there is a repetition penalty."""
    banned: tuple[int, ...] = ()
    """Tokens that may not be sampled now, such as end ids before `min_new_tokens`."""
    mask: bytes | None = None
    """The only tokens that may be sampled now, as little-endian 32-bit words with a bit for each
    token; None is all of them."""


@dataclasses.dataclass(slots=True)
class DrawOrder:
    """Tokens that a runner draws where it computes: one for each entry of the lists but `slots`."""

    slots: list[int]
    """Computed slots, whose logits are asked for."""
    rows: list[int]
    """Which of the slots each token is drawn from."""
    asked: list[tuple[float, int, float, float]]
    """Temperature, top-k, top-p, min-p, as in `kernels.draws`."""
    uniforms: list[float]
    """In [0, 1)."""


class Drawn(Protocol):
    """Tokens on their way from a device."""

    def wait(self) -> tuple[list[int], list[float]]:
        """The tokens of a `DrawOrder`, and the largest logit of each one's row, when they are
        there."""
        ...


class Sampled(NamedTuple):
    """The outcome of one `SampleRow`."""

    token: int
    """The token id; -1 with an error."""
    logprob: float | None = None
    """With `return_logprob`: log-probability under the model's raw distribution."""
    top: list[tuple[float, int]] | None = None
    """With `return_logprob`: the `top_logprobs_num` likeliest as (log-probability, id), if any."""
    error: RametError | None = None
    """Why nothing could be sampled for this row; the others are unaffected."""


def only_tokens(params: SamplingParams) -> bool:
    """Whether it doesn't matter how often a token came before, and no log-probability is
    reported."""
    return (
        not (params.frequency_penalty or params.presence_penalty)
        and params.repetition_penalty == 1
        and not params.return_logprob
    )


def always_greedy(params: SamplingParams) -> bool:
    """Whether each token is the likeliest one whatever came before, and no log-probability is
    reported; bans and masks aside."""
    return params.temperature == 0 and not params.logit_bias and only_tokens(params)
