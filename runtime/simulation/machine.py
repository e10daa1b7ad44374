"""The machine under a simulated engine: a clock, a model that computes nothing, and a sampler that
decides what a workload says."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from ramet.runtime.engine import Engine
from ramet.runtime.sampling.arithmetic import Arithmetic
from ramet.runtime.sampling.rows import Sampled, SampleRow
from ramet.runtime.schedule.batch import Batch
from ramet.runtime.simulation.tokens import Tokens, length_of
from ramet.runtime.tokenizer import Tokenizer


class Clock:
    """Simulated seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


class SimulatedRunner:
    """A model that takes its batches and computes nothing. Its logits are the slots."""

    vocab_size = 1 << 30

    def forward(self, batch: Batch) -> None:
        """Nothing: what a batch costs is the cost model's business."""

    def logits(self, slots: Sequence[int], masks: Sequence[bytes] | None = None) -> Any:
        """The slots themselves, for `SimulatedArithmetic`."""
        return slots

    def likeliest(self, slots: Sequence[int]) -> tuple[list[int], list[float]]:
        """The slots themselves, too."""
        return list(slots), [0.0] * len(slots)


class SampleTimes:
    """When tokens were sampled."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.first: dict[int, float] = {}
        """When each sample, by its key, had its first token."""
        self.gaps = array("d")
        """Seconds between the tokens of a sample, of all samples."""
        self._last: dict[int, float] = {}

    def note(self, key: int, index: int, ends: bool) -> None:
        """A token was sampled."""
        now = self._clock.now
        last = self._last.pop(key, now)
        if index:
            self.gaps.append(now - last)
        else:
            self.first[key] = now
        if not ends:
            self._last[key] = now


class SimulatedArithmetic:
    """Samples what the keys say; scores decline from the first choice on."""

    def __init__(self, tokens: Tokens, end_id: int, times: SampleTimes) -> None:
        self._tokens = tokens
        self._end_id = end_id
        self._times = times

    def sample(self, _logits: Any, rows: Sequence[SampleRow]) -> list[Sampled]:
        """One token for each row; the end token after as many as the key says."""
        sampled = self._tokens.sampled
        note, end = self._times.note, self._end_id
        drawn = []
        for row in rows:
            key, index = row.key, row.index
            ends = index >= length_of(key)
            note(key, index, ends)
            drawn.append(Sampled(end if ends else sampled(key, index)))
        return drawn

    def as_arithmetic(self) -> Arithmetic:
        """As the engine takes it. Greedy rows have no key, so that simulated calls have a
        temperature."""
        return Arithmetic(
            sample=self.sample,
            greedy=lambda tokens, _best: [Sampled(self._end_id) for _ in tokens],
            token_logprobs=lambda _logits, targets: [-1.0 for _ in targets],
            top_logprobs=lambda _logits, counts: [[] for _ in counts],
            log_masses=lambda _logits, sets: [0.0 for _ in sets],
            pair_logprobs=lambda _logits, tokens: [
                [-1.0 - i / 16 for i in range(len(some))] for some in tokens
            ],
        )


def simulated_engine(clock: Clock, times: SampleTimes, tokens: Tokens, **settings: Any) -> Engine:
    """The real engine over this machine; `settings` are the engine's own."""
    tokenizer = Tokenizer.tiny()
    arithmetic = SimulatedArithmetic(tokens, tokenizer.eos_ids[0], times)
    return Engine(
        SimulatedRunner(),
        tokenizer,
        arithmetic=arithmetic.as_arithmetic(),
        clock=clock,
        **{"max_context": 1 << 20, **settings},
    )
