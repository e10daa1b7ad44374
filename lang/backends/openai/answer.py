"""What an OpenAI-compatible endpoint answers: texts, reasons, log-probabilities and usage.

`Answer` collects one answer, which comes whole or in events of the same shape.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ramet.runtime.client.call import CallResult
from ramet.runtime.errors import BackendError, UnsupportedFeature
from ramet.runtime.request import SamplingParams

Entry = tuple[float | None, int | None, str]
"""(log-probability, None for the id, which endpoints don't tell, text) of one token."""


@dataclasses.dataclass(slots=True)
class Sample:
    """One text of an answer, as far as it has come."""

    text: str = ""
    finish: str | None = None
    """The endpoint's own word for why it ended."""
    stop: object = ...
    """The stop that ended it, where the endpoint says; None if it was none of them."""
    logprobs: list[Entry] = dataclasses.field(default_factory=list)
    top: list[list[Entry] | None] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Delta:
    """What one event added to one sample."""

    sample: int
    text: str
    logprobs: list[Entry]


class Answer:
    """An answer to a call with `params`; raises BackendError where it isn't what was asked for."""

    def __init__(
        self, params: SamplingParams, backend: str, hide: Callable[[str], str] = str
    ) -> None:
        self.samples = [Sample() for _ in range(params.n)]
        """One per sample."""
        self.usage: Mapping[str, Any] = {}
        """What the endpoint says that it counted."""
        self._params = params
        self._backend = backend
        self._hide = hide

    def add(self, data: Mapping[str, Any]) -> list[Delta]:
        """Take an answer or an event; what it added."""
        if isinstance(usage := data.get("usage"), Mapping):
            self.usage = usage
        choices = data.get("choices")
        if choices is None and self.usage:
            choices = []
        if not isinstance(choices, list):
            raise self._unexpected(data)
        return [self._add(choice, data) for choice in choices]

    def result(self) -> CallResult:
        """The whole; raises BackendError if it has no end, and UnsupportedFeature if it lacks the
        log-probabilities that were asked for."""
        for index, sample in enumerate(self.samples):
            if sample.finish is None:
                raise BackendError(
                    f"{self._backend}: sample {index} of the answer has no end; it came as far as "
                    f"{sample.text[-200:]!r}"
                )
            if self._params.return_logprob and sample.text and not sample.logprobs:
                raise UnsupportedFeature(
                    f"return_logprob=True: {self._backend} sent no log-probabilities"
                )
        metas = [self._meta(sample) for sample in self.samples]
        return CallResult([sample.text for sample in self.samples], [], lambda: metas)

    def ending(self, sample: Sample) -> tuple[str, object]:
        """(finish reason in the language's words, the stop that fired if it is known)."""
        reason = sample.finish or "abort"
        if reason not in ("stop", "eos"):
            return reason, None
        if isinstance(sample.stop, (str, int)):
            return "stop", sample.stop
        # An endpoint that names the stop, and names none here, means the model's own end.
        told = sample.stop is None
        stops = bool(self._params.stop or self._params.stop_token_ids)
        return ("stop" if stops and not told and reason == "stop" else "eos"), None

    def _add(self, choice: object, data: Mapping[str, Any]) -> Delta:
        if not isinstance(choice, Mapping):
            raise self._unexpected(data)
        index = choice.get("index", 0)
        if not isinstance(index, int) or not 0 <= index < len(self.samples):
            raise self._unexpected(data)
        sample = self.samples[index]
        message = choice.get("delta", choice.get("message", choice))
        if not isinstance(message, Mapping):
            raise self._unexpected(data)
        text = message.get("text" if message is choice else "content", "")
        text = "" if text is None else text
        finish = choice.get("finish_reason")
        if not isinstance(text, str) or not isinstance(finish, (str, type(None))):
            raise self._unexpected(data)
        sample.text += text
        sample.finish = finish or sample.finish
        for name in ("stop_reason", "matched_stop"):
            if finish and name in choice:
                sample.stop = choice[name]
        logprobs, top = self._logprobs(choice.get("logprobs"), data)
        sample.logprobs += logprobs
        sample.top += top
        return Delta(index, text, logprobs)

    def _logprobs(
        self, found: Any, data: Mapping[str, Any]
    ) -> tuple[list[Entry], list[list[Entry] | None]]:
        if not found:
            return [], []
        try:
            if (content := found.get("content")) is not None:
                entries = [_entry(item) for item in content]
                return entries, [_row(item.get("top_logprobs")) for item in content]
            entries = [
                (_number(logprob), None, str(token))
                for token, logprob in zip(
                    found.get("tokens") or (), found.get("token_logprobs") or (), strict=True
                )
            ]
            rows = found.get("top_logprobs") or [None] * len(entries)
            return entries, [_row(row) for row in rows]
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self._unexpected(data) from None

    def _meta(self, sample: Sample) -> dict[str, Any]:
        reason, matched = self.ending(sample)
        meta = {"finish_reason": reason, "matched": matched, **usage_meta(self.usage)}
        if self._params.n > 1:
            meta["completion_tokens"] = None  # The endpoint tells that of all samples together.
        if self._params.return_logprob:
            meta["completion_tokens"] = len(sample.logprobs)
            meta["output_token_logprobs"] = sample.logprobs
            meta["output_token_logprobs_length"] = len(sample.logprobs)
            if top := self._params.top_logprobs_num:
                meta["output_top_logprobs"] = [None if r is None else r[:top] for r in sample.top]
        return meta

    def _unexpected(self, data: Mapping[str, Any]) -> BackendError:
        shown = self._hide(str(data))[:2000]
        return BackendError(f"{self._backend} gave an unexpected answer: {shown}")


def usage_meta(usage: Mapping[str, Any]) -> dict[str, Any]:
    """The counts of `meta`; None where the endpoint doesn't tell."""
    details = usage.get("prompt_tokens_details")
    prompt = _count(usage.get("prompt_tokens"))
    cached = _count(details.get("cached_tokens")) if isinstance(details, Mapping) else None
    return {
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "computed_tokens": None if prompt is None or cached is None else prompt - cached,
        "completion_tokens": _count(usage.get("completion_tokens")),
    }


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _entry(item: Mapping[str, Any]) -> Entry:
    return _number(item["logprob"]), None, str(item["token"])


def _row(row: object) -> list[Entry] | None:
    """The likeliest tokens of one position, the likeliest first."""
    if not row:
        return None
    if isinstance(row, Mapping):
        pairs = sorted(((float(lp), str(token)) for token, lp in row.items()), reverse=True)
    else:
        assert isinstance(row, Sequence)
        pairs = [(float(item["logprob"]), str(item["token"])) for item in row]
    return [(logprob, None, token) for logprob, token in pairs]
