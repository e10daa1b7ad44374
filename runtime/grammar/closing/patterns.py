"""Patterns and formats of JSON strings, as automata.

What they say is the front end's to tell (`json_schema.search`, `json_schema.formats`); here it only
becomes something to follow a string with.
"""

from __future__ import annotations

import functools

from ramet.runtime.grammar.closing.automaton import Automaton, TooLarge
from ramet.runtime.grammar.json_schema import language
from ramet.runtime.grammar.json_schema.formats import FORMATS
from ramet.runtime.grammar.json_schema.language import Language
from ramet.runtime.grammar.json_schema.search import BadPattern, Hard, search, whole
from ramet.runtime.grammar.pattern import EMPTY, Chars, Pattern, alt, cat, repeat

MAX_POSITIONS = 20_000
"""Characters a pattern may have with its counts written out, to be understood here."""

Automata = tuple[Automaton, ...] | None
"""Which all have to accept; None for what isn't understood here."""


@functools.lru_cache(maxsize=256)
def format_automata(name: str) -> Automata:
    """A format's strings; all strings for a format that is only an annotation."""
    return _automata(whole(FORMATS[name])) if name in FORMATS else ()


@functools.lru_cache(maxsize=256)
def search_automata(pattern: str) -> Automata:
    """The strings in which a `pattern` is found."""
    try:
        return _automata(search(pattern))
    except (BadPattern, Hard):
        return None


class _Foreign(Exception):
    """A language that has no pattern."""


def _automata(found: Language) -> Automata:
    parts = found.parts if isinstance(found, language.All) else (found,)
    if sum(map(language.num_positions, parts)) > MAX_POSITIONS:
        return None
    try:
        return tuple(Automaton(_pattern(part)) for part in parts)
    except (_Foreign, TooLarge, RecursionError):
        return None


def _pattern(found: Language) -> Pattern:
    match found:
        case language.Chars():
            return Chars(found.ranges)
        case language.Words():
            return alt(_word(text) for text in found.texts)
        case language.Cat():
            return cat(map(_pattern, found.parts))
        case language.Any():
            return alt(map(_pattern, found.options))
        case language.Repeat():
            return repeat(_pattern(found.body), found.low, found.high)
        case language.All() | language.Not():
            raise _Foreign


def _word(text: str) -> Pattern:
    if not text:
        return EMPTY
    return cat(Chars(((ord(character), ord(character)),)) for character in text)
