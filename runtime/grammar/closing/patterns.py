"""Patterns and formats of JSON strings, as automata."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar import dialect
from ramet.runtime.grammar.charset import EVERYTHING
from ramet.runtime.grammar.closing.automaton import Automaton, TooLarge
from ramet.runtime.grammar.pattern import Chars, alt, cat, num_positions, repeat

MAX_POSITIONS = 20_000
"""Characters a pattern may have with its counts written out, to be understood here."""

_HEX = "[0-9a-fA-F]"
_DATE = (
    r"[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-9]))"
)
_TIME = (
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\.[0-9]+)?"
    r"(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_BYTE = r"(?:[0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])"
_IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_ATOM = r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+"
_H16 = rf"{_HEX}{{1,4}}"
_LAST = rf"(?:{_H16}:{_H16}|{_IPV4})"
_PCHAR = rf"(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|%{_HEX}{{2}})"
_AUTHORITY = r"(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2}|\[[0-9a-fA-F:.]+\])*"
_IPV6 = "|".join(
    [rf"(?:{_H16}:){{6}}{_LAST}", rf"::(?:{_H16}:){{5}}{_LAST}"]
    + [rf"(?:(?:{_H16}:){{0,{n}}}{_H16})?::(?:{_H16}:){{{4 - n}}}{_LAST}" for n in range(5)]
    + [rf"(?:(?:{_H16}:){{0,5}}{_H16})?::{_H16}", rf"(?:(?:{_H16}:){{0,6}}{_H16})?::"]
)

FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": rf"{_DATE}[tT]{_TIME}",
    "duration": (
        r"P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
        r"(?:T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))?"
        r"|T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))"
    ),
    "email": rf"{_ATOM}(?:\.{_ATOM})*@(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
    rf"(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[{_IPV4}\])",
    "hostname": rf"{_LABEL}(?:\.{_LABEL})*",
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uuid": rf"{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}",
    "uri": (
        rf"[a-zA-Z][a-zA-Z0-9+.-]*:(?://{_AUTHORITY}(?:/{_PCHAR}*)*|/(?:{_PCHAR}+(?:/{_PCHAR}*)*)?"
        rf"|{_PCHAR}+(?:/{_PCHAR}*)*)?(?:\?(?:{_PCHAR}|[/?])*)?(?:\#(?:{_PCHAR}|[/?])*)?"
    ),
}
"""By name, a regex; by the standards that JSON Schema names, of what is usual."""

_ANYTHING = repeat(Chars(EVERYTHING), 0, None)


@functools.lru_cache(maxsize=256)
def format_automaton(name: str) -> Automaton | None:
    """A format's strings; None for a format that isn't known here."""
    regex = FORMATS.get(name)
    return None if regex is None else Automaton(dialect.parse(regex))


@functools.lru_cache(maxsize=256)
def search_automaton(pattern: str) -> Automaton | None:
    """The strings in which a `pattern` is found; None for one that isn't understood here."""
    options = []
    try:
        for option in _options(pattern):
            first, last = option.startswith("^"), _ends_anchored(option)
            body = option[first : len(option) - last]
            parts = [dialect.parse(f"(?a:{body})")]
            options.append(
                cat(([] if first else [_ANYTHING]) + parts + ([] if last else [_ANYTHING]))
            )
        whole = alt(options)
        return Automaton(whole) if num_positions(whole) <= MAX_POSITIONS else None
    except (GrammarError, TooLarge, RecursionError):
        return None


_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)


def _options(pattern: str) -> Iterator[str]:
    """The alternatives of a regex, and of a group that is all of it."""
    pieces = _PIECE.findall(pattern)
    depth = start = 0
    for at, piece in enumerate([*pieces, "|"]):
        if piece == "|" and depth == 0:
            yield "".join(pieces[start:at])
            start = at + 1
        depth += (piece == "(") - (piece == ")")
    if depth:
        raise GrammarError(f"pattern={pattern!r:.200}: its groups are not closed")


def _ends_anchored(option: str) -> bool:
    pieces = _PIECE.findall(option)
    return bool(pieces) and pieces[-1] == "$"
