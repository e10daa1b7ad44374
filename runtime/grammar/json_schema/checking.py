"""Checking: what a finished document violates, with the place in it and in the schema.

The judgement is by value, so it also covers what a grammar can't say: `uniqueItems` of any items,
a key that is there twice. Nothing in it takes long: each value is judged once by each schema, and
patterns have a timeout.
"""

from __future__ import annotations

from typing import Any, Final

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.json_schema.normal import Schema, normalise
from ramet.runtime.grammar.json_schema.text import parse, refuse, step
from ramet.runtime.grammar.json_schema.values import CannotTell, Judge, finds

MAX_MESSAGES: Final = 20
"""Violations that are told apart."""


def check_document(schema_text: str, document: str) -> list[str]:
    """What a document violates, each as `at …: …`; nothing if it satisfies the schema.

    Raises GrammarError for a schema that is malformed, or a pattern that takes too long.
    """
    root = normalise(schema_text)
    try:
        value = parse(document)
    except GrammarError as error:
        return [str(error).replace("json_schema: ", "").replace("the schema isn't", "it isn't")]
    found: list[str] = []
    try:
        _walk(Judge(), root, value, "", found, set())
    except CannotTell as error:
        refuse(step(error.schema.pointer, error.word), "what it means depends on the way there")
    except RecursionError:
        return ["it is nested too deep to be checked"]
    return found


def _walk(
    judge: Judge,
    schema: Schema,
    value: Any,
    at: str,
    found: list[str],
    seen: set[tuple[int, int]],
) -> None:
    """Add what a value violates, at the innermost place that is to blame."""
    if len(found) >= MAX_MESSAGES or (id(schema), id(value)) in seen or judge.holds(schema, value):
        return
    if isinstance(value, list | dict):
        seen.add((id(schema), id(value)))
    if schema.always is False:
        found.append(f"at {at or 'the root'}: nothing may be here ({schema.pointer or '/'})")
        return
    for word, given in schema.keywords.items():
        if judge.word(schema, word, value):
            continue
        before = len(found)
        for part, inner, place in _parts(schema, word, given, value, at):
            _walk(judge, part, inner, place, found, seen)
        if len(found) == before and len(found) < MAX_MESSAGES:
            where = step(schema.pointer, word)
            found.append(f"at {at or 'the root'}: {_shown(value)} violates {where}")


def _parts(
    schema: Schema, word: str, given: Any, value: Any, at: str
) -> list[tuple[Schema, Any, str]]:
    """The schemas and values that a keyword which must hold of all looks at."""
    match word:
        case "$ref":
            return [(given, value, at)]
        case "allOf":
            return [(part, value, at) for part in given]
        case "properties":
            named = [(part, name) for name, part in given.items() if name in value]
        case "patternProperties":
            named = [(part, n) for p, part in given.items() for n in value if finds(p, n)]
        case "additionalProperties":
            known = schema.keywords.get("properties", ())
            patterns = schema.keywords.get("patternProperties", ())
            named = [
                (given, n)
                for n in value
                if n not in known and not any(finds(pattern, n) for pattern in patterns)
            ]
        case "prefixItems":
            return [(p, v, step(at, i)) for i, (p, v) in enumerate(zip(given, value, strict=False))]
        case "items":
            begin = len(schema.keywords.get("prefixItems", ()))
            return [(given, value[i], step(at, i)) for i in range(begin, len(value))]
        case _:
            return []
    return [(part, value[name], step(at, name)) for part, name in named]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
