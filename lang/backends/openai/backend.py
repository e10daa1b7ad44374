"""`OpenAI`: a backend for any endpoint that speaks the OpenAI API, completions and chat."""

from __future__ import annotations

import itertools
import math
import secrets
import weakref
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from ramet.lang.backends.openai.address import Endpoint, check_headers, parse_base_url
from ramet.lang.backends.openai.fields import FieldRules, extra_names
from ramet.lang.backends.openai.handle import OpenAIHandle
from ramet.lang.backends.openai.jobs import Jobs
from ramet.lang.backends.openai.service import Service, Tally
from ramet.lang.backends.openai.transcript import render_chat
from ramet.lang.backends.openai.transport import HttpClient
from ramet.runtime.config import openai_api_key
from ramet.runtime.errors import BackendError, InvalidArgument, UnsupportedFeature
from ramet.runtime.request import check_seed

OPENAI_URL = "https://api.openai.com/v1"
"""Where a model goes that no URL was given for."""

_LIMITS = ("max_tokens", "max_completion_tokens")


class EndpointTokenizer:
    """What the language is told of an endpoint's text: no BOS of ours, and roles in ChatML, which
    `Transcript` turns back into messages."""

    bos_id: int | None = None
    """The endpoint adds its own."""
    vocab_size = 2**31
    """Not known, so nothing is refused for it here."""

    def __init__(self, backend: str, roles: bool) -> None:
        self._backend = backend
        self._roles = roles

    def special_text(self, token_id: int) -> str:
        """No special token is known."""
        return ""

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = False
    ) -> str:
        """The form in which messages reach the handle; raises UnsupportedFeature for chat=False."""
        if not self._roles:
            raise UnsupportedFeature(
                f"roles: {self._backend} was told chat=False, so it takes text, and the model's "
                "chat template isn't known here; write the template's text, or use chat=True"
            )
        return render_chat(messages, add_generation_prompt)


class OpenAI:
    """A model behind an OpenAI-compatible endpoint. Usable from any thread, and in a `with` block.

    A context without roles goes to `{base_url}/completions` as text, one with roles to
    `{base_url}/chat/completions` as messages; `chat=True` or `False` allows only one of them. In
    messages, a call must be the beginning of an assistant's message, and nothing may stand outside
    of roles; `state.text()` shows them in ChatML. What an endpoint isn't known to honour is refused
    with UnsupportedFeature before anything is sent; what a server offers beyond the OpenAI API is
    named in `extra`.

    Calls of one context follow each other; those of different contexts run side by side, at most
    `max_connections` at once, each on a thread and a connection of its own while it runs.

    Building one checks everything, raises InvalidArgument, and sends nothing:

    - `base_url`: such as "http://localhost:8000/v1". `OpenAI("some-model")` alone is that model
      at api.openai.com.
    - `api_key`: sent as a bearer token; never shown. None: none, except that api.openai.com is sent
      `$OPENAI_API_KEY`.
    - `timeout`: the longest silence of the server, in seconds, to connect (10 at most) and
      within an answer. How long a program may take is the run's `timeout`.
    - `max_retries`, `backoff`: how often a request is repeated after 408, 409, 429, 5xx or a
      failed connection, and the first pause in seconds; it doubles, with jitter, unless the
      server asks for another (`Retry-After`; more than 60 s ends the call). Never once a part
      of the answer was handed on, and never after a time-out.
    - `headers`: more of them for every request.
    - `extra`: what the server offers beyond the OpenAI API: any of top_k, min_p,
      repetition_penalty, stop_token_ids, min_tokens, ignore_eos, regex, and
      continue_final_message (messages that begin with the program's text). A dict also gives
      the server's own name for each. The first three are then always sent.
    - `omit`: what the server must not be sent: any of temperature, top_p, seed, stream_options.
      Programs then can't set it.
    - `extra_body`: fields for every request, as they are.
    - `chat_limit_field`: how the chat endpoint calls `max_tokens`; None: that, except for
      api.openai.com, which calls it `max_completion_tokens`.
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        api_key: str | None = None,
        *,
        chat: bool | Literal["auto"] = "auto",
        timeout: float = 600.0,
        max_retries: int = 3,
        backoff: float = 0.5,
        max_connections: int = 32,
        headers: Mapping[str, str] | None = None,
        extra: Iterable[str] | Mapping[str, str] = (),
        omit: Iterable[str] = (),
        extra_body: Mapping[str, Any] | None = None,
        chat_limit_field: str | None = None,
    ) -> None:
        if model is None and isinstance(base_url, str) and "://" not in base_url:
            base_url, model = OPENAI_URL, base_url
        if not isinstance(model, str) or not model:
            raise InvalidArgument(f"model={model!r}: must be the name of a model")
        if chat != "auto" and not isinstance(chat, bool):
            raise InvalidArgument(f'chat={chat!r}: must be "auto", True or False')
        https, host, port, path = parse_base_url(base_url)
        if api_key is None and https and host == "api.openai.com":
            api_key = openai_api_key()
        _number("timeout", timeout, above=True)
        _number("backoff", backoff)
        _integer("max_retries", max_retries, 0)
        _integer("max_connections", max_connections, 1)
        if chat_limit_field is None:
            chat_limit_field = _LIMITS[host == "api.openai.com"]
        elif chat_limit_field not in _LIMITS:
            raise InvalidArgument(
                f"chat_limit_field={chat_limit_field!r}: must be one of {', '.join(_LIMITS)}"
            )
        sent, hidden = check_headers(api_key, headers)
        endpoint = Endpoint(https, host, port, path, sent, hidden, timeout, max_retries, backoff)
        name = f"OpenAI({endpoint.base_url!r}, {model!r})"
        rules = FieldRules(
            name,
            model,
            extra_names(extra),
            frozenset(omit),
            chat_limit_field,
            dict(extra_body or {}),
        )
        self._name = name
        self._tokenizer = EndpointTokenizer(name, chat is not False)
        client = HttpClient(endpoint, max_connections)
        jobs = Jobs(max_connections, "ramet-openai")
        self._service = Service(client, jobs, rules, None if chat == "auto" else chat, Tally())
        self._finalizer = weakref.finalize(self, _close, client, jobs)
        # Draws of unseeded programs: independent ones, as an unseeded endpoint's are.
        self._draw_seed = secrets.randbits(63)
        self._num_programs = itertools.count()

    def __repr__(self) -> str:
        return self._name

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()

    @property
    def tokenizer(self) -> EndpointTokenizer:
        """What is known of the model's text."""
        return self._tokenizer

    def open(
        self,
        *,
        seed: int | None = None,
        name: str | None = None,
        num_api_spec_tokens: int | None = None,
    ) -> OpenAIHandle:
        """The first context of a program instance; its `name` stays here.

        With a seed, each call sends one derived from it, the branch and the call's number; how far
        that fixes the answers is the server's business. Without one, no seed is sent.

        `num_api_spec_tokens` (completions only): a call asks for this many tokens at least, and
        what comes after its value answers the next calls as long as the literals between agree.
        """
        check_seed("seed", seed)
        if num_api_spec_tokens is not None:
            _integer("num_api_spec_tokens", num_api_spec_tokens, 1)
        if not self._finalizer.alive:
            raise BackendError(f"{self._name} is shut down")
        draw = self._draw_seed + next(self._num_programs) if seed is None else seed
        return OpenAIHandle(
            self._service, seed, draw_seed=draw, spec_tokens=num_api_spec_tokens, owner=self
        )

    def stats(self) -> dict[str, Any]:
        """Requests, retries, calls and tokens so far, as the endpoint counts them."""
        service = self._service
        return {
            "requests": service.client.num_requests,
            "retries": service.client.num_retries,
            "running": service.jobs.num_running,
            "waiting": service.jobs.num_waiting,
            "idle_connections": service.client.num_idle,
            **service.tally.counts,
        }

    def flush_cache(self) -> object:
        """Raises UnsupportedFeature: an endpoint's cache is its own."""
        raise UnsupportedFeature(f"flush_cache: {self._name} has no such request")

    def shutdown(self) -> None:
        """Fail the calls in flight and close the connections. Safe to repeat."""
        self._finalizer()


def _close(client: HttpClient, jobs: Jobs) -> None:
    jobs.close()
    client.close()


def _integer(name: str, value: object, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InvalidArgument(f"{name}={value!r}: must be an int of at least {low}")


def _number(name: str, value: object, *, above: bool = False) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0 or (above and value == 0):  # type: ignore[arg-type, operator]
        least = "above" if above else "of at least"
        raise InvalidArgument(f"{name}={value!r}: must be a finite number of seconds {least} 0")
