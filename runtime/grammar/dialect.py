"""The dialect of `regex=`: Python's, as `re.fullmatch` understands it, less what isn't regular.

Python's own parser reads the text, so there is no second opinion on what it says. Supported:

- literals, escapes, classes, `.`, groups (capturing, named or not), `|`, comments;
- `?`, `*`, `+`, `{m,n}`, and the lazy forms, which accept the same texts;
- `\\d`, `\\w`, `\\s` in their Unicode meaning, as for any `str` pattern, or ASCII under `(?a)`;
- the flags `i`, `s`, `m`, `a`, `u`, `x`, for the whole or for a group;
- `^` and `\\A` where nothing can stand before them, `$` and `\\Z` where nothing can follow: there
  they say what `fullmatch` says anyway.

Refused with `GrammarError`, naming the construct and its position: look-ahead and look-behind,
back-references and conditions, word boundaries, atomic groups and possessive quantifiers, anchors
elsewhere, what Python itself refuses, what no text matches, and what is too large.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, NoReturn

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar import charset
from ramet.runtime.grammar.pattern import (
    EMPTY,
    NOWHERE,
    Chars,
    Pattern,
    alt,
    cat,
    num_positions,
    repeat,
)

MAX_DEPTH = 100
"""Groups within groups."""
MAX_POSITIONS = 250_000
"""Characters that a pattern may have with all its counts written out."""

_ESCAPES = {
    sre.CATEGORY_DIGIT: r"\d",
    sre.CATEGORY_NOT_DIGIT: r"\D",
    sre.CATEGORY_SPACE: r"\s",
    sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w",
    sre.CATEGORY_NOT_WORD: r"\W",
}
_ASCII, _DOTALL, _IGNORECASE, _UNICODE = (
    int(flag) for flag in (re.ASCII, re.DOTALL, re.IGNORECASE, re.UNICODE)
)
"""As numbers, which are an order of magnitude faster to combine."""
_STARTS = (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING)
_ENDS = (sre.AT_END, sre.AT_END_STRING)
_REFUSED: dict[str, tuple[str, str]] = {
    "ASSERT": ("look-around", r"\(\?<?="),
    "ASSERT_NOT": ("look-around", r"\(\?<?!"),
    "GROUPREF": ("a back-reference", r"\\[1-9]|\(\?P="),
    "GROUPREF_EXISTS": ("a condition", r"\(\?\("),
    "ATOMIC_GROUP": ("an atomic group", r"\(\?>"),
    "POSSESSIVE_REPEAT": ("a possessive quantifier", r"[*+?}]\+"),
    "AT_BOUNDARY": ("a word boundary", r"\\b"),
    "AT_NON_BOUNDARY": ("a word boundary", r"\\B"),
}
"""What can't be enforced: how it is called, and how it is written."""

_TOKEN = re.compile(
    r"""\[\^?\]?(?:\\.|[^\]\\])*\]   # a class
      | \(\?\#[^)]*\)                # a comment
      | \\.                          # an escape
      | \(\?P[=<>] | \(\?<?[=!] | \(\?.   # how a group begins
      | [*+?}]\+                     # a possessive quantifier
      | .""",
    re.VERBOSE | re.DOTALL,
)


@functools.lru_cache(maxsize=64)
def parse(text: str) -> Pattern:
    """The language of a regex; raises GrammarError for one outside of the dialect."""
    try:
        tree = _parser.parse(text)
    except re.error as error:
        place = "" if error.pos is None else f" at position {error.pos}"
        raise GrammarError(f"regex={_shown(text)}: {error.msg}{place}") from None
    except (OverflowError, RecursionError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise GrammarError(f"regex={_shown(text)}: {why}") from None
    pattern = _Reader(text).read(tree)
    if pattern == NOWHERE:
        raise GrammarError(f"regex={_shown(text)}: no text matches it")
    size = num_positions(pattern)
    if size > MAX_POSITIONS:
        raise GrammarError(
            f"regex={_shown(text)}: too large: with its counts written out it has {size:,} "
            f"characters, and at most {MAX_POSITIONS:,} are supported"
        )
    return pattern


def begins_anchored(text: str) -> bool:
    """Whether a regex of the dialect has an anchor where a text begins."""
    pending = [_parser.parse(text)]
    while pending:
        items = pending.pop()
        if isinstance(items, (_parser.SubPattern, list, tuple)):
            if len(items) == 2 and items[0] is sre.AT and items[1] in _STARTS:
                return True
            pending.extend(items)
    return False


class _Reader:
    """From Python's parse tree to a Pattern, on the way refusing what can't be one."""

    def __init__(self, text: str, *, locate: bool = True) -> None:
        self._text = text
        self._locate = locate
        self._state: Any = None

    def read(self, tree: Any) -> Pattern:
        """The whole tree's language."""
        self._state = tree.state
        return self._sequence(tree, int(tree.state.flags), True, True, 0)

    def _sequence(self, items: Any, flags: int, first: bool, last: bool, depth: int) -> Pattern:
        """`first`, `last`: whether this begins, or ends, the text on every way through it."""
        if depth > MAX_DEPTH:
            raise GrammarError(
                f"regex={_shown(self._text)}: groups are nested deeper than {MAX_DEPTH}"
            )
        items = list(items)
        ends = [False] * len(items)
        for i in reversed(range(len(items))):
            ends[i] = last
            last = last and self._is_empty(items[i])
        parts: list[Pattern] = []
        for item, at_end in zip(items, ends, strict=True):
            parts.append(self._item(item, flags, first, at_end, depth))
            first = first and self._is_empty(item)
        return cat(parts)

    def _is_empty(self, item: Any) -> bool:
        """Whether an item never takes a character."""
        return bool(_parser.SubPattern(self._state, [item]).getwidth()[1] == 0)

    def _item(self, item: Any, flags: int, first: bool, last: bool, depth: int) -> Pattern:
        op, value = item
        if op in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
            return Chars(characters(op, value, flags))
        if op is sre.BRANCH:
            return alt(self._sequence(s, flags, first, last, depth + 1) for s in value[1])
        if op is sre.SUBPATTERN:
            _, added, removed, inner = value
            # `a` and `u` exclude each other.
            kept = flags & ~(_ASCII | _UNICODE) if added & (_ASCII | _UNICODE) else flags
            return self._sequence(inner, (kept | added) & ~removed, first, last, depth + 1)
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            low, high, inner = value
            once = high in (0, 1)
            body = self._sequence(inner, flags, first and once, last and once, depth + 1)
            return repeat(body, int(low), None if high is sre.MAXREPEAT else int(high))
        if op is sre.AT and ((first and value in _STARTS) or (last and value in _ENDS)):
            return EMPTY
        return self._refuse(value if op is sre.AT else op)

    def _refuse(self, what: Any) -> NoReturn:
        if str(what) in _REFUSED:  # By name: equal numbers mean different things.
            called, written = _REFUSED[str(what)]
            position = next(
                (at for at, token in _tokens(self._text) if re.match(written, token)), None
            )
        else:
            called = "an anchor within the text"
            position = self._misplaced_anchor() if self._locate else None
        place = "" if position is None else f" {self._construct(position)} at position {position}"
        raise GrammarError(
            f"regex={_shown(self._text)}: {called}{place} is not supported: a constraint is a "
            "regular expression that the whole text has to match"
        )

    def _construct(self, position: int) -> str:
        return next(token for at, token in _tokens(self._text) if at == position)

    def _misplaced_anchor(self) -> int | None:
        """The first anchor that is refused when all the others are gone."""
        anchors = [(at, token) for at, token in _tokens(self._text) if token in _ANCHORS]
        for position, _ in anchors[:100]:
            text = self._text
            for at, token in reversed(anchors):
                if at != position:
                    text = f"{text[:at]}(?:){text[at + len(token) :]}"
            try:
                _Reader(text, locate=False).read(_parser.parse(text))
            except GrammarError:
                return position
            except re.error:
                break
        return anchors[0][0] if anchors else None


_ANCHORS = ("^", "$", r"\A", r"\Z")


def _tokens(text: str) -> Iterator[tuple[int, str]]:
    """The pieces of a regex with their positions, to find a construct by how it is written."""
    for match in _TOKEN.finditer(text):
        yield match.start(), match.group()


def characters(op: Any, value: Any, flags: int) -> charset.Ranges:
    """What a literal, a class or the dot matches."""
    if op is sre.ANY:
        return charset.EVERYTHING if flags & _DOTALL else charset.complement(((10, 10),))
    if op is sre.LITERAL and not flags & _IGNORECASE:
        return charset.union(((value, value),))
    items = value if op is sre.IN else [(sre.LITERAL, value)]
    negated = op is sre.NOT_LITERAL or items[0][0] is sre.NEGATE
    if items[0][0] is sre.NEGATE:
        items = items[1:]
    return _class(tuple(items), negated, flags & (_ASCII | _IGNORECASE | _UNICODE))


@functools.lru_cache(maxsize=1024)
def _class(items: tuple[tuple[Any, Any], ...], negated: bool, flags: int) -> charset.Ranges:
    kind = flags & ~_IGNORECASE
    plain = charset.union(*(_plain(item, kind) for item in items))
    if negated:
        plain = charset.complement(plain)
    if not flags & _IGNORECASE:
        return plain
    written = "".join(_written(item) for item in items)
    folded = charset.folded(f"[{'^' if negated else ''}{written}]", kind)
    return charset.union(charset.difference(plain, charset.cased()), folded)


def _plain(item: tuple[Any, Any], kind: int) -> Sequence[tuple[int, int]]:
    op, value = item
    if op is sre.CATEGORY:
        return charset.category(_ESCAPES[value], kind)
    return (value,) if op is sre.RANGE else ((value, value),)


def _written(item: tuple[Any, Any]) -> str:
    """A class item as text again, for `re` to say what it matches under `(?i)`."""
    op, value = item
    if op is sre.CATEGORY:
        return _ESCAPES[value]
    first, last = value if op is sre.RANGE else (value, value)
    return f"\\U{first:08x}-\\U{last:08x}"


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 200 else f"{text[:199]!r}…"
