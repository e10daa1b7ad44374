"""Constraints as `gen` and `accepts` take them: which arguments there are and what they may be."""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ramet.lang.errors import InvalidArgument, UnsupportedFeature
from ramet.lang.typed import REGEXES
from ramet.runtime.grammar.front_ends import source_of
from ramet.runtime.grammar.spec import Constraint
from ramet.runtime.request import check_text, shown

if TYPE_CHECKING:
    from ramet.runtime.grammar.acceptance import Acceptance
    from ramet.runtime.tokenizer import Tokenizer

CONSTRAINTS: Final = (
    "regex",
    "json_schema",
    "ebnf",
    "lark",
    "structural_tags",
    "type",
    "dtype",
)
"""The arguments of which a call takes at most one."""

OPTIONS: Final = ("stop_regex", "strict", "whitespace", "close_within_budget", "jump_forward")
"""What goes with them."""

_TYPES: Final[Mapping[str, tuple[builtins.type, ...]]] = {
    "json_schema": (str, Mapping, bool),
    "ebnf": (str,),
    "lark": (str,),
    "structural_tags": (str, Mapping, Sequence),
}
_WHITESPACE: Final = ("compact", "flexible")
_DTYPES: Final[Mapping[Any, str]] = {int: "int", float: "float", bool: "bool", str: "str"}
_HONOURED: Final[Mapping[str, tuple[Any, ...]]] = {
    # What this version does anyway. A jump changes the speed, never the text.
    "strict": (True,),
    "whitespace": ("compact",),
    "close_within_budget": (False,),
    "jump_forward": (True, False),
}


def take_constraint(given: dict[str, Any], site: str) -> str | None:
    """Turn the arguments of `gen` that are about constraints into the field `constraint`.

    `given` are the arguments that aren't None; it is changed. Returns the name of the `dtype`, if
    there is one. Raises InvalidArgument for a bad argument, GrammarError for a bad regex,
    UnsupportedFeature for what this version doesn't enforce.
    """
    options = [option for option in OPTIONS if option in given and option != "stop_regex"]
    _take_options(given, site)
    name = next((key for key in CONSTRAINTS if key in given), None)
    if name is None:
        for option in options:
            raise InvalidArgument(f"{option} needs a constraint to go with")
        return None
    value = given.pop(name)
    dtype = None
    if name == "dtype":
        dtype = check_dtype(value)
        value = REGEXES[dtype]
    given["constraint"] = _constraint(
        name, value, f"gen({name}={shown(value)}) at {site}"
    ).to_wire()
    return dtype


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

    The text is read byte by byte, or as the tokens of a `tokenizer`. The answer is true or false,
    and says where the text went wrong (`position`, `reason`). Raises InvalidArgument unless exactly
    one constraint is given, GrammarError for a bad one, UnsupportedFeature for a kind that this
    version doesn't enforce.
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
    _check_flag("strict", strict)
    _check_whitespace(whitespace)
    if tokenizer is not None and not isinstance(tokenizer, Tokenizer):
        raise InvalidArgument(f"tokenizer={shown(tokenizer)}: must be a Tokenizer or None")
    ((name, value),) = named.items()
    if name == "dtype":
        value = REGEXES[check_dtype(value)]
    elif name == "choices":
        if not isinstance(value, (list, tuple)) or not value:
            raise InvalidArgument(f"choices={shown(value)}: must be a list of at least one text")
        texts = [check_text(f"choices[{index}]", choice) for index, choice in enumerate(value)]
        name, value = "regex", "|".join(map(re.escape, texts))
    return check_text_against(_constraint(name, value, f"accepts({name}=…)"), text, tokenizer)


def _constraint(name: str, value: Any, where: str) -> Constraint:
    if name in ("regex", "dtype"):
        constraint = Constraint("regex", value)
        source_of(constraint)
        return constraint
    allowed = _TYPES.get(name, (object,))
    if not isinstance(value, allowed):
        kinds = ", ".join(kind.__name__ for kind in allowed)
        raise InvalidArgument(f"{name}={shown(value)}: must be one of {kinds}")
    raise UnsupportedFeature(f"{where}: no backend of this version supports {name}")


def _take_options(given: dict[str, Any], site: str) -> None:
    for name in OPTIONS:
        if name not in given:
            continue
        value = given.pop(name)
        if name == "stop_regex":
            check_text(name, value)
        elif name == "whitespace":
            _check_whitespace(value)
        else:
            _check_flag(name, value)
        if value not in _HONOURED.get(name, ()):
            raise UnsupportedFeature(
                f"gen({name}={shown(value)}) at {site}: no backend of this version supports it"
            )


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name}={shown(value)}: must be True or False")


def _check_whitespace(value: object) -> None:
    if value not in _WHITESPACE:
        raise InvalidArgument(f"whitespace={shown(value)}: must be one of {', '.join(_WHITESPACE)}")
