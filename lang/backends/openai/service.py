"""The requests that contexts of one endpoint make: generations and the scoring of texts."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

from ramet.lang.backends.openai.answer import Answer, usage_meta
from ramet.lang.backends.openai.fields import FieldRules
from ramet.lang.backends.openai.jobs import Job, Jobs
from ramet.lang.backends.openai.scoring import Row, batches_of, body_of, rows_of
from ramet.lang.backends.openai.transcript import Transcript
from ramet.lang.backends.openai.transport import EndpointError, HttpClient
from ramet.runtime.client.call import CallResult
from ramet.runtime.errors import UnsupportedFeature
from ramet.runtime.request import SamplingParams

COMPLETIONS, CHAT = "/completions", "/chat/completions"
_REFUSED = (400, 404, 405, 422, 501)


class Tally:
    """Tokens that an endpoint says it counted, over all calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts = {"prompt_tokens": 0, "cached_tokens": 0, "completion_tokens": 0}
        """By the names of `meta`."""

    def add(self, usage: Any) -> None:
        """Add one answer's `usage`."""
        told = usage_meta(usage) if isinstance(usage, dict) else {}
        with self._lock:
            for name in self.counts:
                self.counts[name] += told.get(name) or 0


@dataclasses.dataclass(frozen=True)
class Service:
    """What all contexts of one backend share."""

    client: HttpClient
    jobs: Jobs
    rules: FieldRules
    chat: bool | None
    """Whether contexts are messages; None: those that have roles are."""
    tally: Tally

    @property
    def name(self) -> str:
        """How messages name the backend."""
        return self.rules.backend

    def generate(
        self,
        job: Job,
        transcript: Transcript,
        params: SamplingParams,
        seed: int | None,
        chat: bool,
        stream: bool,
    ) -> CallResult:
        """The answer to one generation behind `transcript`, whose calls have ended."""
        rules = self.rules
        body = rules.body(params, chat=chat, seed=seed, stream=stream)
        if not chat:
            body["prompt"] = transcript.text()
        else:
            body["messages"] = transcript.render()
            if transcript.messages[-1].parts:
                body[rules.extra["continue_final_message"]] = True
                body["add_generation_prompt"] = False
        answer = self.ask(job, CHAT if chat else COMPLETIONS, body, params, stream)
        return answer.result()

    def ask(
        self, job: Job, path: str, body: dict[str, Any], params: SamplingParams, stream: bool
    ) -> Answer:
        """The answer to a request; with `stream` its text is handed on as it comes."""
        answer = Answer(params, self.name, self.client.endpoint.hide)

        def take(data: dict[str, Any]) -> None:
            for delta in answer.add(data):
                job.ticket.delivered = job.ticket.delivered or bool(delta.text)
                if stream:
                    logprobs = list[object](delta.logprobs) if params.return_logprob else None
                    job.tell(delta.text, delta.sample, logprobs)

        self.client.post(path, body, job.ticket, take)
        self.tally.add(answer.usage)
        return answer

    def rows(self, job: Job, texts: list[str], usages: list[dict[str, Any]]) -> list[Row]:
        """How likely the endpoint finds each text, token by token; `usages` gets the counts.

        Raises UnsupportedFeature if it doesn't offer that.
        """
        rows: list[Row] = []
        rules, client = self.rules, self.client
        for batch in batches_of(texts):
            answers: list[dict[str, Any]] = []
            body = {**rules.extra_body, **body_of(rules.model, batch)}
            try:
                client.post(COMPLETIONS, body, job.ticket, answers.append)
            except EndpointError as error:
                if error.status not in _REFUSED:
                    raise
                raise UnsupportedFeature(
                    f"select: {rules.backend} refuses to report the log-probabilities of a given "
                    f"text (`echo` with `logprobs`): {error}"
                ) from error
            rows += rows_of(answers[-1], batch, rules.backend)
            usage = answers[-1].get("usage")
            self.tally.add(usage)
            usages.append(usage_meta(usage if isinstance(usage, dict) else {}))
        return rows
