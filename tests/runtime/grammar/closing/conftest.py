"""Schemas as matchers over bytes, without a front end of ours between."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ramet.runtime.grammar.matcher import Matcher

llguidance = pytest.importorskip("llguidance")

Make = Callable[..., "Matcher | None"]

BYTES = llguidance.LLTokenizer("byte")


def byte_bits(mask: bytes) -> int:
    return int.from_bytes(mask[:32], "little")


def native(schema: Any, flexible: bool = False) -> Any:
    """llguidance's own reading of a schema."""
    schema = {} if schema is True else dict(schema)
    schema["x-guidance"] = {"whitespace_flexible": flexible}
    text = '%llguidance {"no_forcing": true}\nstart: %json ' + json.dumps(schema)
    found = llguidance.LLMatcher(BYTES, llguidance.LLMatcher.grammar_from_lark(text), log_level=0)
    if not found.is_error():
        found.compute_bitmask()
    return found


def byte_matcher(schema: Any, flexible: bool = False) -> Matcher | None:
    found = native(schema, flexible)
    if found.is_error():
        return None
    return Matcher(found, lambda: native(schema, flexible), byte_bits)


@pytest.fixture(scope="session")
def matched() -> Make:
    """A matcher over bytes at the beginning of a schema's documents; None if it doesn't compile."""
    return byte_matcher
