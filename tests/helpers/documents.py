"""What the tests of JSON Schema share: documents against a grammar, and in a schema's key order."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import llguidance

from ramet.runtime.grammar.json_schema.front import schema_source
from ramet.runtime.grammar.json_schema.spelling import Terminals


class Documents:
    """Which texts a schema's grammar accepts."""

    def __init__(
        self, schema: Any, *, strict: bool = True, whitespace: str = "compact", dumped: bool = False
    ) -> None:
        text = schema if dumped else json.dumps(schema, ensure_ascii=False)
        self.source = schema_source(text, strict=strict, whitespace=whitespace)
        self._make()

    def _make(self) -> None:
        limits = llguidance.LLParserLimits(
            initial_lexer_fuel=1_000_000, step_lexer_fuel=200_000, max_lexer_states=100_000
        )
        native = llguidance.LLMatcher
        self._native = native(
            llguidance.LLTokenizer("byte"),
            native.grammar_from_lark(self.source.lark),
            log_level=0,
            limits=limits,
        )
        assert not self._native.is_error(), self._native.get_error()

    def accept(self, text: str) -> bool:
        """Whether a text is a whole document; no error of the engine passes for a no."""
        data = text.encode()
        for attempt in range(2):
            native = self._native.deep_copy()
            whole = native.try_consume_tokens(list(data)) == len(data) and native.is_accepting()
            if not native.is_error() or native.get_error().startswith("NoExt"):
                break
            assert not attempt, native.get_error()
            self._make()  # Copies share an automaton, which other texts may have filled.
        return whole

    def accept_value(self, value: Any) -> bool:
        """Whether a value is accepted in some order of its keys."""
        return any(map(self.accept, itertools.islice(orders(value), 500)))


def orders(value: Any) -> Iterator[str]:
    """A value as compact JSON, in every order of keys."""
    if isinstance(value, list):
        for parts in itertools.product(*[list(orders(part)) for part in value]):
            yield f"[{','.join(parts)}]"
    elif isinstance(value, dict):
        members = [(json.dumps(key), list(orders(part))) for key, part in value.items()]
        for order in itertools.permutations(members):
            for parts in itertools.product(*[texts for _, texts in order]):
                pairs = zip(order, parts, strict=True)
                yield "{" + ",".join(f"{key}:{part}" for (key, _), part in pairs) + "}"
    else:
        yield json.dumps(value, ensure_ascii=False)


def in_order(value: Any, schema: Any, root: Any = None) -> Any:
    """A value with its keys in the order in which a schema first names them."""
    root = schema if root is None else root
    if isinstance(value, list):
        parts = [part for name in ("items",) for part in _found(schema, name, root)]
        inner = {"allOf": [part for part in parts if isinstance(part, dict)]}
        return [in_order(part, inner, root) for part in value]
    if not isinstance(value, dict):
        return value
    named: dict[str, list[Any]] = {}
    for properties in _found(schema, "properties", root):
        for key, part in properties.items():
            named.setdefault(key, []).append(part)
    rest = [part for part in _found(schema, "additionalProperties", root) if isinstance(part, dict)]
    for patterns in _found(schema, "patternProperties", root):
        rest.extend(patterns.values())
    keys = [*(key for key in named if key in value), *(key for key in value if key not in named)]
    return {key: in_order(value[key], {"allOf": named.get(key, rest)}, root) for key in keys}


def _found(schema: Any, name: str, root: Any, depth: int = 0) -> list[Any]:
    """What a schema, and those that it applies in place, have under a name."""
    if not isinstance(schema, dict) or depth > 20:
        return []
    found: list[Any] = []
    for key, given in schema.items():
        if key == name:
            found.append(given)
        elif key in ("allOf", "anyOf", "oneOf"):
            for part in given:
                found += _found(part, name, root, depth + 1)
        elif key in ("then", "else"):
            found += _found(given, name, root, depth + 1)
        elif key == "$ref" and given.startswith("#"):
            target = root
            for step in given[1:].split("/")[1:]:
                target = target[step]
            found += _found(target, name, root, depth + 1)
    return found


def taken(terminals: Terminals, name: str, texts: list[str]) -> list[str]:
    """Those of `texts` that a terminal takes whole."""
    lines = "\n".join(f"{known}: {text}" for known, text in terminals.lines.items())
    native = llguidance.LLMatcher
    start = native(
        llguidance.LLTokenizer("byte"), native.grammar_from_lark(f"start: {name}\n{lines}")
    )
    found = []
    for text in texts:
        matcher, data = start.deep_copy(), list(text.encode())
        if matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting():
            found.append(text)
    return found
