"""Constraints as `gen` and `accepts` take them: which arguments there are and what they may be."""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ramet.lang.errors import InvalidArgument
from ramet.lang.typed import (
    JSON,
    REGEXES,
    Reader,
    TagsReader,
    TreeReader,
    TypeReader,
    type_reader,
)
from ramet.runtime.grammar.front_ends import source_of
from ramet.runtime.grammar.spec import WHITESPACE, Constraint
from ramet.runtime.request import check_text, shown

if TYPE_CHECKING:
    from ramet.runtime.grammar.acceptance import Acceptance
    from ramet.runtime.tokenizer import Tokenizer

CONSTRAINTS: Final[Sequence[str]] = (
    "regex",
    "json_schema",
    "ebnf",
    "lark",
    "structural_tags",
    "type",
    "dtype",
)
"""The arguments of which a call takes at most one."""

OPTIONS: Final[Sequence[str]] = (
    "strict",
    "whitespace",
    "close_within_budget",
    "jump_forward",
)
"""What goes with them."""

_DTYPES: Final[Mapping[Any, str]] = {int: "int", float: "float", bool: "bool", str: "str"}
_JSON: Final = ("json_schema", "type", "structural_tags")
_WITH: Final[Mapping[str, tuple[Any, Sequence[str]]]] = {
    "strict": (True, _JSON),
    "whitespace": ("compact", _JSON),
    "close_within_budget": (False, ("json_schema", "type")),
}
"""The value of an option that says what is so anyway, and the constraints that may have another."""


def take_constraint(given: dict[str, Any]) -> str | Reader | None:
    """Turn the arguments of `gen` that are about constraints into fields of SamplingParams.

    `given` are the arguments that aren't None; it is changed. Returns what reads the typed value of
    the call's text, if it has one: the name of a `dtype`, or a reader. Raises InvalidArgument for a
    bad argument, GrammarError for a bad constraint, UnsupportedFeature for what this version, or an
    installation without some package, can't do.
    """
    options: dict[str, Any] = {name: given.pop(name) for name in OPTIONS if name in given}
    _check_options(options)
    name = next((key for key in CONSTRAINTS if key in given), None)
    if name is None:
        for option in options:
            raise InvalidArgument(f"{option} needs a constraint to go with")
        return None
    for option, (usual, kinds) in _WITH.items():
        if options.get(option, usual) != usual and name not in kinds:
            raise InvalidArgument(
                f"{option}={shown(options[option])}: has no effect on {name}; it goes with "
                + ", ".join(kinds)
            )
    constraint, reader = _constraint(
        name, given.pop(name), options.get("strict", True), options.get("whitespace", "compact")
    )
    given["constraint"] = constraint.to_wire()
    if name in _WITH["close_within_budget"][1] and "close_within_budget" in options:
        given["close_within_budget"] = options["close_within_budget"]
    if "jump_forward" in options:
        given["jump_forward"] = options["jump_forward"]
    return reader


def check_dtype(value: object) -> str:
    """The name of a `dtype`: `int`, `float`, `bool` or `str`; raises InvalidArgument."""
    name = _DTYPES.get(value) if isinstance(value, builtins.type) else value
    if not isinstance(name, str) or name not in REGEXES:
        raise InvalidArgument(f"dtype={shown(value)}: must be int, float, bool, str, or its name")
    return name


def accepts(
    text: str,
    *,
    regex: str | None = None,
    json_schema: Any = None,
    ebnf: str | None = None,
    lark: str | None = None,
    structural_tags: Any = None,
    type: Any = None,
    dtype: builtins.type | str | None = None,
    choices: Sequence[str] | None = None,
    strict: bool = True,
    whitespace: str = "flexible",
    tokenizer: Tokenizer | None = None,
) -> Acceptance:
    """Whether a text satisfies a constraint, as the engine would have it; no model is needed.

    The text is read byte by byte, or as the tokens of a `tokenizer`. JSON may have blanks, unless
    `whitespace="compact"`. The answer is true or false, and says where the text went wrong
    (`position`, `reason`). Raises InvalidArgument unless exactly one constraint is given,
    GrammarError for a bad one, UnsupportedFeature where a package is missing.
    """
    # Loaded when first used: a program without it needs no tokenizer in its process.
    from ramet.runtime.grammar.acceptance import check_text_against
    from ramet.runtime.tokenizer import Tokenizer

    check_text("text", text)
    given = {
        "regex": regex,
        "json_schema": json_schema,
        "ebnf": ebnf,
        "lark": lark,
        "structural_tags": structural_tags,
        "type": type,
        "dtype": dtype,
        "choices": choices,
    }
    named = {name: value for name, value in given.items() if value is not None}
    if len(named) != 1:
        raise InvalidArgument(
            f"accepts() takes exactly one of {', '.join(given)}, and got {len(named)}"
        )
    _check_options({"strict": strict, "whitespace": whitespace})
    if tokenizer is not None and not isinstance(tokenizer, Tokenizer):
        raise InvalidArgument(f"tokenizer={shown(tokenizer)}: must be a Tokenizer or None")
    ((name, value),) = named.items()
    if name == "choices":
        if not isinstance(value, (list, tuple)) or not value:
            raise InvalidArgument(f"choices={shown(value)}: must be a list of at least one text")
        texts = [check_text(f"choices[{index}]", choice) for index, choice in enumerate(value)]
        name, value = "regex", "|".join(map(re.escape, texts))
    constraint, _ = _constraint(name, value, strict, whitespace)
    return check_text_against(constraint, text, tokenizer)


def _constraint(
    name: str, value: Any, strict: bool, whitespace: str
) -> tuple[Constraint, str | Reader | None]:
    """What an argument asks for, checked by its front end, and what reads its texts."""
    reader: str | Reader | None = None
    types: dict[str, TypeReader] = {}
    if name == "dtype":
        reader = check_dtype(value)
        constraint = Constraint("regex", REGEXES[reader])
    elif name == "type" or (name == "json_schema" and hasattr(value, "model_json_schema")):
        reader = type_reader(name, value)
        constraint = Constraint("json_schema", reader.schema_text, strict, whitespace)
    elif name == "json_schema":
        reader = JSON
        constraint = Constraint(name, _json_text(name, value), strict, whitespace)
    elif name == "structural_tags":
        tags = _with_schemas(value, types)
        constraint = Constraint(name, _json_text(name, tags), strict, whitespace)
        reader = TagsReader(constraint, types)
    else:
        constraint = Constraint(name, value)
        reader = TreeReader(constraint.text) if name == "lark" else None
    source_of(constraint)
    return constraint, reader


def _json_text(name: str, value: Any) -> str:
    """JSON as its text, which keeps the order of keys."""
    if isinstance(value, str):
        return value
    if not isinstance(value, (Mapping, bool)) or (name != "json_schema" and value is True):
        kinds = "a dict, JSON text, or a bool" if name == "json_schema" else "a dict or JSON text"
        hint = "; a type goes with type=" if isinstance(value, type) else ""
        raise InvalidArgument(f"{name}={shown(value)}: must be {kinds}{hint}")
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_as_dict)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"{name}={shown(value)}: is no JSON: {error}") from None


def _as_dict(value: Any) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{shown(value)} of type {type(value).__name__} is none of JSON's types")


def _with_schemas(tags: Any, types: dict[str, TypeReader], place: str = "", depth: int = 0) -> Any:
    """Structural tags with types replaced by their schemas; `types` gets what reads them."""
    if depth > 100:
        raise InvalidArgument(f"structural_tags: {place}: nested too deeply")
    if hasattr(tags, "model_dump") and not isinstance(tags, type):  # xgrammar's own classes.
        tags = tags.model_dump(by_alias=True)
    if isinstance(tags, Mapping):
        found = {}
        for key, value in tags.items():
            here = f"{place}.{key}" if place else str(key)
            is_schema = key in ("schema", "json_schema")
            if is_schema and not isinstance(value, (str, bool, Mapping)):
                types[here] = type_reader(f"structural_tags: {here}", value)
                value = json.loads(types[here].schema_text)
            elif not is_schema:
                value = _with_schemas(value, types, here, depth + 1)
            found[key] = value
        return found
    if isinstance(tags, (list, tuple)):
        return [
            _with_schemas(one, types, f"{place}[{index}]", depth + 1)
            for index, one in enumerate(tags)
        ]
    return tags


def _check_options(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if name == "whitespace":
            if value not in WHITESPACE:
                raise InvalidArgument(
                    f"whitespace={shown(value)}: must be one of {', '.join(WHITESPACE)}"
                )
        elif not isinstance(value, bool):
            raise InvalidArgument(f"{name}={shown(value)}: must be True or False")
