"""Expansion: from the schemas that one place must satisfy together to its shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ramet.runtime.grammar.closing.automaton import FAR, Automaton
from ramet.runtime.grammar.closing.number import Numbers, exact, is_number, of_schemas
from ramet.runtime.grammar.closing.patterns import format_automata, search_automata
from ramet.runtime.grammar.closing.shapes import (
    Arrays,
    Goal,
    Literals,
    Objects,
    Strings,
    quoted,
)
from ramet.runtime.grammar.json_schema.normal import Schema

MAX_BRANCHES = 256
"""Alternatives of one place; of more, the first are kept."""
MAX_STEPS = 20_000
"""Schemas looked at for one place."""
MAX_GOALS = 20_000
"""Different places of a schema."""
MAX_WORK = 200_000
"""Schemas and properties looked at in all; about a microsecond each. Places beyond that may have
anything."""
_FILLING = 100
"""What making the shapes of one alternative takes, in the same unit."""

_UNMODELLED = (
    *("not", "if", "contains", "uniqueItems", "propertyNames", "dependentRequired"),
    *("dependentSchemas", "unevaluatedItems", "unevaluatedProperties"),
    *("$dynamicRef", "$recursiveRef"),
)
"""Keywords that shapes know nothing of."""

Words = dict[str, Any]
"""One schema's keywords."""
Plain = list[Words]
"""Keywords that hold together, combinators followed."""

_NEVER = Schema("", always=False)
_ALWAYS = Schema("", always=True)


class Expansion:
    """The goals of one schema document, made as they are asked for."""

    def __init__(self, root: Schema) -> None:
        self.sure = True
        """Whether the shapes say all that the schema says, as far as has been asked."""
        self._goals: dict[tuple[int, ...], Goal] = {}
        self._waiting: list[tuple[Goal, tuple[Schema, ...]]] = []
        self.settle: Callable[[], None] = lambda: None
        """Called when a document has asked for a goal that the schema alone doesn't name."""
        self._made: list[Schema] = []
        """Schemas that aren't in the document; kept, as it is, because goals go by identity."""
        self._document = root
        self._work = 0
        self.root = self.goal((root,))

    def goal(self, schemas: Iterable[Schema]) -> Goal:
        """What must satisfy all of the schemas; empty until `pending` has given it."""
        found = map(_behind, schemas)
        parts = {id(schema): schema for schema in found if not _is_always(schema)}
        key = tuple(parts)
        goal = self._goals.get(key)
        if goal is None:
            if len(self._goals) >= MAX_GOALS:
                self.sure = False
                parts, key = {}, ()
                if () in self._goals:
                    return self._goals[()]
            goal = self._goals[key] = Goal()
            self._waiting.append((goal, tuple(parts.values())))
        return goal

    def pending(self) -> list[Goal]:
        """The goals that were asked for since the last time and what they ask for, filled."""
        filled = []
        while self._waiting:
            goal, schemas = self._waiting.pop()
            for plain in self._branches(schemas) if self._work < MAX_WORK else [[]]:
                self._fill(goal, plain)
                if self._work >= MAX_WORK:
                    self.sure = False
                    break
            self._join_literals(goal)
            filled.append(goal)
        return filled

    def _branches(self, schemas: tuple[Schema, ...]) -> list[Plain]:
        """The alternatives without combinators, each as schemas that hold together."""
        found: list[Plain] = []
        stack: list[tuple[list[Schema], dict[int, Words]]] = [(list(schemas), {})]
        steps = 0
        while stack and len(found) < MAX_BRANCHES and steps < MAX_STEPS:
            todo, plain = stack.pop()
            while todo:
                steps += 1
                schema = todo.pop(0)
                if schema.always is False:
                    break
                if id(schema) in plain:
                    continue
                words = plain[id(schema)] = schema.keywords
                after = [*words.get("allOf", ()), *todo]
                todo = [words["$ref"]] if "$ref" in words else []
                ways = self._ways(words)
                if ways != [[]]:
                    # The last of the stack comes first.
                    stack.extend(([*todo, *way, *after], dict(plain)) for way in reversed(ways))
                    break
                todo += after
            else:
                found.append(list(plain.values()))
        if stack:
            self.sure = False
        self._work += steps
        return found

    def _ways(self, words: Words) -> list[list[Schema]]:
        """The ways to satisfy `oneOf` and `anyOf`."""
        ways: list[list[Schema]] = [[]]
        for keyword in ("oneOf", "anyOf"):
            options = words.get(keyword)
            if options is None:
                continue
            if keyword == "oneOf" and not _apart(options):
                self.sure = False  # What two of them allow is none of it.
            choices = [option for option in options if _is_choice(option)]
            if len(choices) > 8:
                values = [value for each in choices for value in _choices(each.keywords)]
                merged = self._keep(Schema("", keywords={"enum": values}))
                options = [merged, *(each for each in options if not _is_choice(each))]
            if len(options) * len(ways) > MAX_BRANCHES:
                self.sure = False
                options = options[: MAX_BRANCHES // len(ways)]
            ways = [[*way, each] for way in ways for each in options]
        return ways

    def _keep(self, schema: Schema) -> Schema:
        self._made.append(schema)
        return schema

    def _fill(self, goal: Goal, plain: Plain) -> None:
        if any(keyword in words for words in plain for keyword in _UNMODELLED):
            self.sure = False
        self._work += _FILLING
        types = _types(plain)
        if any("const" in words or "enum" in words for words in plain):
            self._fill_choices(goal, plain, types)
            return
        texts = {b"null"} if "null" in types else set()
        if "boolean" in types:
            texts |= {b"true", b"false"}
        if texts:
            goal.literals.append(Literals(texts))
        if "number" in types or "integer" in types:
            numbers = of_schemas(plain, "number" not in types)
            goal.numbers += [numbers] if numbers else []
        if "string" in types:
            strings = self._strings(plain)
            if strings.least < FAR:
                goal.strings.append(strings)
        if "array" in types:
            goal.arrays.append(self._arrays(plain))
        if "object" in types:
            goal.objects.append(self._objects(plain))

    def _fill_choices(self, goal: Goal, plain: Plain, types: frozenset[str]) -> None:
        """One of some values."""
        kept: dict[bytes, Any] | None = None
        for words in plain:
            if "const" in words or "enum" in words:
                here = {quoted(value): value for value in _choices(words)}
                kept = here if kept is None else {k: v for k, v in kept.items() if k in here}
        texts: set[bytes] = set()
        fits = _Fits(self._strings(plain), of_schemas(plain, "number" not in types), types)
        for text, value in (kept or {}).items():
            if isinstance(value, (list, dict)):
                self._fill_container(goal, value, types)
            elif fits(value):
                texts.add(text)
                if is_number(value) and value == int(value):
                    texts.add(quoted(int(value)))
        if texts:
            goal.literals.append(Literals(texts))

    def _fill_container(self, goal: Goal, value: Any, types: frozenset[str]) -> None:
        """One array or object, as a shape of its own."""
        nothing = self.goal((_NEVER,))
        if isinstance(value, list) and "array" in types:
            every = tuple(self._constant(item) for item in value)
            goal.arrays.append(Arrays(every, nothing, len(value), len(value)))
        elif isinstance(value, dict) and "object" in types:
            own = {name: self._constant(part) for name, part in value.items()}
            names = dict.fromkeys(own)
            goal.objects.append(Objects(own, len(own), names, [], lambda _: nothing, 0, None))

    def _constant(self, value: Any) -> Goal:
        return self.goal((self._keep(Schema("", keywords={"const": value})),))

    def _join_literals(self, goal: Goal) -> None:
        """One set of texts instead of several."""
        if len(goal.literals) > 1:
            goal.literals = [Literals({t for each in goal.literals for t in each.texts})]

    def _strings(self, plain: Plain) -> Strings:
        automata: dict[Automaton, None] = {}
        for keyword, make in (("pattern", search_automata), ("format", format_automata)):
            for text in _values(plain, keyword):
                found = make(text)
                if found is None:
                    self.sure = False
                automata.update(dict.fromkeys(found or ()))
        low = max(_values(plain, "minLength"), default=0)
        return Strings(low, min(_values(plain, "maxLength"), default=None), tuple(automata))

    def _arrays(self, plain: Plain) -> Arrays:
        firsts = [words.get("prefixItems", []) for words in plain]
        rests = [words.get("items", _ALWAYS) for words in plain]
        prefix = tuple(
            self.goal(
                first[at] if at < len(first) else rest
                for first, rest in zip(firsts, rests, strict=True)
            )
            for at in range(max(map(len, firsts), default=0))
        )
        low = max(_values(plain, "minItems"), default=0)
        return Arrays(prefix, self.goal(rests), low, min(_values(plain, "maxItems"), default=None))

    def _objects(self, plain: Plain) -> Objects:
        readers = [_Names(words) for words in plain]
        if not all(reader.sure for reader in readers):
            self.sure = False
        declared = dict.fromkeys(name for reader in readers for name in reader.declared)
        required = dict.fromkeys(name for each in _values(plain, "required") for name in each)
        self._work += len(readers) * (1 + len(declared | required))
        generic: list[tuple[Automaton | None, Goal]] = []
        for reader in readers:
            for automaton, schema in reader.patterns:
                others = (other.rest for other in readers if other is not reader)
                generic.append((automaton, self.goal((schema, *others))))
        generic.append((None, self.goal(reader.rest for reader in readers)))

        def find(name: str) -> Goal:
            goal = self.goal(schema for reader in readers for schema in reader.of(name))
            self.settle()
            return goal

        properties = {name: find(name) for name in declared | required}
        low = max(_values(plain, "minProperties"), default=0)
        high = min(_values(plain, "maxProperties"), default=None)
        return Objects(properties, len(declared), required, generic, find, low, high)


class _Names:
    """What one schema says about an object's properties."""

    def __init__(self, words: Words) -> None:
        self.declared: dict[str, Schema] = words.get("properties", {})
        self.rest: Schema = words.get("additionalProperties", _ALWAYS)
        self.patterns: list[tuple[Automaton, Schema]] = []
        self.sure = True
        for pattern, schema in words.get("patternProperties", {}).items():
            automata = search_automata(pattern)
            if automata is None or len(automata) != 1:
                self.sure = False
            else:
                self.patterns.append((automata[0], schema))

    def of(self, name: str) -> list[Schema]:
        """What the property of a name must satisfy."""
        found = [self.declared[name]] if name in self.declared else []
        found += [schema for automaton, schema in self.patterns if automaton.matches(name)]
        return found or [self.rest]


def _is_always(schema: Schema) -> bool:
    return schema.always is True or (schema.always is None and not schema.keywords)


def _values(plain: Plain, keyword: str) -> list[Any]:
    """What the schemas say under a keyword."""
    return [words[keyword] for words in plain if keyword in words]


def _choices(words: Words) -> list[Any]:
    """The values of `const` and `enum`, which is one of them."""
    if "const" in words:
        value = words["const"]
        return [value] if "enum" not in words or value in words["enum"] else []
    found: list[Any] = words["enum"]
    return found


def _is_choice(schema: Schema) -> bool:
    """Whether a schema says nothing but which scalars there are."""
    words = schema.keywords
    if not words.keys() <= {"const", "enum", "type"} or not words.keys() & {"const", "enum"}:
        return False
    return "type" not in words or words["type"] == ("string",)


def _apart(options: list[Schema]) -> bool:
    """Whether it is easily seen that no value satisfies two of the schemas."""
    every = [_behind(option).keywords for option in options]
    if all({"const", "enum"} & words.keys() for words in every):
        values = [text for words in every for text in set(map(quoted, _choices(words)))]
        return len(set(values)) == len(values)
    if all("type" in words for words in every):
        kinds = [kind for words in every for kind in {_wide(name) for name in words["type"]}]
        if len(set(kinds)) == len(kinds):
            return True
    return _told_apart(every)


def _wide(kind: str) -> str:
    return "number" if kind == "integer" else kind


def _told_apart(every: list[Words]) -> bool:
    """Whether all are objects that have a property each with another constant."""
    tables = [_constants(words) for words in every]
    for name in tables[0] if tables else ():
        values = [quoted(table[name]) for table in tables if name in table]
        if len(set(values)) == len(every):
            return True
    return False


def _constants(words: Words) -> dict[str, Any]:
    """The required properties that are constants, of what can only be an object."""
    if words.get("type") != ("object",):
        return {}
    found: dict[str, Any] = {}
    for name, schema in words.get("properties", {}).items():
        values = _choices(schema.keywords) if {"const", "enum"} & schema.keywords.keys() else []
        if len(values) == 1 and name in words.get("required", ()):
            found[name] = values[0]
    return found


def _behind(schema: Schema) -> Schema:
    """What a schema means that is nothing but a reference."""
    for _ in range(100):
        if schema.keywords.keys() != {"$ref"}:
            break
        schema = schema.keywords["$ref"]
    return schema


def _types(plain: Plain) -> frozenset[str]:
    """The types that all allow; `number` includes `integer`."""
    found = frozenset(("null", "boolean", "number", "string", "array", "object"))
    for named in _values(plain, "type"):
        own = set(named)
        both = found & own
        if {"number", "integer"} & found and {"number", "integer"} & own and "number" not in both:
            both |= {"integer"}
        found = both
    return found


class _Fits:
    """Whether a scalar keeps to what stands beside its `enum`."""

    def __init__(self, strings: Strings, numbers: Numbers | None, types: frozenset[str]) -> None:
        self._strings = strings
        self._numbers = numbers
        self._types = types

    def __call__(self, value: Any) -> bool:
        if isinstance(value, str):
            low, high = self._strings.low, self._strings.high
            if "string" not in self._types or len(value) < low:
                return False
            if high is not None and len(value) > high:
                return False
            return all(automaton.matches(value) for automaton in self._strings.automata)
        if is_number(value):
            named = "number" in self._types or "integer" in self._types
            return named and self._numbers is not None and self._numbers.has(exact(value))
        return ("null" if value is None else "boolean") in self._types
