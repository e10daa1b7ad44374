"""Reading: what schemas demand of one kind of value, with every `not` pushed to the leaves.

A `Literal` is a schema and whether it must hold. Of strings and numbers, literals together are one
`Language`; of arrays and objects they are alternatives, each a list of `Atom`s that must all hold.
`shapes` knows the atoms. Nothing is approximated: what has no exact form raises `Unsupported`,
unless it was dropped beforehand; then it demands nothing, under a `not` as well as outside.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.json_schema import shapes
from ramet.runtime.grammar.json_schema.decimals import MAX_RUN, Decimals, spellings
from ramet.runtime.grammar.json_schema.formats import FORMATS
from ramet.runtime.grammar.json_schema.language import (
    CHARACTER,
    EVERY,
    NOTHING,
    Language,
    Words,
    all_of,
    any_of,
    is_larger,
    not_,
    repeat,
)
from ramet.runtime.grammar.json_schema.normal import Schema
from ramet.runtime.grammar.json_schema.search import BadPattern, Hard, search, whole
from ramet.runtime.grammar.json_schema.text import refuse, step
from ramet.runtime.grammar.json_schema.trees import (
    ALWAYS,
    NEVER,
    Tree,
    all_trees,
    any_trees,
    atom,
)
from ramet.runtime.grammar.json_schema.values import CannotTell, Judge, is_number
from ramet.runtime.grammar.patience import check

MAX_STEPS: Final = 400_000
"""Keywords that are read, counted as often as they are, before a schema is too complex."""

MAX_SIZE: Final = 8_000
"""Languages that one is put together of: a `oneOf` has twice those of each of its schemas."""
MAX_LISTED: Final = 1_000
"""Multiples of a step that are listed."""

Literal = tuple[Schema, bool]
"""A schema, and whether it must hold or must not."""


class Unsupported(Exception):
    """A keyword that has no exact form here."""

    def __init__(self, schema: Schema, keyword: str, why: str) -> None:
        super().__init__(why)
        self.pointer, self.keyword, self.why = schema.pointer, keyword, why


class _NeedsPlain(Exception):
    """A number's language can't be told where exponents are allowed."""


@dataclasses.dataclass(frozen=True)
class _Algebra:
    """How demands on one kind of value are put together."""

    every: Any
    nothing: Any
    all_of: Callable[[Iterable[Any]], Any]
    any_of: Callable[[Iterable[Any]], Any]
    not_: Callable[[Any], Any] | None = None


_LANGUAGES: Final = _Algebra(EVERY, NOTHING, all_of, any_of, not_)
_TREES: Final = _Algebra(ALWAYS, NEVER, all_trees, any_trees)


class Reader:
    """Reads the schemas of one text."""

    def __init__(
        self, dropped: set[tuple[str, str]], are_apart: Callable[[Literal, Literal], bool]
    ) -> None:
        self._dropped = dropped
        self._are_apart = are_apart
        self._steps = [0]
        self._known: dict[tuple[int, bool, str, bool], Any] = {}
        self._open: set[tuple[int, bool, str]] = set()
        self._decimals = Decimals(True)
        self.made = shapes.Made()

    def fork(self) -> Reader:
        """One that reads while this one does; together they take MAX_STEPS at most."""
        reader = Reader(self._dropped, self._are_apart)
        reader._steps, reader.made = self._steps, self.made
        return reader

    def strings(self, literals: Sequence[Literal]) -> Language:
        """The strings that satisfy some literals."""
        return all_of(self._read(schema, holds, "string") for schema, holds in literals)

    def numbers(self, literals: Sequence[Literal]) -> Language:
        """The numbers that satisfy some literals, as texts."""
        for exponents in (True, False):
            self._decimals = Decimals(exponents)
            self._open.clear()
            try:
                found = [self._read(schema, holds, "number") for schema, holds in literals]
                inner = all_of(found)
                return NOTHING if inner == NOTHING else all_of((self._decimals.every, inner))
            except _NeedsPlain:
                continue
        raise AssertionError("plain decimals are always enough")

    def tree(self, literals: Sequence[Literal], kind: str) -> Tree:
        """What arrays or objects that satisfy some literals are like."""
        return all_trees(self._read(schema, holds, kind) for schema, holds in literals)

    def _read(self, schema: Schema, holds: bool, kind: str) -> Any:
        algebra = _LANGUAGES if kind in ("string", "number") else _TREES
        if schema.always is not None:
            return algebra.every if schema.always == holds else algebra.nothing
        known = (id(schema), holds, kind, self._decimals.exponents)
        if known in self._known:
            return self._known[known]
        key = (id(schema), holds, kind)
        if key in self._open:
            refuse(schema.pointer, "refers to itself without end")
        self._open.add(key)
        parts = [
            self._word(schema, word, given, holds, kind, algebra)
            for word, given in schema.keywords.items()
        ]
        self._open.discard(key)
        found = algebra.all_of(parts) if holds else algebra.any_of(parts)
        if algebra is _LANGUAGES and is_larger(found, MAX_SIZE):
            raise self._too_large(schema)
        self._known[known] = found
        return found

    def _too_large(self, schema: Schema) -> Exception:
        """For a schema whose strings or numbers take more than MAX_SIZE to say."""
        words = ("oneOf", "anyOf", "allOf", "if", "not", "pattern", "enum", "multipleOf")
        for word in words:
            if word in schema.keywords and (schema.pointer, word) not in self._dropped:
                return Unsupported(schema, word, "its combinations are too many to follow")
        return GrammarError("json_schema: too complex: its combinations are too many to follow")

    def _word(
        self, schema: Schema, word: str, given: Any, holds: bool, kind: str, algebra: _Algebra
    ) -> Any:
        check()
        self._steps[0] += 1
        if self._steps[0] > MAX_STEPS:
            raise GrammarError("json_schema: too complex: its combinations are too many to follow")
        if (schema.pointer, word) in self._dropped:
            return algebra.every
        neutral = algebra.every if holds else algebra.nothing
        strong, weak = algebra.all_of, algebra.any_of
        if not holds:
            strong, weak = weak, strong
        match word:
            case "$ref":
                return self._read(given, holds, kind)
            case "allOf":
                return strong([self._read(part, holds, kind) for part in given])
            case "anyOf":
                return weak([self._read(part, holds, kind) for part in given])
            case "not":
                return self._read(given, not holds, kind)
            case "oneOf":
                return self._one(given, holds, kind, algebra)
            case "dependentSchemas" if kind == "object":
                return self._dependent(given, holds)
            case "if":
                return self._if(schema, given, holds, kind, algebra)
            case "$dynamicRef" | "$recursiveRef":
                raise Unsupported(schema, word, "what it means depends on the way there")
            case "type":
                return self._type(given, holds, kind, algebra)
            case "enum" | "const":
                return self._values(schema, word, given, holds, kind)
        if kind == "string" and word in ("minLength", "maxLength", "pattern", "format"):
            found = self._string(schema, word, given)
            return neutral if found is None else found if holds else not_(found)
        if kind == "number" and word in _BOUNDS:
            return self._bound(schema, word, Decimal(given), holds)
        if kind in ("array", "object"):
            return shapes.read(self.made, schema, word, given, holds, kind)
        return neutral

    def _one(self, options: list[Schema], holds: bool, kind: str, algebra: _Algebra) -> Any:
        """Exactly one of some schemas, or not exactly one."""
        apart = {
            (i, j): self._are_apart((options[i], True), (options[j], True))
            for i in range(len(options))
            for j in range(i)
        }
        if holds:
            return algebra.any_of(
                algebra.all_of(
                    [self._read(option, True, kind)]
                    + [
                        self._read(other, False, kind)
                        for j, other in enumerate(options)
                        if j != i and not apart[max(i, j), min(i, j)]
                    ]
                )
                for i, option in enumerate(options)
            )
        none = algebra.all_of(self._read(option, False, kind) for option in options)
        pairs = [
            algebra.all_of((self._read(options[i], True, kind), self._read(options[j], True, kind)))
            for (i, j), are_apart in apart.items()
            if not are_apart
        ]
        return algebra.any_of((none, *pairs))

    def _dependent(self, given: dict[str, Schema], holds: bool) -> Tree:
        if holds:
            return all_trees(
                any_trees((atom("lacks", name), self._read(part, True, "object")))
                for name, part in given.items()
            )
        return any_trees(
            all_trees((atom("has", name), self._read(part, False, "object")))
            for name, part in given.items()
        )

    def _if(
        self, schema: Schema, condition: Schema, holds: bool, kind: str, algebra: _Algebra
    ) -> Any:
        cases = []
        for word, case in (("then", True), ("else", False)):
            branch = schema.keywords.get(word)
            if branch is not None:
                then = self._read(branch, holds, kind)
            else:
                then = algebra.every if holds else algebra.nothing
            cases.append(algebra.all_of((self._read(condition, case, kind), then)))
        return algebra.any_of(cases)

    def _type(self, names: tuple[str, ...], holds: bool, kind: str, algebra: _Algebra) -> Any:
        if kind == "number" and "integer" in names and "number" not in names:
            if holds:
                return self._decimals.integers
            if self._decimals.exponents:
                raise _NeedsPlain
            return self._other(self._decimals.whole)
        return algebra.every if (kind in names) == holds else algebra.nothing

    def _values(self, schema: Schema, word: str, given: Any, holds: bool, kind: str) -> Any:
        values = given if word == "enum" else [given]
        if kind == "string":
            words = Words(tuple(dict.fromkeys(v for v in values if isinstance(v, str))))
            return words if holds else not_(words)
        if kind == "number":
            numbers = [value for value in values if is_number(value)]
            if holds:
                return any_of(map(spellings, numbers))
            if numbers and self._decimals.exponents:
                raise _NeedsPlain
            same_numbers = any_of(self._decimals.equal(Decimal(value)) for value in numbers)
            return self._other(same_numbers)
        wanted = list if kind == "array" else dict
        same = [
            self._read(self.made.constant(value, schema, word, at), holds, kind)
            for at, value in enumerate(values)
            if isinstance(value, wanted)
        ]
        return any_trees(same) if holds else all_trees(same)

    def _string(self, schema: Schema, word: str, given: Any) -> Language | None:
        """The strings that satisfy a keyword; None if it says nothing."""
        if word == "minLength":
            return repeat(CHARACTER, given, None)
        if word == "maxLength":
            return repeat(CHARACTER, 0, given)
        if word == "format":
            return whole(FORMATS[given]) if given in FORMATS else None
        try:
            return search(given)
        except BadPattern as error:
            refuse(step(schema.pointer, word), f"{given!r:.200}: {error}")
        except Hard as error:
            raise Unsupported(schema, word, f"{given!r:.200}: {error}") from None

    def _other(self, numbers: Language) -> Language:
        """The numbers that a language lacks."""
        return all_of((self._decimals.every, not_(numbers)))

    def _bound(self, schema: Schema, word: str, given: Decimal, holds: bool) -> Language:
        decimals = self._decimals
        if decimals.exponents and (given or word == "multipleOf"):
            raise _NeedsPlain
        exponent = given.as_tuple().exponent
        assert isinstance(exponent, int)
        if given and (given.adjusted() >= MAX_RUN or -exponent > MAX_RUN):
            raise Unsupported(schema, word, f"{given}: has more than {MAX_RUN} digits")
        match word:
            case "minimum":
                found = decimals.at_least(given)
            case "exclusiveMinimum":
                found = decimals.above(given)
            case "maximum":
                found = self._other(decimals.above(given))
            case "exclusiveMaximum":
                found = self._other(decimals.at_least(given))
            case _:
                multiples = decimals.multiples(given) or _listed(schema, given, decimals)
                if multiples is None:
                    raise Unsupported(
                        schema, word, f"{given}: the last digits don't tell, and no bounds are near"
                    )
                found = multiples
        return found if holds else self._other(found)


_BOUNDS: Final = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
)


def _listed(schema: Schema, step_: Decimal, decimals: Decimals) -> Language | None:
    """The multiples of a step between the bounds beside it, if these are near; so much is enough
    under a `not` as well, where the bounds don't hold either."""
    words = schema.keywords
    lows = [Decimal(words[word]) for word in ("minimum", "exclusiveMinimum") if word in words]
    highs = [Decimal(words[word]) for word in ("maximum", "exclusiveMaximum") if word in words]
    if not lows or not highs:
        return None
    first = math.ceil(Fraction(max(lows)) / Fraction(step_))
    last = math.floor(Fraction(min(highs)) / Fraction(step_))
    if last - first > MAX_LISTED:
        return None
    return any_of(decimals.equal(_product(step_, number)) for number in range(first, last + 1))


def _product(step_: Decimal, number: int) -> Decimal:
    """A multiple of a positive step, exactly: arithmetic of Decimals rounds."""
    _, digits, exponent = step_.as_tuple()
    return Decimal(f"{int(''.join(map(str, digits))) * number}e{exponent}")


def satisfying(literals: Sequence[Literal], values: list[Any]) -> list[Any]:
    """The values that satisfy some literals; raises Unsupported where that isn't told by them."""
    judge = Judge()
    try:
        return [
            value
            for value in values
            if all(judge.holds(schema, value) == must for schema, must in literals)
        ]
    except CannotTell as error:
        raise Unsupported(
            error.schema, error.word, "what it means depends on the way there"
        ) from None
    except RecursionError:
        refuse(literals[0][0].pointer, "nested too deep")
