"""The JSON text of a schema as values: bounded, without NaN and without ambiguous objects.

Numbers with a point or an exponent become `Decimal`, so that bounds are what the text says.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, Final, NoReturn

from ramet.runtime.errors import GrammarError

MAX_DEPTH: Final = 128
"""Objects and arrays within one another in the text of a schema."""
MAX_BYTES: Final = 1024 * 1024
"""Longest text of a schema that is read at all."""
MAX_DIGITS: Final = 300
"""Digits of a number, before and after its point, with its exponent written out."""

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")


def refuse(pointer: str, why: str) -> NoReturn:
    """Raise GrammarError for what stands at `pointer` in a schema."""
    place = pointer if len(pointer) <= 200 else f"{pointer[:199]}…"
    raise GrammarError(f"json_schema: at {place or 'the root'}: {why}")


def step(pointer: str, *names: object) -> str:
    """A JSON pointer, longer by some names."""
    return pointer + "".join(
        "/" + str(name).replace("~", "~0").replace("/", "~1") for name in names
    )


def parse(text: str) -> Any:
    """The value of a JSON text; raises GrammarError for one that isn't JSON or isn't one value."""
    if len(text) > MAX_BYTES:
        raise GrammarError(
            f"json_schema: too large: {len(text):,} characters; at most {MAX_BYTES:,} are read"
        )
    depth = deepest = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    if deepest > MAX_DEPTH:
        raise GrammarError(
            f"json_schema: nested too deep: {deepest:,} levels; at most {MAX_DEPTH} are read"
        )
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_decimal,
            parse_constant=_constant,
        )
    except json.JSONDecodeError as error:
        raise GrammarError(
            f"json_schema: the schema isn't JSON: {error.msg} at position {error.pos}"
        ) from None
    _check_strings(value, "")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise GrammarError(f"json_schema: the key {twice!r:.200} stands twice in one object")
    return value


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        _too_long(digits)
    return int(digits)


def _decimal(digits: str) -> Decimal:
    value = Decimal(digits)
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    if value and (abs(value.adjusted()) > MAX_DIGITS or abs(exponent) > MAX_DIGITS):
        _too_long(digits)
    return value if value else Decimal(0)


def _too_long(digits: str) -> NoReturn:
    raise GrammarError(
        f"json_schema: the number {digits:.40} has too many digits: at most {MAX_DIGITS}"
    )


def _constant(name: str) -> NoReturn:
    raise GrammarError(f"json_schema: the schema isn't JSON: {name} is no JSON number")


def _check_strings(value: Any, pointer: str) -> None:
    """Raise GrammarError for a lone surrogate, which no text contains."""
    waiting = [(value, pointer)]
    while waiting:
        value, pointer = waiting.pop()
        found: list[tuple[object, Any]] = []
        if isinstance(value, dict):
            found = list(value.items())
        elif isinstance(value, list):
            found = list(enumerate(value))
        elif isinstance(value, str) and not _is_text(value):
            refuse(pointer, f"{value!r:.200} has a lone surrogate, which no text contains")
        for name, part in found:
            if isinstance(name, str) and not _is_text(name):
                refuse(pointer, f"the key {name!r:.200} has a lone surrogate")
            waiting.append((part, step(pointer, name)))


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
