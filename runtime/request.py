"""Requests as plain, immutable data: what one call asks of the engine.

`SamplingParams` is the one parameter set of a generation. It is written once here, validated when
it is built, and passed whole: by `Runtime.generate`, by `lang`'s `gen`, and across the channel as
the dict of `to_wire`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

from ramet.runtime.errors import InvalidArgument
from ramet.runtime.grammar.spec import KINDS, Constraint
from ramet.runtime.sampling.stop_pattern import compile_stop

MAX_SAMPLES = 4096
MAX_INT = 2**31 - 1
"""Largest value of a count or a token id."""
_ALIASES = {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens"}


class _Wired:
    """A place for what `to_wire` gave, which is no field."""

    __slots__ = ("_wire",)
    _wire: dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class SamplingParams(_Wired):
    """How one call samples, stops and reports; the field's usual names (SGLang, vLLM, OpenAI).

    Penalties follow the OpenAI formula over *generated* tokens (frequency, presence) and CTRL's
    (Keskar et al. 2019) over prompt and generated tokens (repetition).
    """

    max_new_tokens: int | str = 128
    """Most tokens to sample, at least 1, or `"context"`: up to the context length."""
    min_new_tokens: int = 0
    """No end id and no stop may end the call before this many tokens."""
    n: int = 1
    """Samples drawn from the same context; sample 0 enters the context."""
    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    """Nucleus sampling (Holtzman et al. 2020): the smallest set with at least this mass."""
    top_k: int = -1
    """Only the k likeliest tokens; -1 is off."""
    min_p: float = 0.0
    """Only tokens with at least this fraction of the likeliest token's probability."""
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    """Texts that end the call where they first appear in the generated text."""
    stop_regex: str | None = None
    """A regex that ends the call where the generated text first contains a match of it."""
    stop_token_ids: tuple[int, ...] = ()
    """Further token ids that end the call, besides the model's own end ids."""
    include_stop: bool = False
    """Whether the stop text stays in the value."""
    ignore_eos: bool = False
    """Whether the model's own end ids count as ordinary tokens."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, added logit) pairs; built from a dict. -100 and below ban a token."""
    seed: int | None = None
    """Replaces the program's seed for this call."""
    return_logprob: bool = False
    """Report the log-probability of each sampled token, under the model's own distribution."""
    logprob_start_len: int | None = None
    """With `return_logprob`: also report the prompt's tokens from this position on."""
    top_logprobs_num: int = 0
    """With `return_logprob`: also report this many likeliest tokens per position."""
    constraint: Constraint | None = None
    """What the whole text has to be; built from a Constraint or its dict of kind and text."""
    jump_forward: bool = True
    """Whether text that the constraint forces is taken without sampling it. It is sampled anyway
    with `return_logprob` and where tokens are banned."""
    close_within_budget: bool = True
    """Whether a JSON document is closed before `max_new_tokens` runs out."""
    priority: int | None = None
    """Replaces the program's: higher ones are admitted first."""
    deadline: float | None = None
    """Seconds from submission after which the call ends with Cancelled if it isn't done."""
    cache: bool | None = None
    """Replaces the program's: False shares nothing, and leaves nothing when the call is over."""
    cache_salt: str | None = None
    """Replaces the program's: computed tokens are shared only with calls of an equal salt."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        if self.max_new_tokens != "context":
            _integer("max_new_tokens", self.max_new_tokens, 1, None, 'or "context"')
        _integer("min_new_tokens", self.min_new_tokens, 0, None)
        _integer("n", self.n, 1, MAX_SAMPLES)
        _number("temperature", self.temperature, 0.0, None)
        _number("top_p", self.top_p, 0.0, 1.0, open_low=True)
        if self.top_k != -1 or isinstance(self.top_k, bool):
            _integer("top_k", self.top_k, 1, None, "or -1")
        _number("min_p", self.min_p, 0.0, 1.0)
        _number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _number("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        put(self, "stop", _stops(self.stop))
        if self.stop_regex is not None:
            compile_stop(check_text("stop_regex", self.stop_regex))
        put(self, "stop_token_ids", _token_ids("stop_token_ids", self.stop_token_ids))
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise InvalidArgument(f"{name}={shown(getattr(self, name))}: must be True or False")
        put(self, "logit_bias", _bias(self.logit_bias))
        put(self, "constraint", Constraint.of(self.constraint))
        check_seed("seed", self.seed)
        _check_sharing(self)
        if self.logprob_start_len is not None:
            _integer("logprob_start_len", self.logprob_start_len, 0, None, "or None")
        _integer("top_logprobs_num", self.top_logprobs_num, 0, 1000)
        if not self.return_logprob and (
            self.logprob_start_len is not None or self.top_logprobs_num
        ):
            raise InvalidArgument("logprob_start_len and top_logprobs_num need return_logprob=True")
        if self.max_new_tokens != "context" and self.min_new_tokens > int(self.max_new_tokens):
            raise InvalidArgument(
                f"min_new_tokens={self.min_new_tokens}: must not exceed "
                f"max_new_tokens={self.max_new_tokens}"
            )

    @classmethod
    def build(cls, values: Mapping[str, Any] | SamplingParams | None) -> SamplingParams:
        """From a dict of fields, or None.

        Accepted too: `max_tokens`, `min_tokens`, and a constraint's kind with its text.

        A field that is None has its default. Raises InvalidArgument for an unknown name, naming
        the ones that exist.
        """
        if values is None:
            return cls()
        if isinstance(values, SamplingParams):
            return values
        if not isinstance(values, Mapping):
            raise InvalidArgument(
                f"sampling_params={values!r}: must be a dict, SamplingParams or None"
            )
        fields: dict[str, Any] = {}
        for key, value in values.items():
            name = _ALIASES.get(key, key)
            if key in KINDS:
                name = "constraint"
            if name not in _FIELDS:
                known = ", ".join(sorted({*_FIELDS, *_ALIASES, *KINDS}))
                raise InvalidArgument(f"unknown sampling parameter {shown(key)}; known are {known}")
            if value is None:
                continue
            if key in KINDS:
                value = {"kind": key, "text": value}
            if name in fields:
                raise InvalidArgument(f"{name} is given twice (as {key!r} too)")
            fields[name] = value
        return cls(**fields)

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raise InvalidArgument if a token id lies outside `range(vocab_size)`."""
        if not (self.stop_token_ids or self.logit_bias):
            return
        for token in self.stop_token_ids:
            if token >= vocab_size:
                raise InvalidArgument(
                    f"stop_token_ids: {token} is outside the vocabulary of {vocab_size} tokens"
                )
        for token, _ in self.logit_bias:
            if token >= vocab_size:
                raise InvalidArgument(
                    f"logit_bias: token id {token} is outside the vocabulary of {vocab_size} tokens"
                )

    def to_wire(self) -> dict[str, Any]:
        """Plain data, only the fields that differ from the defaults; `from_wire` reverses it.

        Equal parameters share it, so it must not be changed.
        """
        try:
            return self._wire
        except AttributeError:  # A program's line sends the same ones again and again.
            wire = _wire_of(self)
            object.__setattr__(self, "_wire", wire)
            return wire

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> SamplingParams:
        """Rebuild from `to_wire`'s dict."""
        return cls(**data)


_FLAGS = ("include_stop", "ignore_eos", "return_logprob", "jump_forward", "close_within_budget")
_DEFAULTS = tuple((field.name, field.default) for field in dataclasses.fields(SamplingParams))
_FIELDS = frozenset(name for name, _ in _DEFAULTS)


@functools.lru_cache(maxsize=4096)
def _wire_of(params: SamplingParams) -> dict[str, Any]:
    # Remembered, because a line whose run has parameters of its own builds equal ones in each run.
    return {
        name: value.to_wire() if isinstance(value, Constraint) else value
        for name, default in _DEFAULTS
        if (value := getattr(params, name)) != default
    }


def check_seed(name: str, value: object) -> None:
    """Raise InvalidArgument unless `value` is None or an int of 64 bits (negative ones too)."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**64:
        raise InvalidArgument(f"{name}={shown(value)}: must be an int in [-2**63, 2**64) or None")


def check_program(value: object) -> None:
    """Raise InvalidArgument unless `value` is an int, as the numbers of programs are."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"program={shown(value)}: must be the number of a program, an int")


def check_priority(value: object) -> None:
    """Raise InvalidArgument unless `value` is an int of 32 bits."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_INT:
        raise InvalidArgument(f"priority={shown(value)}: must be an int in [-2**31 + 1, 2**31)")


def check_token_ids(name: str, value: object, vocab_size: int) -> list[int]:
    """`value` as a list of ints in `range(vocab_size)`; raises InvalidArgument."""
    ids = list(_token_ids(name, value))
    for token in ids:
        if token >= vocab_size:
            raise InvalidArgument(
                f"{name}: {token} is outside the vocabulary of {vocab_size} tokens"
            )
    return ids


def check_text(name: str, value: object) -> str:
    """`value` if it is a str that UTF-8 can encode; a lone surrogate raises InvalidArgument."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{name}={shown(value)}: must be a str")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"{name}: the character {value[error.start]!r} at index {error.start} is a lone "
            "surrogate, which no text can contain"
        ) from None
    return value


def shown(value: object) -> str:
    """`repr` for a message, cut short; it never fails and is never huge."""
    try:
        text = repr(value)
    except ValueError:  # An int of more digits than Python will print.
        text = f"an int of {value.bit_length()} bits" if isinstance(value, int) else "…"
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 200 else f"{text[:199]}…"


def _check_sharing(params: SamplingParams) -> None:
    """Check what a call may say for itself instead of its program."""
    if params.priority is not None:
        check_priority(params.priority)
    if params.deadline is not None:
        _number("deadline", params.deadline, 0.0, None, open_low=True)
    if params.cache is not None and not isinstance(params.cache, bool):
        raise InvalidArgument(f"cache={shown(params.cache)}: must be True, False or None")
    if params.cache_salt is not None:
        check_text("cache_salt", params.cache_salt)
        if params.cache is False:
            raise InvalidArgument(
                f"cache_salt={shown(params.cache_salt)}: cache=False shares nothing with anybody, "
                "so a salt has no effect"
            )


def _integer(name: str, value: object, low: int, high: int | None, also: str = "") -> None:
    ok = isinstance(value, int) and not isinstance(value, bool)
    if high is None:
        high = MAX_INT
        also = f"and at most {high} {also}" if ok and value > high else also  # type: ignore[operator]
    else:
        also = f"and at most {high} {also}"
    if not ok or not low <= value <= high:  # type: ignore[operator]
        raise InvalidArgument(
            f"{name}={shown(value)}: must be an int of at least {low} {also}".rstrip()
        )


def _number(
    name: str, value: object, low: float, high: float | None, open_low: bool = False
) -> None:
    ok = isinstance(value, (int, float)) and not isinstance(value, bool)
    if ok:
        try:
            number = float(value)  # type: ignore[arg-type]
        except OverflowError:  # An int beyond every float.
            number = math.inf
        ok = math.isfinite(number) and (number > low if open_low else number >= low)
        ok = ok and (high is None or number <= high)
    if not ok:
        bound = f"{'above' if open_low else 'at least'} {low:g}"
        top = f" and at most {high:g}" if high is not None else ""
        raise InvalidArgument(f"{name}={shown(value)}: must be a finite number {bound}{top}")


def _stops(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, (list, tuple)):
        raise InvalidArgument(f"stop={shown(value)}: must be a str or a list of str")
    stops: dict[str, None] = {}
    for stop in value:
        if not isinstance(stop, str) or not stop:
            raise InvalidArgument(f"stop: {shown(stop)} is not a text of at least one character")
        stops[check_text("stop", stop)] = None
    return tuple(stops)


def _token_ids(name: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)):
        raise InvalidArgument(f"{name}={shown(value)}: must be a list of token ids")
    for token in value:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token <= MAX_INT:
            raise InvalidArgument(
                f"{name}: {shown(token)} is not a token id (an int of at least 0)"
            )
    return tuple(value)


def _bias(value: object) -> tuple[tuple[int, float], ...]:
    if value is None:
        return ()
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(pairs, (list, tuple)):
        raise InvalidArgument(f"logit_bias={shown(value)}: must be a dict of token id to number")
    bias: dict[int, float] = {}
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise InvalidArgument(f"logit_bias: {shown(pair)} is no pair of token id and number")
        key, number = pair
        digits = isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 10
        token = int(key) if digits else key
        _integer("logit_bias: a token id", token, 0, None)
        _number(f"logit_bias[{token}]", number, -100.0, 100.0)
        if token in bias:
            raise InvalidArgument(f"logit_bias: token id {token} is given twice")
        bias[token] = float(number)
    return tuple(sorted(bias.items()))
