"""Typed values: from the text of a `gen(dtype=…)` to the value that `s.value(name)` gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from ramet.lang.errors import ProgramError
from ramet.lang.ir import REGEX_BOOL, REGEX_FLOAT, REGEX_INT, REGEX_STR

REGEXES: Final[Mapping[str, str]] = {
    "int": REGEX_INT,
    "float": REGEX_FLOAT,
    "bool": REGEX_BOOL,
    "str": REGEX_STR,
}
"""The constraint that each `dtype` stands for."""

_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "int": int,
    "float": float,
    "bool": "True".__eq__,
    "str": lambda text: text[1:-1],
}


def typed_value(kind: str, text: str) -> Any:
    """The value of `kind` (`int`, `float`, `bool`, `str`) that `text` spells; strings lose their
    quotes.

    Raises ProgramError with the text for one that is no whole value, as when the call was cut at
    its limit of tokens.
    """
    stripped = text.strip(" \n")
    if not re.fullmatch(REGEXES[kind], stripped):
        raise ProgramError(
            f"{text!r} is no whole {kind}: the call was cut at max_tokens, or nothing kept it to "
            f"dtype={kind}"
        )
    return _READERS[kind](stripped)
