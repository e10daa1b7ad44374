"""Calls in flight: what an operation needs between its start and its result."""

from __future__ import annotations

import dataclasses
from typing import Any

from ramet.runtime.cache.node import Node
from ramet.runtime.errors import RametError
from ramet.runtime.request import SamplingParams
from ramet.runtime.sampling.trie import ChoiceTrie
from ramet.runtime.schedule.context import Context, Place
from ramet.runtime.schedule.optimum import LoggedCall
from ramet.runtime.schedule.sequence import Branch, Generation


@dataclasses.dataclass(slots=True)
class GenerateCall:
    """n samples of one context."""

    id: int
    place: Place
    params: SamplingParams
    stream: bool
    prompt_len: int
    prefix: dict[str, Any]
    """What was there of the prompt: `cache.prefix`."""
    submitted: float
    """When its context came to it, in seconds of `time.monotonic`."""
    samples: list[Generation] = dataclasses.field(default_factory=list)
    results: dict[int, dict[str, Any]] = dataclasses.field(default_factory=dict)
    forced: int = 0
    """Tokens of forced text that this call was the first to ask for."""
    kept: Node | None = None
    """A reference to what sample 0 computed, where nothing else keeps it for the context."""
    prompt_logprobs: dict[str, Any] | None = None
    logged: list[LoggedCall] = dataclasses.field(default_factory=list)
    """What the trace has of it."""
    error: RametError | None = None

    @property
    def context(self) -> Context:
        """The context that it is a call of."""
        return self.place.context

    @property
    def alone(self) -> bool:
        """Whether it shares with nobody, not even with other calls of its program."""
        return self.params.cache is False and self.context.program.cache

    @property
    def sequences(self) -> list[Generation]:
        """What the scheduler runs for it."""
        return self.samples

    @property
    def decoded(self) -> list[list[int]]:
        """The tokens that its samples went on from: all but those that ended a sample."""
        return [
            s.output_ids[: len(s.output_ids) - s.unplanned]
            if s.output.finished and "pool_exhausted" not in self.results.get(s.sample, ())
            else s.output_ids
            for s in self.samples
        ]


@dataclasses.dataclass(slots=True)
class ScoreCall:
    """The choices of one select, as tries of tokens to score."""

    id: int
    place: Place
    method: str
    temperature: float
    key: int
    prompt_len: int
    prefix: dict[str, Any]
    """What was there of the path to the border: `cache.prefix`."""
    choices: list[dict[str, Any]]
    rest: bytes
    submitted: float
    """When its context came to it, in seconds of `time.monotonic`."""
    conditional: ChoiceTrie
    unconditional: ChoiceTrie | None
    charged: int = 0
    """Tokens that this call was the first to ask for, those of its choices included."""
    log_rest: float = 0.0
    """Log of the total probability, at the border, of tokens compatible with `rest`."""
    branches: list[Branch] = dataclasses.field(default_factory=list)
    left: int = 0
    """Branches not yet scored."""
    logged: list[LoggedCall] = dataclasses.field(default_factory=list)
    """What the trace has of it."""
    error: RametError | None = None

    @property
    def context(self) -> Context:
        """The context that it is a call of."""
        return self.place.context

    @property
    def alone(self) -> bool:
        """It shares as its program does."""
        return False

    @property
    def sequences(self) -> list[Branch]:
        """What the scheduler runs for it."""
        return self.branches

    @property
    def decoded(self) -> list[list[int]]:
        """Nothing is sampled."""
        return []
