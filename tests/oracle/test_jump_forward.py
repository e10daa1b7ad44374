"""Jumps over forced text change the speed, not the text: the same greedy documents with and without
them, wherever the model's own tokens are the tokenizer's. (B44 of the bug reports.)"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ramet.runtime.grammar.compiler import Compilation, Compiler
from ramet.runtime.grammar.guide import Guide
from ramet.runtime.grammar.jump import CONTEXT_TOKENS, Jumps
from ramet.runtime.grammar.spec import Constraint
from ramet.runtime.grammar.vocabulary import Vocabulary
from ramet.runtime.request import SamplingParams
from ramet.runtime.runtime import Runtime
from ramet.runtime.tokenizer import Tokenizer

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "founded": {"type": "integer"}},
    "required": ["city", "founded"],
    "additionalProperties": False,
}
NESTED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "rows": {
            "type": "array",
            "items": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
            "maxItems": 2,
        },
        "kind": {"enum": ["open", "closed"]},
    },
    "required": ["rows", "kind"],
    "additionalProperties": False,
}
FLAGS: dict[str, Any] = {
    "type": "object",
    "properties": {name: {"type": "boolean"} for name in ("is_old", "is_large", "by_the_sea")},
    "required": ["is_old", "is_large", "by_the_sea"],
    "additionalProperties": False,
}
CITIES: list[str] = re.findall(r"\w+", """
Paris Rome Oslo London Berlin Madrid Tokyo Cairo Delhi Lima Athens Vienna Prague Dublin Lisbon
Warsaw Moscow Ankara Tehran Baghdad Kabul Hanoi Manila Seoul Beijing Sydney Perth Nairobi Lagos
Accra Dakar Tunis Algiers Rabat Havana Bogota Quito Santiago Caracas Boston Chicago Denver
Dallas Seattle Toronto Montreal Geneva Zurich Milan Naples
""")  # fmt: skip


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    """The built-in model, exactly."""
    with Runtime(isolation="thread", dtype="float32", pool_tokens=8192) as runtime:
        yield runtime


def forced_otherwise(
    tokenizer: Tokenizer, schema: dict[str, Any], prompt: Sequence[int], ids: Sequence[int]
) -> int | None:
    """Where a document's tokens first spell forced text in another way than the tokenizer; None if
    nowhere."""

    def encode(text: str) -> list[int]:
        return tokenizer.encode([(text, "content")], continuation=True)

    vocabulary = Vocabulary(tokenizer)
    jumps = Jumps(vocabulary, encode)
    grammar = Compiler(vocabulary).compile(Constraint("json_schema", json.dumps(schema)))
    guide = Guide(Compilation.of(grammar), SamplingParams(close_within_budget=False), jumps)
    guide.begin(len(ids))
    path = list(prompt)
    for at, token in enumerate(ids):
        forced = guide.forced(path[-CONTEXT_TOKENS:], len(ids) - at)
        if forced and tuple(ids[at : at + len(forced)]) != forced:
            return at
        guide.take(token, True)
        path.append(token)
    return None


def compared(runtime: Runtime, schemas: Sequence[Any], cities: Sequence[str]) -> dict[str, int]:
    """Counts of documents: in all, equal, and spelled otherwise where forced."""
    counts = {"documents": 0, "equal": 0, "other tokens": 0}
    for schema in schemas:
        prompts = [f"A fact sheet about {city} as JSON:\n" for city in cities]
        order = {"temperature": 0, "max_tokens": 48, "json_schema": json.dumps(schema)}
        jumped = runtime.generate(prompts, order)
        plain = runtime.generate(prompts, {**order, "jump_forward": False})
        assert isinstance(jumped, list)
        assert isinstance(plain, list)
        for one, other in zip(jumped, plain, strict=True):
            json.loads(one["text"])
            counts["documents"] += 1
            if one["text"] == other["text"]:
                counts["equal"] += 1
                continue
            meta = other["meta"]
            ids = meta["output_token_ids"]
            at = forced_otherwise(runtime.tokenizer, schema, meta["prompt_token_ids"], ids)
            assert at is not None, (one["text"], other["text"])
            # Until then there is no difference.
            assert one["meta"]["output_token_ids"][:at] == ids[:at]
            counts["other tokens"] += 1
    return counts


def test_some_documents(runtime: Runtime) -> None:
    counts = compared(runtime, [CITY, FLAGS], CITIES[:4])
    assert counts["documents"] == 8


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_fifty_prompts(runtime: Runtime, capsys: pytest.CaptureFixture[str]) -> None:
    counts = compared(runtime, [CITY, NESTED, FLAGS], CITIES)
    with capsys.disabled():
        print(f"\njump-forward: {counts}")
    assert counts["documents"] == 150
