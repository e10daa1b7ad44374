from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

import jsonschema
import pytest

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar import compiler as compiler_module
from ramet.runtime.grammar.acceptance import check_text_against
from ramet.runtime.grammar.compiler import Bounds, Compiler
from ramet.runtime.grammar.front_ends import source_of
from ramet.runtime.grammar.limits import Limits
from ramet.runtime.grammar.source import Source
from ramet.runtime.grammar.spec import Constraint
from ramet.runtime.grammar.vocabulary import Vocabulary
from ramet.runtime.tokenizer import Tokenizer


def regex(text: str) -> Constraint:
    return Constraint("regex", text)


def test_the_last_used_are_kept() -> None:
    compiler = Compiler(Vocabulary(Tokenizer.tiny()), capacity=2)
    a = compiler.compile(regex("a"))
    b = compiler.compile(regex("b"))
    assert compiler.compile(regex("a")) is a
    compiler.compile(regex("c"))
    assert compiler.compile(regex("a")) is a
    assert compiler.compile(regex("b")) is not b


def test_a_failure_is_not_kept_and_harms_nobody() -> None:
    bounds = Bounds(usual=Limits(compile_fuel=20_000), large=Limits(compile_fuel=20_000))
    compiler = Compiler(Vocabulary(Tokenizer.tiny()), bounds=bounds)
    bad = regex("|".join(f"word{i * 7919 % 10**6}" for i in range(3000)))
    good = compiler.compile(regex("ab"))
    for _ in range(2):
        with pytest.raises(GrammarError, match="refuses it"):
            compiler.compile(bad)
    assert good.matcher().advance(ord("a"))


def test_what_compiles_at_once_waits_for_nothing_that_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on = threading.Event()

    def source_apart(constraint: Constraint, *_: object) -> Source:
        assert go_on.wait(60)
        return source_of(regex("x"))

    monkeypatch.setattr(compiler_module, "source_apart", source_apart)
    compiler = Compiler(Vocabulary(Tokenizer.tiny()), bounds=Bounds(apart_bytes=10))
    slow = [compiler.start(regex(f"a long one of them, {i}")) for i in range(5)]
    assert compiler.start(regex("ab")).wait(60)
    assert not any(one.done for one in slow)
    go_on.set()
    assert all(one.grammar.matcher().advance(ord("x")) for one in slow)


@pytest.mark.parametrize(
    ("text", "accepted", "refused"),
    [
        ("(a+)+$", ["a" * 2000], ["a" * 2000 + "b", ""]),
        ("(a?){40}", ["", "a" * 40], ["a" * 41]),
        ("(a?){50}a{50}", ["a" * 50, "a" * 100], ["a" * 49, "a" * 101]),
        ("[0-9]{1,100000}", ["1", "1" * 5000], ["", "x"]),
        ("[0-9a-f]{3,15000}", ["abc", "1" * 15000], ["ab", "1" * 15001]),
        ("([a-z]{1,50} ){1,1000}", ["a " * 1000], ["a " * 1001, "a" * 51 + " "]),
        ("(.*a.{20}){3}", [("a" + "x" * 20) * 3], ["x" * 80]),
    ],
)
def test_hostile_regexes_are_enforced(text: str, accepted: list[str], refused: list[str]) -> None:
    """B40 and B41 of the bug reports."""
    constraint = regex(text)
    assert [bool(check_text_against(constraint, one)) for one in accepted] == [True] * len(accepted)
    assert [bool(check_text_against(constraint, one)) for one in refused] == [False] * len(refused)


def test_ten_thousand_alternatives() -> None:
    names = [f"w{i * 7919 % 10**6}" for i in range(10_000)]
    constraint = regex("|".join(names))
    assert check_text_against(constraint, names[1234])
    assert not check_text_against(constraint, "w1234567")
    assert Compiler(Vocabulary(Tokenizer.tiny())).compile(constraint).matcher().next_tokens


def json_schema(schema: Any) -> Constraint:
    return Constraint("json_schema", json.dumps(schema))


def test_what_the_engine_would_never_end_has_a_deadline() -> None:
    """It looks at its limits between characters, and one of them can take for ever here."""
    patterns = [f"{a}.*{b}" for a in "abcdef" for b in "ghijkl"]
    hostile = json_schema({"allOf": [{"type": "string", "pattern": one} for one in patterns]})
    compiler = Compiler(Vocabulary(Tokenizer.tiny()), bounds=Bounds(seconds=2.0))
    with pytest.raises(GrammarError, match="not compiled within 2 s"):
        compiler.compile(hostile)
    assert compiler.compile(json_schema({"type": "integer"})).matcher().next_tokens


def test_what_exceeds_the_usual_limits_within_a_text_is_built_under_others() -> None:
    compiler = Compiler(Vocabulary(Tokenizer.tiny()))
    matcher = compiler.compile(json_schema({"type": "string", "pattern": r"\bfoo\b"})).matcher()
    for byte in b'"a foo b"':
        assert matcher.advance(byte)
    assert matcher.finished


@pytest.mark.parametrize(
    "schema",
    [
        {"if": {"type": "string"}, "then": {"minLength": 2}, "type": ["string", "object"]},
        {"type": "string", "not": {"enum": ["", "a"]}, "maxLength": 3},
        {
            "properties": {"in": {"enum": ["path"]}, "required": {"type": "boolean"}},
            "required": ["in"],
            "type": "object",
            "if": {"properties": {"in": {"const": "path"}}},
            "then": {"properties": {"required": {"const": True}}, "required": ["required"]},
        },
        {
            "type": "object",
            "properties": {"name": {"enum": ["weather"]}, "arguments": {"type": "object"}},
            "required": ["name", "arguments"],
            "if": {"properties": {"name": {"const": "weather"}}},
            "then": {"properties": {"arguments": {"$ref": "#/$defs/where"}}},
            "$defs": {
                "where": {
                    "properties": {"city": {"type": "string"}},
                    "required": ["city"],
                    "additionalProperties": False,
                }
            },
        },
    ],
)
def test_a_grammar_is_closed_from_a_document_that_it_takes(schema: Any) -> None:
    """Also where the schema says what the closing's own shapes know nothing of."""
    grammar = Compiler(Vocabulary(Tokenizer.tiny())).compile(json_schema(schema))
    assert grammar.opening is not None
    jsonschema.validate(json.loads(grammar.opening), schema)
    assert check_text_against(grammar.constraint, grammar.opening.decode())


def test_without_the_mask_engine_only_constraints_fail() -> None:
    code = """
import sys
for name in ("llguidance", "regex", "lark", "pydantic"):
    sys.modules[name] = None
from ramet.runtime.engine import Engine
from ramet.runtime.config import RuntimeConfig
from ramet.runtime.runtime import Runtime
from ramet.runtime.errors import UnsupportedFeature
with Runtime("tiny", isolation="thread", pool_tokens=1024) as runtime:
    assert runtime.generate("hello", {"max_tokens": 3})["meta"]["completion_tokens"] <= 3
    try:
        runtime.generate("hello", {"regex": "[0-9]"})
    except UnsupportedFeature as error:
        assert "llguidance" in str(error)
    else:
        raise AssertionError("unconstrained")
    assert runtime.generate("hello", {"max_tokens": 3})["text"] is not None
print("fine")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "fine", done.stderr
