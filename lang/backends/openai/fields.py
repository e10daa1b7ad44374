"""What a request to an OpenAI-compatible endpoint may ask for, and under which names.

Every field of `SamplingParams` is either sent or refused by name, before any request; none is
ignored. A field that is new to `SamplingParams` is refused until it is listed here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ramet.runtime.errors import InvalidArgument, UnsupportedFeature
from ramet.runtime.request import SamplingParams

EXTRA: Final[Mapping[str, str]] = {
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "stop_token_ids": "stop_token_ids",
    "min_tokens": "min_tokens",
    "ignore_eos": "ignore_eos",
    "regex": "regex",
    "continue_final_message": "continue_final_message",
}
"""What some servers offer beyond the OpenAI API, and the name under which vLLM and SGLang take
it. The last one is not an argument of `gen`: it lets a message begin with the program's text."""

OMITTABLE = ("temperature", "top_p", "seed", "stream_options")
"""What some servers refuse to be sent at all."""

_STANDARD = (
    *("max_new_tokens", "n", "temperature", "top_p", "frequency_penalty", "presence_penalty"),
    *("stop", "logit_bias", "seed", "return_logprob", "top_logprobs_num"),
)
_PROGRAMS = (
    *(*_STANDARD, "model", "prompt", "messages", "echo", "logprobs", "top_logprobs", "stream"),
    *("max_tokens", "max_completion_tokens", "stream_options"),
)
_GEN_NAMES = {"min_new_tokens": "min_tokens", "max_new_tokens": "max_tokens"}
_ALWAYS = ("top_k", "min_p", "repetition_penalty")  # A server has defaults of its own.


@dataclasses.dataclass(frozen=True, slots=True)
class FieldRules:
    """Which fields one endpoint is sent; raises InvalidArgument for names that there aren't."""

    backend: str
    """How messages name the endpoint."""
    model: str
    extra: Mapping[str, str]
    """Names of `EXTRA` that the endpoint offers, and how it calls them."""
    omit: frozenset[str]
    """Names of `OMITTABLE` that are never sent."""
    chat_limit: str
    """How the chat endpoint calls the limit of tokens."""
    extra_body: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Further fields of every request, as they are."""

    def __post_init__(self) -> None:
        for name in self.extra:
            if name not in EXTRA:
                raise InvalidArgument(f"extra: {name!r} is not one of {', '.join(sorted(EXTRA))}")
        for name in self.omit:
            if name not in OMITTABLE:
                raise InvalidArgument(f"omit: {name!r} is not one of {', '.join(OMITTABLE)}")
        for name in self.extra_body:
            if not isinstance(name, str) or name in _PROGRAMS or name in self.extra.values():
                raise InvalidArgument(f"extra_body: {name!r} is set by programs")

    def check(self, params: SamplingParams, *, chat: bool) -> None:
        """Raise UnsupportedFeature for what the endpoint isn't known to honour."""
        for field, value in params.to_wire().items():
            name = _GEN_NAMES.get(field, field)
            if params.constraint is not None and field == "constraint":
                name, value = params.constraint.kind, params.constraint.text
            if field not in _STANDARD and name not in self.extra:
                hint = f"; if the server does, say extra=[{name!r}]" if name in EXTRA else ""
                if name == "regex":
                    hint += " (a dtype is a regex, too)"
                raise UnsupportedFeature(f"{name}={value!r}: {self.backend} doesn't offer it{hint}")
            if field in self.omit:
                raise UnsupportedFeature(f"{name}={value!r}: omit= keeps it from {self.backend}")
        if params.max_new_tokens == "context" and not chat:
            raise UnsupportedFeature(
                'max_tokens="context": a completions endpoint has a small default limit instead, '
                f"so {self.backend} needs a number"
            )

    def body(
        self, params: SamplingParams, *, chat: bool, seed: int | None = None, stream: bool = False
    ) -> dict[str, Any]:
        """The fields of a request, without its prompt; `params` have been checked."""
        body: dict[str, Any] = {"model": self.model, **self.extra_body}
        if params.max_new_tokens != "context":
            body[self.chat_limit if chat else "max_tokens"] = params.max_new_tokens
        for name in ("temperature", "top_p"):
            # Sent even if it is the language's default, which needn't be the server's.
            if name not in self.omit:
                body[name] = getattr(params, name)
        for name in ("frequency_penalty", "presence_penalty"):
            if getattr(params, name):
                body[name] = getattr(params, name)
        if params.n != 1:
            body["n"] = params.n
        if params.stop:
            body["stop"] = list(params.stop)
        if params.logit_bias:
            body["logit_bias"] = {str(token): bias for token, bias in params.logit_bias}
        if seed is not None and "seed" not in self.omit:
            body["seed"] = seed
        if params.return_logprob:
            body |= _logprobs(params.top_logprobs_num, chat)
        body |= self._extras(params)
        if stream:
            body["stream"] = True
            if "stream_options" not in self.omit:
                body["stream_options"] = {"include_usage": True}
        return body

    def _extras(self, params: SamplingParams) -> dict[str, Any]:
        wire = params.to_wire()
        body: dict[str, Any] = {}
        for name, called in self.extra.items():
            field = "min_new_tokens" if name == "min_tokens" else name
            if (constraint := params.constraint) is not None and name == constraint.kind:
                body[called] = constraint.text
            elif field in wire or name in _ALWAYS:
                body[called] = getattr(params, field)
        return body


def extra_names(extra: object) -> dict[str, str]:
    """`extra=` as a dict of names; raises InvalidArgument."""
    if isinstance(extra, Mapping):
        names = dict(extra)
    elif isinstance(extra, Iterable) and not isinstance(extra, str):
        names = {name: EXTRA.get(name, "") for name in extra}
    else:
        raise InvalidArgument(f"extra={extra!r}: must be a list of names, or a dict of them")
    if not all(isinstance(text, str) for pair in names.items() for text in pair):
        raise InvalidArgument(f"extra={extra!r}: names must be str")
    return names


def _logprobs(top: int, chat: bool) -> dict[str, Any]:
    if not chat:
        # 0 is "none" to some servers; the list of the likeliest one does no harm.
        return {"logprobs": max(top, 1)}
    return {"logprobs": True, "top_logprobs": top} if top else {"logprobs": True}
