"""A finished constrained output always satisfies its constraint, by judges that know no mask:
Python's `re`, the package jsonschema, Lark's Earley parser. At temperature 1.5, where a model says
anything."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import lark
import pytest

from ramet.runtime.errors import GrammarError, InvalidArgument
from ramet.runtime.runtime import Runtime

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data" / "json_schemas.jsonl"
REGEXES = (
    "[A-Za-z]{1,20}",
    "(yes|no|maybe)( please)?",
    r"\d{4}-\d{2}-\d{2}",
    r"(\w+ ){1,6}\w+\.",
    "[^x]{0,40}x",
    "(是|否|不确定)+",
    r'"(\\.|[^"\\])*"',
)
GRAMMARS = (
    'start: sum\nsum: product | sum "+" product\nproduct: atom | product "*" atom\n'
    'atom: NUMBER | "(" sum ")"\nNUMBER: /[1-9][0-9]*/\n',
    'start: pair ("," pair)*\npair: KEY "=" VALUE\nKEY: /[a-z]+/\nVALUE: /[a-z0-9 ]+/\n',
)
TAGS = {
    "structures": [
        {"begin": "<get>", "schema": {"enum": ["a", "b", 3]}, "end": "</get>"},
        {"begin": "<put=", "regex": "[0-9]{1,3}", "end": ">"},
    ],
    "triggers": ["<get", "<put"],
}
Judge = Callable[[str], bool]


def by_tags(text: str) -> bool:
    """Whether each trigger begins one of the two regions."""
    region = r'<get>(?:"a"|"b"|3)</get>|<put=[0-9]{1,3}>'
    return not re.search("<get|<put", re.sub(region, " ", text))


def judges() -> Iterator[tuple[dict[str, Any], Judge]]:
    """Constraints of every kind, each with who judges their texts."""
    for regex in REGEXES:
        whole = re.compile(regex).fullmatch
        yield {"kind": "regex", "text": regex}, lambda text, match=whole: match(text) is not None
    for grammar in GRAMMARS:
        parser = lark.Lark(grammar, parser="earley", lexer="dynamic_complete")

        def parses(text: str, parser: lark.Lark = parser) -> bool:
            try:
                parser.parse(text)
            except lark.exceptions.UnexpectedInput:
                return False
            return True

        yield {"kind": "lark", "text": grammar}, parses
    pairs = re.compile("[a-z]+=[0-9]+(,[a-z]+=[0-9]+)*").fullmatch
    ebnf = 'root ::= pair ("," pair)*\npair ::= [a-z]+ "=" [0-9]+'
    yield {"kind": "ebnf", "text": ebnf}, lambda text: pairs(text) is not None
    yield {"kind": "structural_tags", "text": json.dumps(TAGS)}, by_tags


def schema_judges() -> Iterator[tuple[dict[str, Any], Judge]]:
    """The schemas of the data set."""
    for number, line in enumerate(DATA.read_text().splitlines()):
        schema = json.loads(line)["schema"]
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)

        valid = kind(schema).is_valid
        order = {"kind": "json_schema", "text": json.dumps(schema)}
        if number % 3 == 2:
            order["whitespace"] = "flexible"
        yield order, lambda text, valid=valid: bool(valid(json.loads(text)))


def judged(
    runtime: Runtime, orders: list[tuple[dict[str, Any], Judge]], count: int, max_tokens: int
) -> Counter[str]:
    """What became of `count` outputs under each of the constraints; asserts that whatever is
    finished is right."""
    found: Counter[str] = Counter()
    for number, (constraint, judge) in enumerate(orders):
        params = {"constraint": constraint, "temperature": 1.5, "seed": number, "n": count}
        try:
            result = runtime.generate("Write: ", {**params, "max_tokens": max_tokens})
        except (GrammarError, InvalidArgument) as error:
            # Before anything is computed: a schema that can't be enforced, or no room for it.
            if not re.search("can't be|max_tokens=", str(error)):
                raise
            found[type(error).__name__] += count
            continue
        assert isinstance(result, dict)
        texts, metas = result["text"], result["meta"]
        if count == 1:
            texts, metas = [texts], [metas]
        for text, meta in zip(texts, metas, strict=True):
            if not meta["constraint"]["complete"]:
                assert meta["finish_reason"] == "length"
                found["cut"] += 1
                continue
            assert judge(text), (constraint, text)
            found["finished"] += 1
    return found


@pytest.fixture(scope="module")
def tiny() -> Iterator[Runtime]:
    """Random weights over bytes."""
    with Runtime("tiny", isolation="thread", pool_tokens=16384) as runtime:
        yield runtime


def test_random_weights(tiny: Runtime) -> None:
    found = judged(tiny, list(judges()), 6, 120)
    assert found["finished"] > 20
    assert set(found) <= {"finished", "cut"}


def test_random_weights_on_real_schemas(tiny: Runtime) -> None:
    if not DATA.exists():
        pytest.skip("shared/data/json_schemas.jsonl is not beside this repository")
    found = judged(tiny, list(schema_judges())[::11], 1, 700)
    assert found["finished"] >= 15


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_two_thousand_outputs(tiny: Runtime, capsys: pytest.CaptureFixture[str]) -> None:
    if not DATA.exists():
        pytest.skip("shared/data/json_schemas.jsonl is not beside this repository")
    found = judged(tiny, list(judges()), 40, 200) + judged(tiny, list(schema_judges()), 7, 800)
    with Runtime(isolation="thread", pool_tokens=16384) as runtime:
        found += judged(runtime, list(judges()), 10, 60)
        found += judged(runtime, list(schema_judges())[::2], 2, 300)
    with capsys.disabled():
        print(f"\nconstrained outputs: {dict(found)}")
    assert found["finished"] >= 2000
