"""What an engine should answer, without one: each context is a list of tokens, and every call's
tokens are computed from its whole path, alone, when it is submitted."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from scripted_engine import Path, Script

from ramet.runtime.request import SamplingParams
from ramet.runtime.sampling.rows import SampleRow, always_greedy
from ramet.runtime.sampling.sampler import sample

TIE = 1e-5
"""Choices whose scores are nearer than this aren't asked for."""


@dataclasses.dataclass(eq=False)
class NaiveCall:
    """A call that has not been answered yet, and what its answer must be."""

    number: int
    prompt: Path
    error: str | None = None
    """The kind of the error that it ends with; None of one that is served."""
    inherited: bool = False
    """Whether something before it on its path failed."""
    samples: list[tuple[list[int], bool]] = dataclasses.field(default_factory=list)
    """Of a generation: each sample's tokens, and whether the pool ended it."""
    entries: list[list[float]] = dataclasses.field(default_factory=list)
    """Of a selection: each choice's log-probabilities."""
    index: int = 0
    """Of a selection: the chosen one."""
    private: bool = False
    """Whether it may find nothing that others computed."""

    def check(self, event: dict[str, Any]) -> None:
        """Assert that an event is the answer to this call."""
        if event["ev"] == "error":
            assert event["kind"] == self.error, (self, event)
            return
        assert self.error is None, (self, event)
        assert event["meta"]["prompt_tokens"] == len(self.prompt)
        assert 0 <= event["meta"]["cached_tokens"] <= len(self.prompt)
        assert not (self.private and event["meta"]["cached_tokens"])
        results = event["results"]
        if self.samples:
            found = [(r["output_token_ids"], "pool_exhausted" in r) for r in results]
            assert found == self.samples, self
            return
        assert results[0]["index"] == self.index, (self, event)
        for got, want in zip(results[0]["entries"], self.entries, strict=True):
            assert all(math.isclose(a, b, abs_tol=1e-6) for a, b in zip(got, want, strict=True))


@dataclasses.dataclass(eq=False)
class NaiveContext:
    """A context as if all its operations had run."""

    program: int
    salt: str | None
    cache: bool
    path: Path = ()
    error: str | None = None
    """What the next call fails with."""
    history: list[NaiveCall | list[int]] = dataclasses.field(default_factory=list)
    """Its calls, and the children of its forks, in order."""
    closed: bool = False


class NaiveEngine:
    """All contexts, and the calls that wait for their answers."""

    def __init__(self, script: Script, pool_tokens: int, max_context: int) -> None:
        self.script = script
        self.pool_tokens = pool_tokens
        self.max_context = max_context
        self.contexts: dict[int, NaiveContext] = {}
        self.calls: dict[int, NaiveCall] = {}
        self.asked: dict[str | None, set[Path]] = {}
        """By salt: the paths that calls wanted computed, all their beginnings too."""

    def open(
        self, context: int, program: int, ids: Sequence[int], salt: str | None, cache: bool
    ) -> None:
        self.contexts[context] = NaiveContext(program, salt, cache, tuple(ids))

    def append(self, context: int, ids: Sequence[int]) -> None:
        self.contexts[context].path += tuple(ids)

    def fork(self, context: int, children: Sequence[int]) -> None:
        parent = self.contexts[context]
        parent.history.append(list(children))
        for child in children:
            self.contexts[child] = NaiveContext(
                parent.program, parent.salt, parent.cache, parent.path, parent.error
            )

    def generate(self, context: int, call: int, params: SamplingParams, keys: list[int]) -> None:
        here = self.contexts[context]
        made = self._begin(here, call, 0, new_tokens=1)
        if made.error is not None:
            return
        private = not here.cache if params.cache is None else not params.cache
        made.private = params.cache is False and here.cache
        longest = self.pool_tokens - len(made.prompt) + 1
        limit = min(int(params.max_new_tokens), self.max_context - len(made.prompt))
        for key in keys:
            ids = self._draw(made.prompt, params, key, min(limit, longest))
            ended = ids[-1] in params.stop_token_ids
            made.samples.append((ids, not ended and longest < limit))
            if not private:
                salt = here.salt if params.cache_salt is None else params.cache_salt
                self._ask(salt, made.prompt + tuple(ids))
        first = made.samples[0][0]
        here.path += tuple(first[:-1] if first[-1] in params.stop_token_ids else first)

    def score(self, context: int, call: int, choices: list[list[int]], method: str) -> bool:
        """False, and nothing is done, where it is too close to call."""
        here = self.contexts[context]
        entries = [list(self._logprobs(here.path, ids)) for ids in choices]
        scores = [sum(row) / len(row) for row in entries]
        if method == "unconditional_likelihood_normalized":
            alone = [list(self._logprobs((), ids))[1:] for ids in choices]
            scores = [
                score - sum(row) / len(ids)
                for score, row, ids in zip(scores, alone, choices, strict=True)
            ]
        best = max(range(len(choices)), key=scores.__getitem__)
        if any(abs(scores[best] - s) < TIE for i, s in enumerate(scores) if i != best):
            return False
        made = self._begin(here, call, max(map(len, choices)) - 1, new_tokens=0)
        if made.error is None:
            made.entries, made.index = entries, best
            if here.cache:
                for ids in choices:
                    self._ask(here.salt, made.prompt + tuple(ids))
                    self._ask(here.salt, tuple(ids))
            here.path += tuple(choices[best])
        return True

    def close(self, context: int) -> None:
        self.contexts[context].closed = True

    def fail(self, call: int, error: str) -> None:
        """A call ends with an error now; so do those behind it, when their turn comes."""
        for here in self.contexts.values():
            for place, made in enumerate(here.history):
                if isinstance(made, NaiveCall) and made.number == call and call in self.calls:
                    made.error = error
                    if not made.inherited:
                        self._fail_from(here, place + 1, error)
                    return

    def abort_program(self, program: int) -> None:
        """Everything that a program still has ends now."""
        for here in self.contexts.values():
            if here.program == program:
                self._fail_from(here, 0, "Cancelled")

    def answer(self, event: dict[str, Any]) -> None:
        """Check an answer, which must be its call's first."""
        self.calls.pop(event["call"]).check(event)

    # Inside

    def _begin(self, here: NaiveContext, call: int, more: int, *, new_tokens: int) -> NaiveCall:
        made = NaiveCall(call, here.path, here.error, here.error is not None)
        length = len(here.path) + more
        if made.error is None and length + new_tokens > self.max_context:
            made.error = here.error = "ContextOverflow"
        if made.error is None and length > self.pool_tokens:
            made.error = here.error = "PoolTooSmall"
        here.history.append(made)
        self.calls[call] = made
        return made

    def _fail_from(self, here: NaiveContext, place: int, error: str) -> None:
        here.error = error
        for made in here.history[place:]:
            if isinstance(made, list):
                for child in made:
                    self._fail_from(self.contexts[child], 0, error)
            elif made.number in self.calls:
                made.error, made.inherited = error, True

    def _draw(self, prompt: Path, params: SamplingParams, key: int, limit: int) -> list[int]:
        ids: list[int] = []
        counts: dict[int, int] = {}
        penalised = frozenset(prompt) if params.repetition_penalty != 1 else None
        while len(ids) < limit and not (ids and ids[-1] in params.stop_token_ids):
            logits = self.script(prompt + tuple(ids))
            if always_greedy(params):
                token = int(logits.argmax())
            else:
                row = SampleRow(0, params, key, len(ids), counts, penalised)
                token = sample(logits[None], [row])[0].token
            ids.append(token)
            counts[token] = counts.get(token, 0) + 1
        return ids

    def _logprobs(self, path: Path, ids: Sequence[int]) -> Iterator[float]:
        for token in ids:
            yield float(torch.log_softmax(self.script(path), 0)[token])
            path += (token,)

    def _ask(self, salt: str | None, path: Path) -> None:
        known = self.asked.setdefault(salt, set())
        known.update(path[:end] for end in range(1, len(path) + 1))
