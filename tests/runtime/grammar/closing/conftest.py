"""Schemas as matchers over bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.json_schema.front import schema_source
from ramet.runtime.grammar.matcher import Matcher

llguidance = pytest.importorskip("llguidance")

Make = Callable[..., "Matcher | None"]

BYTES = llguidance.LLTokenizer("byte")


def byte_bits(mask: bytes) -> int:
    return int.from_bytes(mask[:32], "little")


def lark_matcher(text: str) -> Matcher:
    def make() -> Any:
        native = llguidance.LLMatcher(
            BYTES, llguidance.LLMatcher.grammar_from_lark(text), log_level=0
        )
        native.compute_bitmask()
        assert not native.is_error(), native.get_error()
        return native

    return Matcher(make(), make, byte_bits)


def byte_matcher(schema: Any, whitespace: str = "compact") -> Matcher | None:
    try:
        return lark_matcher(schema_source(json.dumps(schema), whitespace=whitespace).lark)
    except GrammarError:
        return None


@pytest.fixture(scope="session")
def matched() -> Make:
    """A matcher over bytes at the beginning of a schema's documents; None if it is refused."""
    return byte_matcher


@pytest.fixture(scope="session")
def larked() -> Callable[[str], Matcher]:
    """A matcher over bytes of a grammar in Lark's syntax."""
    return lark_matcher
