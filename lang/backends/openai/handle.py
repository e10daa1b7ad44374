"""One context of a program on an OpenAI-compatible endpoint.

A handle holds the transcript and makes a job of each call. What the endpoint can't do is refused
here, when the call is written, so nothing is sent for it; the prompt itself is built when the job
runs, since it has the text of the calls before it.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from typing import Any

from ramet.lang.backends.openai.answer import usage_meta
from ramet.lang.backends.openai.jobs import Job
from ramet.lang.backends.openai.scoring import Scored, choose, score
from ramet.lang.backends.openai.service import COMPLETIONS, Service
from ramet.lang.backends.openai.speculation import Ahead, Taken, can_speculate
from ramet.lang.backends.openai.transcript import Transcript, text_of
from ramet.lang.backends.protocol import Piece
from ramet.runtime.client.call import Call, CallResult
from ramet.runtime.errors import InvalidArgument, ProgramError, UnsupportedFeature
from ramet.runtime.request import SamplingParams, check_text
from ramet.runtime.sampling.scoring import check_method
from ramet.runtime.sampling.streams import stream_key, uniform

_KINDS = ("text", "content")


class OpenAIHandle:
    """A context: text and calls in order. No method waits; usable from any thread."""

    def __init__(
        self,
        service: Service,
        seed: int | None,
        *,
        draw_seed: int,
        spec_tokens: int | None = None,
        owner: object = None,
        parent: OpenAIHandle | None = None,
        branch: str = "",
    ) -> None:
        self.branch = branch
        """Its place among the program's forks: "" or "0.3"."""
        self._service, self._seed, self._draw_seed = service, seed, draw_seed
        self._spec_tokens = spec_tokens
        self._owner = owner  # Keeps the backend from being dropped while a handle lives.
        self._lock = threading.RLock()
        self._closed = False
        self._num_calls = self._num_children = 0
        self._pending: list[Piece] = [] if parent is None else list(parent._pending)
        self._transcript: Transcript = Transcript() if parent is None else parent._transcript
        self._last: Job | None = None if parent is None else parent._last

    def append(self, pieces: Sequence[Piece]) -> None:
        """Add text; nothing is sent. Raises InvalidArgument for a lone surrogate."""
        for text, kind in pieces:
            check_text("text", text)
            if kind not in _KINDS:
                raise InvalidArgument(f"kind={kind!r}: must be one of {', '.join(_KINDS)}")
        with self._lock:
            self._check_open()
            self._pending += pieces

    def generate(
        self,
        params: SamplingParams,
        *,
        stream: bool = False,
        site: str = "",
        label: tuple[int, int] | None = None,
    ) -> Call[CallResult]:
        """Queue a generation; `site` and `label` mean nothing to an endpoint.

        Raises UnsupportedFeature for what the endpoint can't honour.
        """
        with self._lock:
            self._check_open()
            transcript = self._settled()
            chat = self._is_chat(transcript, site)
            self._service.rules.check(params, chat=chat)
            seed, service = self._wire_seed(params), self._service

            def work(job: Job) -> CallResult:
                if self._spec_tokens is not None and can_speculate(params):
                    result = self._speculate(job, transcript, params, seed, last)
                    if result is not None:
                        return result
                return service.generate(job, transcript, params, seed, chat, stream)

            last = self._last
            return self._start(work, transcript, stream)

    def select(
        self,
        choices: Sequence[str],
        method: str,
        *,
        temperature: float = 0.0,
        site: str = "",
        label: tuple[int, int] | None = None,
    ) -> Call[CallResult]:
        """Queue a selection; raises UnsupportedFeature where the endpoint can't score a text."""
        check_method(method, temperature)
        with self._lock:
            self._check_open()
            transcript, name = self._settled(), self._service.name
            if self._is_chat(transcript, site, selects=True):
                raise UnsupportedFeature(
                    f"select at {site}: {name} takes messages here, and the chat API doesn't "
                    "report the log-probability of a given text; a completions endpoint may"
                )
            if "" in choices:
                raise UnsupportedFeature(
                    f'select at {site}: the choice "" needs the probability of the end, which '
                    f"{name} doesn't report"
                )
            key = stream_key(self._draw_seed, self.branch, self._num_calls, 0)
            draw = uniform(key, 0)

            def work(job: Job) -> CallResult:
                return self._select(job, transcript, list(choices), method, temperature, draw)

            return self._start(work, transcript, False)

    def fork(self, n: int) -> list[OpenAIHandle]:
        """`n` contexts that go on from here, calls in flight included."""
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise InvalidArgument(f"n={n!r}: must be an int of at least 1")
        with self._lock:
            self._check_open()
            first = self._num_children
            self._num_children += n
            prefix = f"{self.branch}." if self.branch else ""
            # Text written ahead isn't theirs: forks that share it would all say the same.
            return [
                OpenAIHandle(
                    self._service,
                    self._seed,
                    draw_seed=self._draw_seed,
                    owner=self._owner,
                    parent=self,
                    branch=f"{prefix}{index}",
                )
                for index in range(first, first + n)
            ]

    def join(self, children: Sequence[OpenAIHandle]) -> None:
        """Nothing: an endpoint has no use for it."""

    def close(self) -> None:
        """Take no more operations; calls in flight go on."""
        with self._lock:
            self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise ProgramError("this context is closed; it takes no more text and calls")

    def _settled(self) -> Transcript:
        """The transcript with what was pending, which needn't be read again."""
        self._transcript, self._pending = self._transcript.then(self._pending), []
        return self._transcript

    def _start(self, work: Any, transcript: Transcript, stream: bool) -> Call[CallResult]:
        job = self._service.jobs.start(work, self._last, streams=stream)
        self._transcript, self._last = transcript.then_call(job), job
        self._num_calls += 1
        return job.call

    def _is_chat(self, transcript: Transcript, site: str, *, selects: bool = False) -> bool:
        """Whether a call here goes to the chat endpoint; raises UnsupportedFeature if neither
        endpoint could take what the context holds."""
        chat, name = self._service.chat, self._service.name
        if chat is False or (chat is None and not transcript.messages):
            return False
        if selects:
            return True
        problem = None
        if transcript.stray:
            problem = f"the text {transcript.stray[:60]!r} stands outside of the messages"
        elif transcript.special:
            problem = f"special({transcript.special[:60]!r}) stands inside a message"
        elif transcript.role is None:
            problem = "the call stands outside of a message; put it into assistant(...)"
        elif transcript.role != "assistant":
            problem = f"the call stands in a {transcript.role} message, not an assistant's"
        elif transcript.messages[-1].parts and not self._continues:
            problem = (
                "the message has text before the call, which the chat API can't continue; if the "
                'server can, say extra=["continue_final_message"]'
            )
        if problem is not None:
            raise UnsupportedFeature(f"gen at {site}: {name} takes messages, but {problem}")
        if self._spec_tokens is not None:
            raise UnsupportedFeature(
                f"num_api_spec_tokens={self._spec_tokens}: only for completions, but {name} takes "
                "messages here"
            )
        return True

    @property
    def _continues(self) -> bool:
        return "continue_final_message" in self._service.rules.extra

    def _wire_seed(self, params: SamplingParams) -> int | None:
        """A seed of the call's own, of 31 bits, which every server can take."""
        seed = self._seed if params.seed is None else params.seed
        if seed is None:
            return None
        return stream_key(seed, self.branch, self._num_calls, 0) >> 33

    def _speculate(
        self,
        job: Job,
        transcript: Transcript,
        params: SamplingParams,
        seed: int | None,
        last: Job | None,
    ) -> CallResult | None:
        """A value from what was written ahead, else from a longer call; None if the endpoint
        doesn't report the tokens, without which a value's length isn't known."""
        taken, meta = _take(transcript, last, params), usage_meta({})
        if taken is None:
            assert self._spec_tokens is not None
            assert isinstance(params.max_new_tokens, int)
            longer = dataclasses.replace(
                params,
                stop=(),
                max_new_tokens=max(params.max_new_tokens, self._spec_tokens),
            )
            body = self._service.rules.body(longer, chat=False, seed=seed)
            body |= {"prompt": transcript.text(), "logprobs": 1}
            answer = self._service.ask(job, COMPLETIONS, body, longer, False)
            answer.result()
            sample = answer.samples[0]
            ended = answer.ending(sample)[0] != "length"
            tokens = [text for _, _, text in sample.logprobs]
            ahead = Ahead.of(tokens, sample.text, ended, params)
            taken = None if ahead is None else ahead.take(params)
            meta = usage_meta(answer.usage)
            job.ticket.delivered = False  # Nothing of it was handed on.
        if taken is None:
            return None
        job.ahead = taken.rest
        job.tell(taken.text)
        meta |= {
            "finish_reason": taken.finish_reason,
            "matched": taken.matched,
            "completion_tokens": taken.num_tokens,
            "speculated": meta["prompt_tokens"] is None,
        }
        return CallResult([taken.text], [], lambda: [meta])

    def _select(
        self,
        job: Job,
        transcript: Transcript,
        choices: list[str],
        method: str,
        temperature: float,
        draw: float,
    ) -> CallResult:
        prompt, name = transcript.text(), self._service.name
        usages: list[dict[str, Any]] = []
        scored = score(self._service.rows(job, [prompt + c for c in choices], usages), prompt, name)
        alone = None
        if method == "unconditional_likelihood_normalized":
            alone = self._service.rows(job, choices, usages)
        decision, unconditional = choose(method, scored, alone, temperature, draw, name)
        meta = {
            **_sum(usages),
            "index": decision.index,
            "choices": _choices(choices, scored, decision.scores, unconditional),
            "scores": decision.scores,
            "probabilities": decision.probabilities,
        }
        return CallResult([choices[decision.index]], [], lambda: [meta], decision.index)


def _take(transcript: Transcript, last: Job | None, params: SamplingParams) -> Taken | None:
    """The value in what the call before wrote ahead, if the literals since are in it, too."""
    if last is None or last.ahead is None or last not in transcript.parts:
        return None
    since = len(transcript.parts) - transcript.parts[::-1].index(last)
    ahead = last.ahead.after(text_of(transcript.parts[since:]))
    return None if ahead is None else ahead.take(params)


def _choices(
    choices: Sequence[str],
    scored: Sequence[Scored],
    scores: Sequence[float],
    unconditional: Sequence[Sequence[float | None]] | None,
) -> list[dict[str, Any]]:
    """Per choice what `meta` says of it."""
    rows: list[dict[str, Any]] = [
        {"text": choice, "tokens": s.tokens, "logprobs": s.entries, "score": value}
        for choice, s, value in zip(choices, scored, scores, strict=True)
    ]
    for row, logprobs in zip(rows, unconditional or (), strict=False):
        row["unconditional_logprobs"] = list(logprobs)
    return rows


def _sum(usages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts over several requests; None where any doesn't tell."""
    total: dict[str, Any] = {}
    for name in usage_meta({}):
        values = [usage[name] for usage in usages]
        total[name] = None if None in values else sum(values)
    return total
