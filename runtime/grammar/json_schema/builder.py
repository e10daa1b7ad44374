"""Builder: a schema's graph as rules, one for each set of literals that one value must satisfy.

A rule's alternatives are by kind of value. Children are sets of literals again, so recursion ends
where a set comes back, and everything (`allOf`, `not`, `oneOf`, recursion through them) is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.json_schema import arrays, objects, shapes, trees
from ramet.runtime.grammar.json_schema.decimals import spellings
from ramet.runtime.grammar.json_schema.emptiness import is_empty
from ramet.runtime.grammar.json_schema.language import NOTHING, Language, Words, any_of
from ramet.runtime.grammar.json_schema.normal import Schema
from ramet.runtime.grammar.json_schema.reading import Literal, Reader, Unsupported, satisfying
from ramet.runtime.grammar.json_schema.rules import Rules
from ramet.runtime.grammar.json_schema.text import refuse
from ramet.runtime.grammar.json_schema.values import is_number, same
from ramet.runtime.grammar.lark_text import literal

MAX_NODES: Final = 20_000
"""Different sets of literals; of a small schema, some thousand have to do (`MIN_NODES`)."""
MIN_NODES: Final = 1_500
"""Different sets of literals, besides one for each 8 bytes; each takes a fraction of a
millisecond, and schemas as people write them need a tenth of so many."""
MAX_WHITESPACE: Final = 256
"""Blanks in one place between tokens, where whitespace is flexible."""
MAX_FINITE: Final = 60
"""Different values that unique items may have."""
MAX_WRITTEN: Final = 25_000
"""Alternatives of rules for the objects of one place; the mask engine takes some 40,000 in all."""
MAX_ASKED: Final = 400
"""Languages of which it is asked whether two schemas share a text; more count as overlapping."""
_DEPTH: Final = 3
"""How deep two schemas are compared before they count as overlapping."""

Literals = tuple[Literal, ...]


class Builder:
    """Builds the rules of one schema."""

    def __init__(self, dropped: set[tuple[str, str]], whitespace: str, size: int) -> None:
        """`size` is that of the schema's text."""
        self._most = min(MIN_NODES + size // 8, MAX_NODES)
        self.rules = Rules()
        self.reader = Reader(dropped, self._are_apart)
        self._dropped = dropped
        self._nodes: dict[tuple[tuple[int, bool], ...], str] = {}
        self._waiting: list[tuple[str, Literals]] = []
        self._possible: dict[tuple[frozenset[tuple[int, bool]], int], bool] = {}
        self._comparing = 0
        self._asked = 0
        """How often it was compared whether strings or numbers overlap."""
        blank = f"/[ \\t\\n\\r]{{0,{MAX_WHITESPACE}}}/" if whitespace == "flexible" else ""
        self._blank = blank

    def build(self, root: Schema) -> str | None:
        """The grammar's text; None if nothing satisfies the schema."""
        start = self.node(((root, True),))
        while self._waiting:
            name, literals = self._waiting.pop()
            self._fill(name, literals)
        return self.rules.lark(start)

    def token(self, text: str, before: bool = False, after: bool = False) -> str:
        """A terminal for punctuation, with blanks where they may be."""
        written = literal(text)
        if self._blank:
            written = " ".join((*([self._blank] * before), written, *([self._blank] * after)))
        return self.rules.terminals.named(written)

    def node(self, literals: Sequence[Literal]) -> str:
        """The rule for values that satisfy some literals."""
        cleaned = _cleaned(literals)
        if cleaned is None:
            return "never"
        key = tuple((id(schema), must) for schema, must in cleaned)
        if key not in self._nodes:
            if len(self._nodes) >= self._most:
                raise GrammarError("json_schema: too complex: its combinations are too many")
            self._nodes[key] = self.rules.name("n")
            self._waiting.append((self._nodes[key], cleaned))
        return self._nodes[key]

    def strings(self, language: Language) -> str | None:
        """A terminal for JSON strings of a language; None if there is none."""
        return None if is_empty(language) else self.rules.terminals.string(language)

    def finite(self, literals: Sequence[Literal]) -> list[Any] | None:
        """All values that satisfy some literals, each once; None if they may be many."""
        cleaned = _cleaned(literals)
        if cleaned is None:
            return []
        values = _enumerated(cleaned)
        if values is None:
            values = self._few(cleaned)
        if values is None:
            return None
        different: list[Any] = []
        for value in satisfying(cleaned, values):
            if not any(same(value, other) for other in different):
                different.append(value)
            if len(different) > MAX_FINITE:
                return None
        return different

    def value(self, value: Any) -> str:
        """A rule for one value, as JSON."""
        name = self.rules.name("v")
        if isinstance(value, list):
            parts: list[str] = []
            for item in value:
                parts += [self.token(",", True, True)] * bool(parts) + [self.value(item)]
            self._bracket(name, "[", parts, "]")
        elif isinstance(value, dict):
            parts = []
            for key, item in value.items():
                parts += [self.token(",", True, True)] * bool(parts)
                parts += [self.rules.terminals.string(Words((key,)))]
                parts += [self.token(":", True, True), self.value(item)]
            self._bracket(name, "{", parts, "}")
        else:
            self.rules.add(name, self._scalars([value]))
        return name

    def index(self, known: list[Any], value: Any) -> int:
        """Where a value stands among some, to which it is added if it doesn't."""
        for at, other in enumerate(known):
            if same(value, other):
                return at
        known.append(value)
        return len(known) - 1

    def _bracket(self, name: str, begin: str, parts: list[str], end: str) -> None:
        last = self.token(end, bool(parts))
        self.rules.add(name, self.token(begin, False, True), *parts, last)

    def _scalars(self, values: list[Any]) -> str:
        terminals = self.rules.terminals
        texts = [value for value in values if isinstance(value, str)]
        if texts:
            return terminals.string(Words(tuple(texts)))
        words = {None: "null", True: "true", False: "false"}
        found = [spellings(v) if is_number(v) else Words((words[v],)) for v in values]
        return terminals.text(any_of(found))

    def _fill(self, name: str, literals: Literals) -> None:
        values = _enumerated(literals)
        if values is not None:
            self._fill_values(name, satisfying(literals, values))
            return
        others = satisfying(literals, [None, False, True])
        if others:
            self.rules.add(name, self._scalars(others))
        numbers = self.reader.numbers(literals)
        if not is_empty(numbers):
            self.rules.add(name, self.rules.terminals.text(numbers))
        strings = self.strings(self.reader.strings(literals))
        if strings is not None:
            self.rules.add(name, strings)
        for way in self._ways(literals, "array"):
            arrays.write(self, name, shapes.array(way))
        before = self.rules.size
        for way in self._ways(literals, "object"):
            objects.write(self, name, shapes.object_(way))
            if self.rules.size - before > MAX_WRITTEN:
                source = _branching(literals, self._dropped)
                if source is not None:
                    raise Unsupported(*source, "its combinations are too many to write")

    def _fill_values(self, name: str, values: list[Any]) -> None:
        texts = [value for value in values if isinstance(value, str)]
        if texts:
            self.rules.add(name, self._scalars(list(dict.fromkeys(texts))))
        others = [v for v in values if not isinstance(v, str | list | dict)]
        if others:
            self.rules.add(name, self._scalars(others))
        for value in values:
            if isinstance(value, list | dict):
                self.rules.add(name, self.value(value))

    def _ways(self, literals: Literals, kind: str) -> list[tuple[trees.Atom, ...]]:
        try:
            return trees.alternatives(self.reader.tree(literals, kind), self._clash)
        except trees.TooMany:
            source = _branching(literals, self._dropped)
            if source is None:
                raise GrammarError(
                    "json_schema: too complex: its combinations are too many"
                ) from None
            raise Unsupported(*source, "its combinations are too many to follow") from None

    def _clash(self, way: tuple[trees.Atom, ...]) -> bool:
        """Whether an alternative is contradictory, as far as that is cheap to see."""
        if shapes.clash(way):
            return True
        return not self._may_be(way, 1)

    def _may_be(self, way: tuple[trees.Atom, ...], depth: int) -> bool:
        """Whether an array or object could be like that."""
        has = {demand[1] for demand in way if demand[0] == "has"}
        demands: dict[Any, list[Literal]] = {}
        low = max([demand[1] for demand in way if demand[0] == "min"], default=0)
        for demand in way:
            if (demand[0] == "value" and demand[1] in has) or (
                demand[0] == "item" and demand[1] < low
            ):
                demands.setdefault(demand[1], []).append(demand[2])
        return all(self._is_possible(found, depth) for found in demands.values())

    def _are_apart(self, left: Literal, right: Literal) -> bool:
        """Whether it is certain that no value satisfies both."""
        return not self._is_possible((left, right), _DEPTH)

    def _is_possible(self, literals: Sequence[Literal], depth: int) -> bool:
        """False only if it is certain that no value satisfies all the literals."""
        cleaned = _cleaned(literals)
        if cleaned is None:
            return False
        if depth == 0 or not cleaned or self._comparing > 6:
            return True
        key = frozenset((id(schema), must) for schema, must in cleaned), depth
        if key not in self._possible:
            self._possible[key] = True  # What comes back to itself counts as possible.
            self._comparing += 1
            try:
                self._possible[key] = self._compare(cleaned, depth)
            except (Unsupported, trees.TooMany):
                pass
            finally:
                self._comparing -= 1
        return self._possible[key]

    def _compare(self, literals: Literals, depth: int) -> bool:
        values = _enumerated(literals)
        if values is not None:
            return bool(satisfying(literals, values))
        if satisfying(literals, [None, False, True]):
            return True
        reader = self.reader.fork()
        for language in (reader.numbers(literals), reader.strings(literals)):
            if language == NOTHING:
                continue
            self._asked += 1
            if self._asked > MAX_ASKED or not is_empty(language):
                return True
        for kind in ("array", "object"):
            ways = trees.alternatives(reader.tree(literals, kind), shapes.clash)
            if any(self._may_be(way, depth - 1) for way in ways):
                return True
        return False

    def _few(self, literals: Literals) -> list[Any] | None:
        """Values that literals without an enumeration leave, if these are few at sight."""
        values: list[Any] = [None, False, True]
        for schema, must in literals:
            words = schema.keywords
            low, high = words.get("minimum"), words.get("maximum")
            if must and words.get("type") == ("integer",) and low is not None and high is not None:
                if high - low <= MAX_FINITE:
                    return list(range(int(low), int(high) + 1))
                return None
        strings = self.reader.strings(literals)
        if not isinstance(strings, Words) or self.reader.numbers(literals) != NOTHING:
            return None
        if self._ways(literals, "array") or self._ways(literals, "object"):
            return None
        return [*values, *strings.texts]


def _cleaned(literals: Sequence[Literal]) -> Literals | None:
    """The literals that say something, each once; None if nothing satisfies them all."""
    found: dict[Literal, None] = {}
    for schema, must in literals:
        seen = {id(schema)}
        while list(schema.keywords) == ["$ref"]:
            schema = schema.keywords["$ref"]
            if id(schema) in seen:
                refuse(schema.pointer, "refers to itself without end")
            seen.add(id(schema))
        always = True if schema.always is None and not schema.keywords else schema.always
        if always is not None:
            if always != must:
                return None
            continue
        if (schema, not must) in found:
            return None
        found[schema, must] = None
    return tuple(found)


def _enumerated(literals: Literals) -> list[Any] | None:
    """The values that some literal lists, if one does."""
    waiting = [schema for schema, must in literals if must]
    seen: set[int] = set()
    while waiting:
        schema = waiting.pop()
        if id(schema) in seen:
            continue
        seen.add(id(schema))
        words = schema.keywords
        if "const" in words:
            return [words["const"]]
        if "enum" in words:
            return list(words["enum"])
        waiting += words.get("allOf", ())
        if "$ref" in words:
            waiting.append(words["$ref"])
    return None


def _branching(literals: Literals, dropped: set[tuple[str, str]]) -> tuple[Schema, str] | None:
    """A keyword to blame where there are too many alternatives, of those that aren't dropped."""
    waiting = [schema for schema, _ in literals]
    seen: set[int] = set()
    while waiting:
        schema = waiting.pop(0)
        if id(schema) in seen:
            continue
        seen.add(id(schema))
        words = schema.keywords
        for word in ("oneOf", "if", "not", "dependentRequired", "dependentSchemas", "anyOf"):
            if word in words and (schema.pointer, word) not in dropped:
                return schema, word
        waiting += words.get("allOf", ())
        if "$ref" in words:
            waiting.append(words["$ref"])
    return None
