"""Language: a set of texts, closed under and, or and not.

The trees that `search` makes of patterns and `numbers` of bounds; `spelling` writes them as
terminals of the mask engine, whose regular expressions have the same operators. What is left out or
simplified here is only what can be seen at once; emptiness in general is the engine's to say.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ramet.runtime.grammar.charset import EVERYTHING, Ranges


class _Hashed:
    """Trees share their parts, so a part is hashed once, not once for each tree that it is in."""

    __slots__ = ("_hash",)
    _hash: int

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            fields = [getattr(self, field.name) for field in dataclasses.fields(self)]  # type: ignore[arg-type]
            found = hash((type(self).__name__, *fields))
            object.__setattr__(self, "_hash", found)
            return found


@dataclasses.dataclass(frozen=True, slots=True)
class Chars(_Hashed):
    """One character of a set."""

    ranges: Ranges

    __hash__ = _Hashed.__hash__


@dataclasses.dataclass(frozen=True, slots=True)
class Words(_Hashed):
    """Some texts, in the order in which a schema has them; without any, the empty language."""

    texts: tuple[str, ...]

    __hash__ = _Hashed.__hash__


@dataclasses.dataclass(frozen=True, slots=True)
class Cat(_Hashed):
    """One after another."""

    parts: tuple[Language, ...]

    __hash__ = _Hashed.__hash__


@dataclasses.dataclass(frozen=True, slots=True)
class Any(_Hashed):
    """What at least one of some languages has."""

    options: tuple[Language, ...]

    __hash__ = _Hashed.__hash__


@dataclasses.dataclass(frozen=True, slots=True)
class All(_Hashed):
    """What each of some languages has."""

    parts: tuple[Language, ...]

    __hash__ = _Hashed.__hash__


@dataclasses.dataclass(frozen=True, slots=True)
class Not(_Hashed):
    """What a language lacks."""

    body: Language

    __hash__ = _Hashed.__hash__


@dataclasses.dataclass(frozen=True, slots=True)
class Repeat(_Hashed):
    """`low` to `high` times, or any number from `low` on."""

    body: Language
    low: int
    high: int | None

    __hash__ = _Hashed.__hash__


Language = Chars | Words | Cat | Any | All | Not | Repeat

NOTHING = Words(())
EMPTY = Words(("",))
CHARACTER = Chars(EVERYTHING)
EVERY = Repeat(CHARACTER, 0, None)
"""Every text."""


def cat(*parts: Language) -> Language:
    """One after another, flattened; nothing if a part is."""
    flat: list[Language] = []
    for part in parts:
        if part == NOTHING:
            return NOTHING
        if part == EMPTY or (part == EVERY and flat and flat[-1] == EVERY):
            continue
        flat.extend(part.parts if isinstance(part, Cat) else (part,))
    if not flat:
        return EMPTY
    return flat[0] if len(flat) == 1 else Cat(tuple(flat))


def any_of(options: Iterable[Language]) -> Language:
    """The union; words are put together."""
    kept: dict[Language, None] = {}
    texts: dict[str, None] = {}
    for option in options:
        for inner in option.options if isinstance(option, Any) else (option,):
            if inner == EVERY:
                return EVERY
            if isinstance(inner, Words):
                texts.update(dict.fromkeys(inner.texts))
            else:
                kept[inner] = None
    found = [*((Words(tuple(texts)),) if texts else ()), *kept]
    if not found:
        return NOTHING
    return found[0] if len(found) == 1 else Any(tuple(found))


def all_of(parts: Iterable[Language]) -> Language:
    """The intersection; words are compared with words."""
    kept: dict[Language, None] = {}
    words: list[str] | None = None
    barred: set[str] = set()
    for part in parts:
        for inner in part.parts if isinstance(part, All) else (part,):
            if isinstance(inner, Words):
                texts = set(inner.texts)
                words = list(inner.texts) if words is None else [w for w in words if w in texts]
            elif isinstance(inner, Not) and isinstance(inner.body, Words):
                barred.update(inner.body.texts)
                kept[inner] = None
            elif inner != EVERY:
                kept[inner] = None
    kept = _with_one_run(kept)
    if NOTHING in kept:
        return NOTHING
    if words is not None:
        words = [word for word in words if word not in barred]
        others = [part for part in kept if not (isinstance(part, Not) and _is_words(part.body))]
        kept = dict.fromkeys([Words(tuple(words)), *others])
        if not words:
            return NOTHING
    if any(Not(part) in kept for part in kept):
        return NOTHING
    if not kept:
        return EVERY
    return next(iter(kept)) if len(kept) == 1 else All(tuple(kept))


def _with_one_run(parts: dict[Language, None]) -> dict[Language, None]:
    """The same parts, with one run of characters for all bounds of a length."""
    runs = [part for part in parts if isinstance(part, Repeat) and part.body == CHARACTER]
    if len(runs) < 2:
        return parts
    low = max(run.low for run in runs)
    high = min((run.high for run in runs if run.high is not None), default=None)
    if high is not None and high < low:
        return {NOTHING: None}
    others = [part for part in parts if part not in runs]
    return dict.fromkeys([repeat(CHARACTER, low, high), *others])


def not_(body: Language) -> Language:
    """The complement."""
    if isinstance(body, Not):
        return body.body
    if body == EVERY:
        return NOTHING
    return EVERY if body == NOTHING else Not(body)


def repeat(body: Language, low: int, high: int | None) -> Language:
    """A repetition; of nothing or of no text it is simpler."""
    if high == 0 or body == EMPTY:
        return EMPTY
    if body == NOTHING:
        return EMPTY if low == 0 else NOTHING
    return body if low == high == 1 else Repeat(body, low, high)


def _is_words(language: Language) -> bool:
    return isinstance(language, Words)


def is_nullable(language: Language) -> bool:
    """Whether the empty text belongs to a language."""
    match language:
        case Chars():
            return False
        case Words():
            return "" in language.texts
        case Any():
            return any(map(is_nullable, language.options))
        case Cat() | All():
            return all(map(is_nullable, language.parts))
        case Not():
            return not is_nullable(language.body)
        case Repeat():
            return language.low == 0 or is_nullable(language.body)


def min_width(language: Language) -> int:
    """A length that no text of a language is below."""
    match language:
        case Chars():
            return 1
        case Words():
            return min(map(len, language.texts), default=0)
        case Any():
            return min(map(min_width, language.options))
        case Cat():
            return sum(map(min_width, language.parts))
        case All():
            return max(map(min_width, language.parts))
        case Not():
            return 0
        case Repeat():
            return language.low * min_width(language.body)


def num_positions(language: Language) -> int:
    """How many characters a language would have with all its counts written out."""
    match language:
        case Chars():
            return 1
        case Words():
            return sum(map(len, language.texts))
        case Any():
            return sum(map(num_positions, language.options))
        case Cat() | All():
            return sum(map(num_positions, language.parts))
        case Not():
            return num_positions(language.body)
        case Repeat():
            times = language.low + 1 if language.high is None else language.high
            return num_positions(language.body) * times


def is_larger(language: Language, limit: int) -> bool:
    """Whether a language is put together of more than so many languages, however often one is
    among them."""
    waiting = [language]
    count = 0
    while waiting and count <= limit:
        inner = waiting.pop()
        count += 1
        match inner:
            case Any():
                waiting += inner.options
            case Cat() | All():
                waiting += inner.parts
            case Not() | Repeat():
                waiting.append(inner.body)
    return count > limit
