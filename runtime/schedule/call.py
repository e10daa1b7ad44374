"""Calls in flight: what an operation needs between its start and its result."""

from __future__ import annotations

import dataclasses
from typing import Any

from ramet.runtime.errors import RametError
from ramet.runtime.request import SamplingParams
from ramet.runtime.sampling.trie import ChoiceTrie
from ramet.runtime.schedule.context import Context
from ramet.runtime.schedule.sequence import Branch, Generation


@dataclasses.dataclass(slots=True)
class GenerateCall:
    """n samples of one context."""

    id: int
    context: Context
    params: SamplingParams
    stream: bool
    site: str
    prompt_len: int
    charged: int
    """Prompt tokens that this call was the first to ask for."""
    submitted: float
    """Seconds of `time.monotonic`."""
    samples: list[Generation] = dataclasses.field(default_factory=list)
    results: dict[int, dict[str, Any]] = dataclasses.field(default_factory=dict)
    prompt_logprobs: dict[str, Any] | None = None
    error: RametError | None = None

    @property
    def sequences(self) -> list[Generation]:
        """What the scheduler runs for it."""
        return self.samples


@dataclasses.dataclass(slots=True)
class ScoreCall:
    """The choices of one select, as tries of tokens to score."""

    id: int
    context: Context
    method: str
    temperature: float
    key: int
    site: str
    prompt_len: int
    choices: list[dict[str, Any]]
    rest: bytes
    submitted: float
    """Seconds of `time.monotonic`."""
    conditional: ChoiceTrie
    unconditional: ChoiceTrie | None
    charged: int = 0
    log_rest: float = 0.0
    """Log of the total probability, at the border, of tokens compatible with `rest`."""
    branches: list[Branch] = dataclasses.field(default_factory=list)
    left: int = 0
    """Branches not yet scored."""
    error: RametError | None = None

    @property
    def sequences(self) -> list[Branch]:
        """What the scheduler runs for it."""
        return self.branches
