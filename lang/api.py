"""The functions that programs are written with: calls, roles and special tokens.

Every argument is checked here, before anything is sent to a model.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn, TypedDict, Unpack

from ramet.lang.choices import ChoicesMethod, token_length_normalized
from ramet.lang.constraints import CONSTRAINTS, take_constraint
from ramet.lang.errors import InvalidArgument, UnsupportedFeature
from ramet.lang.expr import Expr, Gen, RoleBegin, RoleEnd, Select, Sum, Text, nodes_of
from ramet.lang.marked import plain_text
from ramet.runtime.request import SamplingParams, check_text

SHORT_NAMES = {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens"}
"""The names that `gen` has for two sampling fields."""

_EXCLUSIVE = (*CONSTRAINTS, "choices")


class GenOptions(TypedDict, total=False):
    """The keyword arguments of `gen`; one that is None or left out is the run's."""

    stop_token_ids: Sequence[int] | None
    stop_regex: str | None
    include_stop: bool | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    repetition_penalty: float | None
    ignore_eos: bool | None
    seed: int | None
    logit_bias: Mapping[int, float] | None
    return_logprob: bool | None
    logprob_start_len: int | None
    top_logprobs_num: int | None
    return_text_in_logprobs: bool | None
    dtype: type | str | None
    type: Any
    choices: Sequence[str] | None
    choices_method: ChoicesMethod | str | None
    regex: str | None
    json_schema: Any
    ebnf: str | None
    lark: str | None
    structural_tags: Any
    strict: bool | None
    whitespace: Any
    close_within_budget: bool | None
    jump_forward: bool | None
    priority: int | None
    deadline: float | None
    cache: bool | None
    cache_salt: str | None


_ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "schema": ("json_schema",),
    "guided_json": ("json_schema",),
    "response_format": ("json_schema",),
    "pattern": ("regex",),
    "guided_regex": ("regex",),
    "grammar": ("lark or ebnf",),
    "guided_grammar": ("ebnf",),
}
"""What other systems call some arguments."""
_GEN_OPTIONS = frozenset({"max_tokens", "min_tokens", "n", "stop", *GenOptions.__annotations__})


class TypedGenOptions(GenOptions, total=False):
    """The keyword arguments of `gen_int` and `gen_string`."""

    min_tokens: int | None
    n: int | None
    stop: str | Sequence[str] | None


def gen(
    name: str | None = None,
    max_tokens: int | Literal["context"] | None = None,
    min_tokens: int | None = None,
    n: int | None = None,
    stop: str | Sequence[str] | None = None,
    **options: Unpack[GenOptions],
) -> Expr:
    """Generate text, and keep it as variable `name`.

    An argument left at None is the run's, else the default.

    - `max_tokens` (128; "context": up to the context's length), `min_tokens` (0), `ignore_eos`.
    - `stop`, a text or a list: matched in the generated text only, and no part of the value unless
      `include_stop`; `stop_token_ids` likewise, and `stop_regex` at its first match.
    - `temperature` (1; 0 is greedy), `top_p`, `top_k`, `min_p`, `frequency_penalty`,
      `presence_penalty`, `repetition_penalty`, `logit_bias` (a dict of token id to number; -100
      bans), `seed` (replaces the program's).
    - `n=k`: the value is a list of k samples, and sample 0 enters the text.
    - `return_logprob`, with `logprob_start_len` (the prompt's, too, from there on),
      `top_logprobs_num` and `return_text_in_logprobs`: reported by `s.meta(name)`.
    - `choices=[…]` with `choices_method` makes it a `select`.
    - `regex`: the whole text matches it, as `re.fullmatch` has it (look-around, back-references and
      word boundaries are refused). `dtype=int|float|bool|str` stands for one of `ramet.lang.ir`,
      and `s.value(name)` is then of that type.
    - `json_schema` (a dict or JSON text): the text is a JSON document; `s.value(name)` is parsed.
    - `type`: a pydantic model, a dataclass, a TypedDict, an Enum, a Literal, `list[…]`, whatever
      pydantic knows. The text is JSON (`"red"` for an Enum, with its quotes), `s.value(name)` a
      validated value: `Colour.RED`.
    - `lark`, `ebnf`: a text of a grammar. `s.value(name)` is the `lark.Tree` of `lark`'s.
    - `structural_tags` (a dict or JSON text, SGLang's or xgrammar's): free text in which a trigger
      begins a region, such as a tool call. `s.value(name)` is a list of texts and of pairs (begin,
      content); a `schema` may be a type.
    - `strict=False`: what of a JSON Schema can't be enforced is checked at the end, instead of
      being refused. `whitespace="flexible"` allows blanks in JSON. `close_within_budget=False`
      lets `max_tokens` cut a document (`json_schema`, `type`). `jump_forward=False` samples also
      what the constraint forces.
    - A text that the constraint allows nothing more after is over; one cut at `max_tokens` has
      `finish_reason` "length". A `stop` ends the text only where what is left satisfies the
      constraint, and there it is allowed to come.
    - `priority`, `cache` and `cache_salt` replace the run's for this call; `deadline` is the
      seconds after which it ends with Cancelled if it isn't done.

    Raises InvalidArgument for a bad argument, GrammarError for a bad constraint, before any model
    call.
    """
    own = {"max_tokens": max_tokens, "min_tokens": min_tokens, "n": n, "stop": stop}
    return _gen(name, {**own, **options}, _call_site())


def gen_int(
    name: str | None = None,
    max_tokens: int | Literal["context"] | None = None,
    **options: Unpack[TypedGenOptions],
) -> Expr:
    """Generate an integer: `gen(name, dtype=int)`."""
    return _gen_typed(name, int, {"max_tokens": max_tokens, **options}, _call_site())


def gen_string(
    name: str | None = None,
    max_tokens: int | Literal["context"] | None = None,
    **options: Unpack[TypedGenOptions],
) -> Expr:
    """Generate a double-quoted string: `gen(name, dtype=str)`."""
    return _gen_typed(name, str, {"max_tokens": max_tokens, **options}, _call_site())


def select(
    name: str | None = None,
    choices: Sequence[str] | None = None,
    temperature: float = 0.0,
    choices_method: ChoicesMethod | str = token_length_normalized,
) -> Expr:
    """Pick the choice that the model finds the best continuation, and keep it as `name`.

    `choices_method` says what "best" means: `token_length_normalized` (the largest mean
    log-probability of a choice's tokens), `greedy_token_selection` (token by token, the likeliest),
    `unconditional_likelihood_normalized` (the mean, less what the tokens have without the prompt)
    or `exact_likelihood` (the probability of the whole choice and of ending there; gives
    `meta["probabilities"]`). A `temperature` above 0 samples, which only the last can. The choice
    "" stands for ending here. Raises InvalidArgument for no choices, duplicates, and bad arguments.
    """
    return _select(name, choices, temperature, choices_method, _call_site())


def special(text: str) -> Expr:
    """Text whose special tokens are special tokens, inside roles too."""
    return Text(plain_text(check_text("special", text)), special=True)


def system(content: object = None) -> Expr:
    """A system message with `content` (text, calls, or a sum of them)."""
    return role_block("system", content)


def user(content: object = None) -> Expr:
    """A user message with `content` (text, calls, or a sum of them)."""
    return role_block("user", content)


def assistant(content: object = None) -> Expr:
    """An assistant message with `content` (text, calls, or a sum of them)."""
    return role_block("assistant", content)


def system_begin() -> Expr:
    """The opening of a system message."""
    return RoleBegin("system")


def system_end() -> Expr:
    """The end of a system message."""
    return RoleEnd("system")


def user_begin() -> Expr:
    """The opening of a user message."""
    return RoleBegin("user")


def user_end() -> Expr:
    """The end of a user message."""
    return RoleEnd("user")


def assistant_begin() -> Expr:
    """The opening of an assistant message."""
    return RoleBegin("assistant")


def assistant_end() -> Expr:
    """The end of an assistant message."""
    return RoleEnd("assistant")


def image(path: object) -> NoReturn:
    """Not supported: raises UnsupportedFeature."""
    raise UnsupportedFeature(f"image({path!r}): no vision model is supported")


def video(path: object, num_frames: object = None) -> NoReturn:
    """Not supported: raises UnsupportedFeature."""
    raise UnsupportedFeature(f"video({path!r}): no vision model is supported")


def role_block(role: str, content: object = None) -> Expr:
    """A whole message of `role`; no content is the empty content."""
    inner = () if content is None else tuple(nodes_of(content))
    return Sum((RoleBegin(role), *inner, RoleEnd(role)))


def sampling_fields(given: Mapping[str, Any]) -> tuple[dict[str, Any], SamplingParams | None]:
    """Sampling arguments under their SamplingParams names, each checked, and all together.

    The latter is None where they contradict each other or a default: the run and the call may set
    one each, so that is judged where both are known. Raises InvalidArgument.
    """
    try:
        # The class belongs to the key: 1, 1.0 and True are equal, but not equally good.
        return _remembered(tuple([(key, value, value.__class__) for key, value in given.items()]))
    except TypeError:  # A list or a dict, which can't be a key.
        return _checked(given)


@functools.lru_cache(maxsize=4096)
def _remembered(
    given: tuple[tuple[str, Any, type], ...],
) -> tuple[dict[str, Any], SamplingParams | None]:
    """`_checked`, once for what a program's line gives again and again."""
    return _checked({key: value for key, value, _ in given})


def _checked(given: Mapping[str, Any]) -> tuple[dict[str, Any], SamplingParams | None]:
    fields: dict[str, Any] = {}
    for key, value in given.items():
        field = SHORT_NAMES.get(key, key)
        if field in fields:
            raise InvalidArgument(f"{field} is given twice (as {key!r} too)")
        fields[field] = value
    with contextlib.suppress(InvalidArgument):
        return fields, SamplingParams.build(fields)
    try:
        # Raises unless only a default is in the way.
        SamplingParams.build({"max_new_tokens": "context", "return_logprob": True, **fields})
    except InvalidArgument as error:
        message = str(error)
        for short, field in SHORT_NAMES.items():
            if short in given:  # The message speaks of the argument as it was given.
                message = message.replace(field, short)
        raise InvalidArgument(message) from None
    return fields, None


def check_name(name: object) -> None:
    """Raise InvalidArgument unless `name` can name a variable."""
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"name={name!r}: a variable's name is a str that is not empty")


def check_choices(choices: object) -> Sequence[str]:
    """`choices` if they are texts, at least one and none twice; raises InvalidArgument."""
    if not isinstance(choices, (list, tuple)) or not choices:
        raise InvalidArgument(f"choices={choices!r}: must be a list of at least one text")
    seen: dict[str, None] = {}
    for index, choice in enumerate(choices):
        if isinstance(choice, Expr):
            raise InvalidArgument(
                f'choices[{index}]={choice.brief()}: is no text; f"{{…}}" makes one of a value'
            )
        text = plain_text(check_text(f"choices[{index}]", choice))
        if text in seen:
            raise InvalidArgument(f"choices[{index}]={text!r}: is there twice")
        seen[text] = None
    return list(seen)


def _gen(name: str | None, options: Mapping[str, Any], site: str) -> Expr:
    unknown = options.keys() - _GEN_OPTIONS
    if unknown:
        known = ["name", "max_tokens", "min_tokens", "n", "stop", *GenOptions.__annotations__]
        near = difflib.get_close_matches(min(unknown), known, 1) or _ELSEWHERE.get(min(unknown), ())
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise InvalidArgument(
            f"gen() has no argument {min(unknown)!r}{hint}; it has {', '.join(known)}"
        )
    if name is not None:
        check_name(name)
    given = {key: value for key, value in options.items() if value is not None}
    chosen = [key for key in _EXCLUSIVE if key in given]
    if len(chosen) > 1:
        raise InvalidArgument(f"gen() takes at most one of {', '.join(chosen)}")
    if "choices" in given:
        return _gen_choices(name, given, site)
    if "choices_method" in given:
        raise InvalidArgument("choices_method needs choices")
    dtype = take_constraint(given)
    texts = given.pop("return_text_in_logprobs", True)
    if not isinstance(texts, bool):
        raise InvalidArgument(f"return_text_in_logprobs={texts!r}: must be True or False")
    return Gen(name, *sampling_fields(given), site, texts, dtype)


def _gen_typed(name: str | None, dtype: type, options: Mapping[str, Any], site: str) -> Expr:
    if "dtype" in options:
        raise InvalidArgument(f"dtype is given twice: gen_int and gen_string have it ({dtype})")
    return _gen(name, {**options, "dtype": dtype}, site)


def _gen_choices(name: str | None, given: dict[str, Any], site: str) -> Expr:
    idle = given.keys() - {"choices", "choices_method", "temperature"}
    if idle:
        raise InvalidArgument(f"gen(choices=…) has no use for {min(idle)}: it generates nothing")
    method = given.get("choices_method", token_length_normalized)
    return _select(name, given["choices"], given.get("temperature", 0.0), method, site)


def _select(
    name: str | None,
    choices: Sequence[str] | None,
    temperature: float,
    choices_method: ChoicesMethod | str,
    site: str,
) -> Expr:
    if name is not None:
        check_name(name)
    method = ChoicesMethod.of(choices_method)
    choices = check_choices(choices)
    number = isinstance(temperature, (int, float)) and not isinstance(temperature, bool)
    if not number or not math.isfinite(temperature) or temperature < 0:
        raise InvalidArgument(f"temperature={temperature!r}: must be a finite number of at least 0")
    if temperature > 0 and method is not ChoicesMethod.EXACT_LIKELIHOOD:
        raise InvalidArgument(
            f"temperature={temperature!r}: only choices_method=exact_likelihood gives "
            f"probabilities to sample from, {method.value} takes 0"
        )
    return Select(name, tuple(choices), method, float(temperature), site)


def _call_site() -> str:
    frame = sys._getframe(2)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
