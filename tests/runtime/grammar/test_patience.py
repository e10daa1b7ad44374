from __future__ import annotations

import json
import time

import pytest

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar import compiler
from ramet.runtime.grammar.compiler import Bounds, compile_constraint
from ramet.runtime.grammar.front_ends import source_of
from ramet.runtime.grammar.patience import OutOfPatience, check, patience
from ramet.runtime.grammar.rules import plan
from ramet.runtime.grammar.source import Source
from ramet.runtime.grammar.spec import Constraint
from ramet.runtime.grammar.vocabulary import Vocabulary
from ramet.runtime.tokenizer import Tokenizer

SLOW = {
    "doubling": (
        "ebnf",
        "root ::= r0\n"
        + "\n".join(f'r{i} ::= r{i + 1} r{i + 1} | "x"' for i in range(60))
        + '\nr60 ::= "y"',
    ),
    "doubling terminals": (
        "lark",
        "start: T0\n"
        + "\n".join(f'T{i}: T{i + 1} T{i + 1} | "x"' for i in range(60))
        + '\nT60: "y"',
    ),
    "a chain of options": (
        "ebnf",
        "root ::= r0\n"
        + "\n".join(f'r{i} ::= r{i + 1}? [a-c]* | r{i + 1} "b"' for i in range(500))
        + '\nr500 ::= "y"',
    ),
    "many sets": ("ebnf", "root ::= " + " ".join(f"[^{chr(0x100 + i)}]" for i in range(2500))),
    "many terminals": (
        "ebnf",
        'root ::= ("(" root ")" | '
        + " | ".join(f'[{chr(0x100 + i)}-{chr(0x400 + i * 2)}]+ "{i}"' for i in range(600))
        + ")*",
    ),
    "many words": (
        "lark",
        "start: ("
        + " | ".join(f'"w{i * 7919 % 10**5}" start' for i in range(500))
        + ' | NAME)* ";"\nNAME: /[a-z0-9]+/\n%ignore " "',
    ),
    "many stars": (
        "ebnf",
        "root ::= " + " ".join(f"[a-c{chr(0x100 + i)}]*" for i in range(600)) + ' ("(" root ")")?',
    ),
    "without case": ("regex", "(?i)" + "".join(f"[^{chr(0x100 + i)}]" for i in range(2000))),
    "sets in a schema": (
        "json_schema",
        json.dumps(
            {"type": "string", "pattern": "".join(f"[^{chr(256 + i)}\\W]" for i in range(600))}
        ),
    ),
    "exclusive patterns": (
        "json_schema",
        json.dumps({"oneOf": [{"type": "string", "pattern": f"^[a-z]*{i}$"} for i in range(90)]}),
    ),
    "in a region": (
        "structural_tags",
        json.dumps(
            {
                "type": "structural_tag",
                "format": {
                    "type": "grammar",
                    "grammar": "root ::= " + " ".join(f"[^{chr(256 + i)}]" for i in range(1200)),
                },
            }
        ),
    ),
}


def test_it_ends_where_it_is_asked_for() -> None:
    check()
    with patience(60):
        check()
        with patience(-1), pytest.raises(OutOfPatience):
            check()
        check()
    check()


@pytest.mark.parametrize("name", SLOW)
def test_what_takes_long_to_read_is_left_to_another_process(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, text = SLOW[name]
    constraint = Constraint(kind, text)
    bounds = Bounds(patience=0.1, closing=0.1)
    assert len(text) <= bounds.apart_bytes
    apart: list[Constraint] = []

    def source_apart(constraint: Constraint, *_: object) -> Source:
        apart.append(constraint)
        return Source('start: "a"\n')

    monkeypatch.setattr(compiler, "source_apart", source_apart)
    source_of(Constraint("lark", "start: /[^\\w]/i\n%import common.WS\n"))  # Warm.
    before = time.thread_time()
    compile_constraint(constraint, None, bounds)
    assert apart == [constraint]
    assert time.thread_time() - before < 1


def test_a_grammar_that_takes_long_is_the_same_one(monkeypatch: pytest.MonkeyPatch) -> None:
    constraint = Constraint("ebnf", 'root ::= ("a" root "b")? [c-e]*')
    here = compile_constraint(constraint, None, Bounds())
    source_of.cache_clear()
    apart = compile_constraint(constraint, None, Bounds(patience=-1, seconds=60))
    assert apart.source == here.source


def test_a_grammar_that_grows_too_large_is_refused_as_soon_as_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind, text = SLOW["many terminals"]
    monkeypatch.setattr(plan, "MAX_ITEMS", 500)
    with pytest.raises(GrammarError, match=r"^ebnf: too large: read character by character"):
        source_of(Constraint(kind, text))


def test_documents_whose_closing_takes_long_to_work_out_are_not_closed() -> None:
    schema = {
        "type": "object",
        "properties": {f"p{i}": {"type": "string", "pattern": f"a.{{{i}}}b"} for i in range(100)},
        "required": [f"p{i}" for i in range(100)],
    }
    constraint, vocabulary = (
        Constraint("json_schema", json.dumps(schema)),
        Vocabulary(Tokenizer.tiny()),
    )
    assert compile_constraint(constraint, vocabulary, Bounds(closing=-1)).closer is None
    assert compile_constraint(constraint, vocabulary, Bounds(closing=60)).closer is not None
