"""A closing is found after every byte, fits the bound, and makes a valid document."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.runtime.errors import GrammarError
from ramet.runtime.grammar.closing.closer import Closer, closing_for
from ramet.runtime.grammar.closing.walk import Walk
from ramet.runtime.grammar.matcher import Matcher

ROOT = Path(__file__).resolve().parents[4]


def data_file() -> Path:
    """The schemas with documents, beside the repository that this checkout belongs to."""
    homes = [ROOT]
    link = ROOT / ".git"
    if link.is_file():  # A worktree: `gitdir: …/.git/worktrees/name`.
        homes.append(Path(link.read_text().split(":", 1)[1].strip()).parents[2])
    for home in homes:
        path = home.parent / "shared" / "data" / "json_schemas.jsonl"
        if path.exists():
            return path
    pytest.skip("shared/data/json_schemas.jsonl is not beside this repository")


def closer_of(schema: Any) -> Closer:
    return Closer(json.dumps(schema))


def compact(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def validator(schema: Any) -> Any:
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return kind(schema)


def checked_closing(walk: Walk, matcher: Matcher, text: bytes, valid: Any) -> bytes | None:
    """The closing after `text`, after what must hold of it was asserted."""
    bound = walk.bound
    closing = closing_for(walk, matcher)
    if closing is not None:
        assert bound is None or len(closing) <= bound, (text, closing)
        valid.validate(json.loads(text + closing))
    return closing


def takes(matcher: Matcher, text: bytes) -> bool:
    fresh = matcher.copy()
    return all(fresh.advance(byte) for byte in text) and fresh.accepting


def test_every_prefix_of_every_document_closes(matched):
    """All of 219 real schemas that the front end enforces, 217, with all their valid documents."""
    count: Counter[str] = Counter()
    for line in data_file().read_text().splitlines():
        case = json.loads(line)
        start = matched(case["schema"])
        if start is None:
            count["refused schemas"] += 1
            continue
        count["schemas"] += 1
        closer, valid = closer_of(case["schema"]), validator(case["schema"])
        count["schemas not understood whole"] += not closer.sure
        for test in case["tests"]:
            if not test["valid"]:
                continue
            text, matcher, walk = compact(test["data"]), start.copy(), closer.walk()
            for at in range(len(text) + 1):
                closing = checked_closing(walk, matcher, text[:at], valid)
                assert closing is not None, (case["id"], text[:at])
                count["prefixes"] += 1
                count["without a bound"] += walk.bound is None
                if at % 29 == 0:
                    assert takes(start, text[:at] + closing), (case["id"], text[:at])
                if at < len(text):
                    if not matcher.advance(text[at]):
                        count["documents that the grammar refuses"] += 1
                        break
                    walk.push(text[at : at + 1])
    assert count["refused schemas"] <= 2, count
    assert count["schemas not understood whole"] <= 16, count
    assert count["documents that the grammar refuses"] <= 2, count
    assert count["prefixes"] > 51_000, count
    assert count["without a bound"] < count["prefixes"] / 20, count


PATTERNS = ("^[a-z]+$", "^a{3,6}$", "b", "^(foo|bar)[0-9]{2}$", "é$", "^\\w+$", "^(ab)*$")
FORMATS = ("date", "date-time", "time", "email", "uuid", "ipv4", "ipv6", "hostname", "uri")
CONSTANTS = ("red", "redder", 'gre"y', "é", "", 1, 12, -3.5, None, True, [1, "a"], {"x": 1})
NAMES = ("a", "b", "ab", "aba", 'é"', "x y")

scalars = st.one_of(
    st.sampled_from([{}, {"type": "null"}, {"type": "boolean"}, {"type": ["integer", "null"]}]),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"])},
        optional={
            "minimum": st.sampled_from([-40, 0, 2.5, 1000]),
            "maximum": st.sampled_from([1003, 2000.75, 100000]),
        },
    ),
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={"minLength": st.integers(0, 4), "maxLength": st.integers(6, 9)},
    ),
    st.sampled_from([{"type": "string", "pattern": pattern} for pattern in PATTERNS]),
    st.sampled_from([{"type": "string", "format": name} for name in FORMATS]),
    st.lists(st.sampled_from(CONSTANTS), min_size=1, max_size=4).map(lambda v: {"enum": v}),
)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    properties = st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    objects = properties.flatmap(
        lambda found: st.fixed_dictionaries(
            {
                "type": st.just("object"),
                "properties": st.just(found),
                "required": st.lists(st.sampled_from(sorted(found)), unique=True)
                if found
                else st.just([]),
            },
            optional={"additionalProperties": st.one_of(st.just(False), inner)},
        )
    )
    arrays = st.fixed_dictionaries(
        {"type": st.just("array"), "items": inner},
        optional={"minItems": st.integers(0, 3), "maxItems": st.integers(3, 5)},
    )
    either = st.lists(inner, min_size=1, max_size=3).map(lambda found: {"anyOf": found})
    return st.one_of(objects, arrays, either)


schemas = st.recursive(scalars, containers, max_leaves=8)


@settings(max_examples=150, deadline=None)
@given(schema=schemas, random=st.randoms(use_true_random=False))
def test_every_prefix_of_whatever_a_matcher_allows_closes(matched, schema, random):
    matcher = matched(schema)
    if matcher is None:
        return
    walk, valid, text = closer_of(schema).walk(), validator(schema), b""
    for _ in range(40):
        closing = checked_closing(walk, matcher, text, valid)
        assert closing is not None, text
        allowed = [byte for byte in range(256) if matcher.next_tokens >> byte & 1]
        allowed = [byte for byte in allowed if byte != 0x5C] or allowed
        if not allowed:
            break
        liked = [byte for byte in allowed if byte in b'"}],:']
        byte = random.choice(liked if liked and random.random() < 0.5 else allowed)
        assert matcher.advance(byte)
        walk.push(bytes([byte]))
        text += bytes([byte])


def within_budget(schema: Any, matcher: Matcher, budget: int, wish: str) -> bytes:
    """What a model writes that wishes for the same characters again and again, a byte a token."""
    walk = closer_of(schema).walk()
    closing, text = closing_for(walk, matcher), b""
    assert closing is not None
    assert len(closing) <= budget
    while not (matcher.accepting and not matcher.next_tokens):
        allowed = [byte for byte in wish.encode() if matcher.next_tokens >> byte & 1]
        byte = allowed[0] if allowed else (closing or b"?")[0]
        longer, further = walk.copy(), matcher.copy()
        longer.push(bytes([byte]))
        assert further.advance(byte)
        left = budget - len(text) - 1
        follows = closing_for(longer, further)
        if longer.bound is not None and longer.bound <= left:
            assert follows is not None
            assert len(follows) <= left
        if follows is None or len(follows) > left:
            byte, follows = closing[0], closing[1:]
            longer, further = walk.copy(), matcher.copy()
            longer.push(bytes([byte]))
            assert further.advance(byte)
        walk, matcher, closing = longer, further, follows
        text += bytes([byte])
        assert len(text) + len(closing) <= budget
    return text


@pytest.mark.parametrize("wish", ['x"', "9", "-9x", '\\"u0x', "x"])
def test_a_verbose_model_ends_within_any_budget_that_the_shortest_fits(matched, wish):
    schema = {
        "type": "object",
        "properties": {"score": {"type": "integer"}, "comment": {"type": "string"}},
        "required": ["score", "comment"],
        "additionalProperties": False,
    }
    shortest = closer_of(schema).shortest
    assert shortest == b'{"score":0,"comment":""}'
    for budget in (len(shortest), len(shortest) + 1, len(shortest) + 7, 60, 200):
        text = within_budget(schema, matched(schema), budget, wish)
        assert len(text) <= budget
        jsonschema.validate(json.loads(text), schema)


def test_the_empty_closing_means_that_the_document_is_whole(matched):
    matcher, walk = matched({"type": "integer"}), closer_of({"type": "integer"}).walk()
    assert matcher.advance(ord("7"))
    walk.push(b"7")
    assert closing_for(walk, matcher) == b""


def test_the_matcher_stays_where_it_was(matched):
    schema = {"type": "string", "pattern": "^(foo|bar)[0-9]{2}$"}
    matcher, walk = matched(schema), closer_of(schema).walk()
    for byte in b'"f':
        assert matcher.advance(byte)
        walk.push(bytes([byte]))
    before = matcher.next_tokens
    assert closing_for(walk, matcher) == b'oo00"'
    assert matcher.next_tokens == before
    assert before >> ord("o") & 1


def test_white_space_between_is_nothing(matched):
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"const": 1}}}}
    matcher, walk = matched(schema, "flexible"), closer_of(schema).walk()
    for byte in b'{\n "a" :\t[ 1 , 1 ':
        assert matcher.advance(byte)
        walk.push(bytes([byte]))
        assert closing_for(walk, matcher) is not None
    assert closing_for(walk, matcher) == b"]}"


@pytest.mark.parametrize("text", ["", "[", '"x"', '{"type": 3}', '{"$ref": "#/nowhere"}'])
def test_what_is_no_schema_is_an_error(text):
    with pytest.raises(GrammarError, match="json_schema"):
        Closer(text)


def test_a_schema_without_documents_has_no_shortest():
    endless = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    for schema in (False, endless, {"allOf": [{"type": "null"}, {"type": "string"}]}):
        assert closer_of(schema).shortest is None
        assert closer_of(schema).walk().bound is None


def items(size: int) -> Any:
    return {"type": "array", "items": {"type": "object", "required": ["k"]}, "minItems": size}


def nested(depth: int) -> Any:
    schema: Any = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema, "minItems": 1}
    return schema


HOSTILE = {
    "ten thousand values": {"enum": [f"value {n}" for n in range(10_000)]},
    "ten thousand constants": {"anyOf": [{"const": f"value {n}"} for n in range(2_000)]},
    "many properties": {
        "properties": {f"p{n}": {"type": "string"} for n in range(2_500)},
        "required": [f"p{n}" for n in range(2_500)],
    },
    "a thousand items": items(1000),
    "alternatives of alternatives": {
        "allOf": [{"anyOf": [{"minimum": n} for n in range(9)]} for _ in range(9)]
    },
    "much of much": {
        "$defs": {
            "x": {"allOf": [{"anyOf": [{"minimum": n} for n in range(9)]} for _ in range(9)]}
        },
        "properties": {f"p{n}": {"$ref": "#/$defs/x", "maximum": n} for n in range(900)},
    },
    "wide alternatives": {
        "allOf": [{"anyOf": [{"minProperties": n} for n in range(4)]} for _ in range(6)],
        "properties": {f"p{n}": {"type": "string"} for n in range(2_000)},
    },
    "a long string": {"type": "string", "minLength": 100_000},
    "a huge count": {"type": "array", "minItems": 10**12},
    "a huge length": {"type": "string", "minLength": 10**12},
    "huge numbers": {"minimum": 10**290, "maximum": 10**299, "type": "integer"},
    "a large pattern": {"type": "string", "pattern": "^([a-z]{1,50}-){1,50}$"},
    "too large a pattern": {"type": "string", "pattern": "^(([a-z]{1,99}-){1,99}x){9}$"},
    "deep": nested(60),
    "recursive": {"properties": {"a": {"$ref": "#"}}, "minProperties": 1, "type": "object"},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_schemas_take_bounded_time(name):
    began = time.perf_counter()
    closer = closer_of(HOSTILE[name])
    walk = closer.walk()
    for data in (b"", b'{"', b"p1", b'":"', b'v",'):
        walk.push(data)
        assert len(list(walk.closings())) <= 16
    assert time.perf_counter() - began < 10
    shortest = closer.shortest
    if shortest is not None:
        assert len(shortest) < 1 << 20
        json.loads(shortest)


def test_a_thousand_items_are_closed_rightly():
    schema = items(1000)
    walk = closer_of(schema).walk()
    walk.push(b'[{"k":1},{"k":2},{"')
    document = json.loads(b'[{"k":1},{"k":2},{"' + next(walk.closings()))
    jsonschema.validate(document, schema)
    assert len(document) == 1000


def test_deep_documents_close():
    walk = closer_of({}).walk()
    began = time.perf_counter()
    for _ in range(20_000):
        walk.push(b'{"a":[')
    assert next(walk.closings()) == b"]}" * 20_000
    assert walk.bound is not None
    assert walk.bound >= 40_000
    assert time.perf_counter() - began < 10


def test_long_documents_cost_little_a_byte():
    walk = closer_of({"items": {"type": "string", "minLength": 3}}).walk()
    chunk = b'"' + b"x" * 98 + b'",'
    began = time.perf_counter()
    walk.push(b"[" + chunk * 10_000)
    for _ in range(10_000):
        walk = walk.copy()
        walk.push(chunk)
        assert walk.bound is not None
    assert time.perf_counter() - began < 5
