"""Objects as rules: declared names in their order, then the others.

Names that only `required` and its like mention, or that another branch declares, may stand anywhere
after the declared ones. A name that is neither may come twice: no grammar can tell.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Final

from ramet.runtime.grammar.json_schema.language import Language, Words, all_of, not_
from ramet.runtime.grammar.json_schema.reading import Literal, Unsupported, satisfying
from ramet.runtime.grammar.json_schema.rules import Times
from ramet.runtime.grammar.json_schema.search import BadPattern, Hard, search
from ramet.runtime.grammar.json_schema.shapes import ObjectShape, Source
from ramet.runtime.grammar.json_schema.text import refuse

if TYPE_CHECKING:
    from ramet.runtime.grammar.json_schema.builder import Builder

MAX_LOOSE: Final = 5
"""Names without a place of their own; of more, all have one, behind the declared ones."""
MAX_PATTERNS: Final = 7
"""Patterns that tell the names of one object apart."""
MAX_STATES: Final = 60_000


def write(builder: Builder, name: str, shape: ObjectShape) -> None:
    """Add alternatives to a rule: objects of a shape."""
    for way in _settled(shape):
        _Writer(builder, way).write(name)


def _settled(shape: ObjectShape) -> list[ObjectShape]:
    """The shape with each demand for some name met by a mentioned name, or left to another."""
    ways = [dataclasses.replace(shape, somes=[])]
    for some in shape.somes:
        keys, literal, source = some
        found = []
        for way in ways:
            if way.somes:
                raise Unsupported(*source, "what must not hold, twice in one object")
            free = way.copy()
            free.somes.append(some)
            found.append(free)
            for name in shape.mentioned:
                if name in way.lacks:
                    continue
                if keys is None:
                    if not satisfying([literal], [name]):
                        continue
                elif not keys.has(name):
                    continue
                named = way.copy()
                named.has.add(name)
                if keys is not None:
                    named.values.setdefault(name, []).append(literal)
                found.append(named)
        ways = found
    return ways


@dataclasses.dataclass
class _Member:
    """Members with a name of their own language."""

    language: Language
    literals: tuple[Literal, ...]


class _Writer:
    def __init__(self, builder: Builder, shape: ObjectShape) -> None:
        self._builder, self._rules, self._shape = builder, builder.rules, shape
        self._comma, self._colon = builder.token(",", True, True), builder.token(":", True, True)
        self._end = builder.token("}", before=True)
        self._named: dict[str, tuple[str, ...]] = {}
        self._states: dict[tuple[object, ...], str] = {}

    def write(self, name: str) -> None:
        shape = self._shape
        allowed = [n for n in shape.mentioned if n not in shape.lacks and self._may_be_named(n)]
        if not shape.has <= set(allowed):
            return
        declared = [n for n in shape.declared if n in allowed]
        loose = [n for n in shape.loose if n in allowed]
        if len(loose) > MAX_LOOSE:
            declared, loose = [*declared, *loose], []
        for known in allowed:
            key = self._rules.terminals.string(Words((known,)))
            self._named[known] = (key, self._colon, self._builder.node(shape.value(known)))
        free = self._members(self._cells())
        some = self._members(self._some()) if shape.somes else None
        if shape.somes and some is None:
            return
        self._limits(len(allowed), free is not None or some is not None)
        size = len(declared) * (self._cap + 1) + 2 ** len(loose)
        if size * (self._cap + 1) > MAX_STATES and self._cap > 1:
            source = _limit_source(shape)
            raise Unsupported(*source, "counts too far")
        self._declared, self._loose, self._free, self._special = declared, loose, free, some
        start = self._chain()
        self._rules.add(name, self._builder.token("{", after=True), start)

    def _may_be_named(self, name: str) -> bool:
        return bool(satisfying(self._shape.names, [name]))

    def _limits(self, count: int, has_free: bool) -> None:
        shape = self._shape
        self._low = 0 if shape.low <= len(shape.has) else shape.low
        self._high = shape.high
        if self._high is not None and not has_free and self._high >= count:
            self._high = None
        self._cap = max(1, self._low) if self._high is None else self._high

    def _chain(self) -> str:
        """All members: the declared ones, with how many members there are before and after them."""
        name = self._rules.name("o")
        self._parts: dict[tuple[int, int, int, int], str] = {}
        for after in range(self._cap + 1):
            part = self._part(0, len(self._declared), 0, after)
            if part is not None:
                self._rules.add(name, *part, self._tail(0, self._special is None, after))
        return name

    def _part(self, begin: int, end: int, before: int, after: int) -> tuple[str, ...] | None:
        """Symbols for some declared members, if they can make so many of so many; halves of halves,
        so that rules aren't nested as deep as there are names."""
        if not 0 <= after - before <= end - begin and not (
            self._high is None and after == before == self._cap
        ):
            return None
        if begin == end:
            return ()
        if end - begin == 1 and self._more(before) == after and after != before:
            return self._first(before) + self._named[self._declared[begin]]
        key = begin, end, before, after
        if key not in self._parts:
            ways: list[tuple[str, ...]] = []
            if end - begin == 1:
                if before == after and self._declared[begin] not in self._shape.has:
                    ways.append(())
                if self._more(before) == after and before != self._high:
                    ways.append(self._first(before) + self._named[self._declared[begin]])
            else:
                middle = (begin + end) // 2
                for count in range(before, after + 1):
                    left = self._part(begin, middle, before, count)
                    right = self._part(middle, end, count, after)
                    if left is not None and right is not None:
                        ways.append((*left, *right))
            self._parts[key] = self._rules.name("o") if ways else ""
            for way in ways:
                self._rules.add(self._parts[key], *way)
        return (self._parts[key],) if self._parts[key] else None

    def _first(self, count: int) -> tuple[str, ...]:
        return (self._comma,) if count else ()

    def _more(self, count: int) -> int:
        return count + 1 if self._high is not None else min(count + 1, self._cap)

    def _tail(self, seen: int, is_met: bool, count: int) -> str:
        """The rule for what follows the declared members."""
        rules, loose = self._rules, self._loose
        waiting: list[tuple[int, bool, int]] = []

        def state(*key: object) -> str:
            if key not in self._states:
                self._states[key] = rules.name("t")
                waiting.append(key)  # type: ignore[arg-type]
            return self._states[key]

        start = state(seen, is_met, count)
        while waiting:
            seen, is_met, count = waiting.pop()
            name = self._states[seen, is_met, count]
            missing = [n for i, n in enumerate(loose) if not seen >> i & 1 and n in self._shape.has]
            if not missing and is_met and count >= self._low:
                rules.add(name, self._end if count else self._builder.token("}"))
            if count == self._high:
                continue
            first, after = self._first(count), self._more(count)
            for i, known in enumerate(loose):
                if not seen >> i & 1:
                    rules.add(
                        name, *first, *self._named[known], state(seen | 1 << i, is_met, after)
                    )
            if self._special is not None and not is_met:
                rules.add(name, *first, self._special, state(seen, True, after))
            if self._free is None:
                continue
            if seen + 1 == 1 << len(loose) and is_met and count == after and self._high is None:
                rules.add(name, Times((self._comma, self._free), 1, None), self._end)
            else:
                rules.add(name, *first, self._free, state(seen, is_met, after))
        return start

    def _members(self, found: list[_Member]) -> str | None:
        """A rule for one member of some; None if there is none."""
        name = self._rules.name("m")
        count = 0
        for member in found:
            value = self._builder.node(member.literals)
            if value == "never":
                continue
            key = self._builder.strings(member.language)
            if key is not None:
                self._rules.add(name, key, self._colon, value)
                count += 1
        return name if count else None

    def _cells(self) -> list[_Member]:
        """The names that nothing mentions, by what their values must satisfy."""
        shape = self._shape
        patterns = shape.patterns
        if len(patterns) > MAX_PATTERNS:
            raise Unsupported(*_pattern_source(shape), f"more than {MAX_PATTERNS} patterns")
        base = []
        if shape.mentioned:
            base.append(not_(Words(tuple(shape.mentioned))))
        if shape.names:
            base.append(self._builder.reader.strings(shape.names))
        cells = []
        for bits in itertools.product((False, True), repeat=len(patterns)):
            parts = list(base)
            for bit, pattern in zip(bits, patterns, strict=True):
                language = self._search(pattern)
                parts.append(language if bit else not_(language))
            matched = frozenset(p for bit, p in zip(bits, patterns, strict=True) if bit)
            literals = [lit for keys, lit, _ in shape.rests if keys.covers(matched)]
            if any(
                schema.always is not None and schema.always != must for schema, must in literals
            ):
                continue
            self._matched = matched
            cell = _Member(all_of(parts), tuple(dict.fromkeys(literals)))
            cells.append((matched, cell))
        self._by_match = cells
        return [cell for _, cell in cells]

    def _some(self) -> list[_Member]:
        ((keys, literal, _),) = self._shape.somes
        if keys is None:
            odd = self._builder.reader.strings([literal])
            return [
                _Member(all_of((cell.language, odd)), cell.literals) for _, cell in self._by_match
            ]
        return [
            _Member(cell.language, (*cell.literals, literal))
            for matched, cell in self._by_match
            if keys.covers(matched)
        ]

    def _search(self, pattern: str) -> Language:
        try:
            return search(pattern)
        except BadPattern as error:
            refuse(_pattern_source(self._shape)[0].pointer, f"{pattern!r:.200}: {error}")
        except Hard as error:
            source = _pattern_source(self._shape, pattern)
            raise Unsupported(*source, f"{pattern!r:.200}: {error}") from None


def _pattern_source(shape: ObjectShape, pattern: str | None = None) -> Source:
    sources = [(keys, source) for keys, _, source in (*shape.rests, *shape.somes)]
    for keys, source in sources:
        if keys is None:
            continue
        if pattern is None or keys.pattern == pattern or pattern in keys.patterns:
            return source
    raise AssertionError("a pattern comes from somewhere")


def _limit_source(shape: ObjectShape) -> Source:
    assert shape.limit is not None
    return shape.limit
