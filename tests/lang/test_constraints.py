from __future__ import annotations

import json
from typing import Any

import pytest
from fake_backend import FakeBackend
from pydantic import BaseModel

import ramet.lang as rm
from ramet.lang.constraints import check_dtype
from ramet.lang.expr import Gen
from ramet.lang.ir import REGEX_BOOL, REGEX_FLOAT, REGEX_INT, REGEX_STR
from ramet.lang.typed import JsonReader, TagsReader, TreeReader, TypeReader
from ramet.runtime.grammar.source import Source
from ramet.runtime.grammar.tag_pieces import Tagged
from ramet.runtime.graph import Graph
from ramet.runtime.tokenizer import Tokenizer


class Person(BaseModel):
    name: str
    age: int = 0


class Tool(BaseModel):
    x: int


PERSON = {"properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
TAGS = {"structures": [{"begin": "<a>", "regex": "[0-9]", "end": "</a>"}], "triggers": ["<a>"]}


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The front ends take any text: what is tested here is what they are given."""
    monkeypatch.setattr("ramet.lang.constraints.source_of", lambda _: Source(""))


def fields(node: object) -> dict[str, Any]:
    assert isinstance(node, Gen)
    return dict(node.fields)


def constraint(node: object) -> Any:
    return fields(node)["constraint"]


def test_a_regex_becomes_a_field() -> None:
    node = rm.gen("x", regex="[0-9]+", max_tokens=4)
    assert fields(node) == {
        "max_new_tokens": 4,
        "constraint": {"kind": "regex", "text": "[0-9]+"},
    }
    assert isinstance(node, Gen)
    assert node.dtype is None


@pytest.mark.parametrize(
    ("dtype", "name", "regex"),
    [
        (int, "int", REGEX_INT),
        ("int", "int", REGEX_INT),
        (float, "float", REGEX_FLOAT),
        ("float", "float", REGEX_FLOAT),
        (bool, "bool", REGEX_BOOL),
        ("bool", "bool", REGEX_BOOL),
        (str, "str", REGEX_STR),
        ("str", "str", REGEX_STR),
    ],
)
def test_a_dtype_is_a_regex_with_a_type(dtype: Any, name: str, regex: str) -> None:
    node = rm.gen("x", dtype=dtype)
    assert constraint(node) == {"kind": "regex", "text": regex}
    assert isinstance(node, Gen)
    assert node.dtype == name == check_dtype(dtype)


def test_shorthands() -> None:
    assert constraint(rm.gen_int("x", 5)) == constraint(rm.gen("x", dtype=int))
    assert constraint(rm.gen_string("x", stop="!")) == constraint(rm.gen("x", dtype=str))
    node = rm.gen_int("x", max_tokens=5)
    assert isinstance(node, Gen)
    assert node.fields["max_new_tokens"] == 5
    assert node.site.startswith(__file__)
    with pytest.raises(rm.InvalidArgument, match="dtype is given twice"):
        rm.gen_int("x", dtype=str)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("argument", "value", "kind", "text", "reader"),
    [
        ("json_schema", '{"b": 1, "a": 2}', "json_schema", '{"b": 1, "a": 2}', JsonReader),
        ("json_schema", {"b": "é", "a": []}, "json_schema", '{"b": "é", "a": []}', JsonReader),
        ("json_schema", True, "json_schema", "true", JsonReader),
        ("json_schema", {}, "json_schema", "{}", JsonReader),
        ("lark", "start: x", "lark", "start: x", TreeReader),
        ("ebnf", "root ::= x", "ebnf", "root ::= x", type(None)),
        ("structural_tags", json.dumps(TAGS), "structural_tags", json.dumps(TAGS), TagsReader),
        ("structural_tags", TAGS, "structural_tags", json.dumps(TAGS), TagsReader),
        ("type", int, "json_schema", '{"type": "integer"}', TypeReader),
        ("type", type(None), "json_schema", '{"type": "null"}', TypeReader),
    ],
)
def test_other_constraints_are_texts_with_a_reader(
    argument: str, value: Any, kind: str, text: str, reader: type
) -> None:
    node = rm.gen("x", **{argument: value})
    assert fields(node) == {"constraint": {"kind": kind, "text": text}}
    assert isinstance(node, Gen)
    assert type(node.dtype) is reader


@pytest.mark.usefixtures("unchecked")
def test_a_model_given_as_a_schema_is_its_type() -> None:
    node = rm.gen("x", json_schema=Person)
    assert isinstance(node, Gen)
    assert isinstance(node.dtype, TypeReader)
    assert constraint(node) == constraint(rm.gen("x", type=Person))
    assert list(json.loads(constraint(node)["text"])["properties"]) == ["name", "age"]


@pytest.mark.usefixtures("unchecked")
def test_options_go_with_the_constraint() -> None:
    options = {"strict": False, "whitespace": "flexible", "jump_forward": False}
    node = rm.gen("x", json_schema={}, close_within_budget=False, **options)
    assert fields(node) == {
        "constraint": {
            "kind": "json_schema",
            "text": "{}",
            "strict": False,
            "whitespace": "flexible",
        },
        "close_within_budget": False,
        "jump_forward": False,
    }
    node = rm.gen("x", type=int, close_within_budget=True, strict=True, whitespace="compact")
    assert isinstance(node, Gen)
    assert node.params is not None
    assert (node.params.close_within_budget, node.params.jump_forward) == (True, True)
    assert constraint(rm.gen("x", structural_tags=TAGS, whitespace="flexible"))["whitespace"]
    assert fields(rm.gen("x", regex="a", jump_forward=False))["jump_forward"] is False


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"regex": "a", "strict": False}, "strict=False: has no effect on regex"),
        ({"lark": "a", "whitespace": "flexible"}, "whitespace='flexible': has no effect on lark"),
        ({"dtype": int, "close_within_budget": True}, "close_within_budget=True: has no effect"),
        ({"structural_tags": TAGS, "close_within_budget": True}, "goes with json_schema, type"),
    ],
)
def test_an_option_without_effect_is_refused(options: Any, named: str) -> None:
    with pytest.raises(rm.InvalidArgument, match=named):
        rm.gen("x", **options)


def test_what_is_so_anyway_may_be_said() -> None:
    node = rm.gen("x", regex="a", strict=True, whitespace="compact", close_within_budget=False)
    assert fields(node) == {"constraint": {"kind": "regex", "text": "a"}}
    for option in ({"jump_forward": True}, {"strict": True}, {"whitespace": "compact"}):
        with pytest.raises(rm.InvalidArgument, match="needs a constraint"):
            rm.gen("x", **option)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("regex", 5),
        ("regex", ["a"]),
        ("regex", "\ud800"),
        ("dtype", list),
        ("dtype", "integer"),
        ("dtype", 5),
        ("json_schema", 5),
        ("json_schema", [1]),
        ("json_schema", int),
        ("json_schema", {"a": {1, 2}}),
        ("json_schema", {"a": float("nan")}),
        ("json_schema", "\ud800"),
        ("ebnf", 5),
        ("lark", b"start: x"),
        ("structural_tags", 5),
        ("structural_tags", True),
        ("structural_tags", []),
        ("structural_tags", Tool),
        ("type", "Person"),
        ("type", 5),
        ("strict", 1),
        ("whitespace", "some"),
        ("whitespace", []),
        ("close_within_budget", "no"),
        ("jump_forward", 0),
        ("stop_regex", 5),
    ],
)
def test_a_bad_argument_is_refused_by_name(argument: str, value: Any) -> None:
    with pytest.raises(rm.InvalidArgument, match=argument):
        rm.gen("x", **{argument: value})


def test_a_schema_that_contains_itself_is_refused() -> None:
    schema: dict[str, Any] = {}
    schema["properties"] = {"a": schema}
    with pytest.raises(rm.InvalidArgument, match="json_schema"):
        rm.gen("x", json_schema=schema)
    with pytest.raises(rm.InvalidArgument, match="structural_tags"):
        rm.gen("x", structural_tags={"format": schema})


def test_bad_tags_are_refused_at_once() -> None:
    bad = {**TAGS, "triggers": ["<b>"]}
    with pytest.raises(rm.GrammarError, match=r"structural_tags: structures\[0\].begin: '<a>'"):
        rm.gen("x", structural_tags=bad)


def test_a_regex_outside_of_the_dialect_is_refused_at_once() -> None:
    """B36 of the bug reports."""
    with pytest.raises(rm.GrammarError, match=r"a word boundary \\b at position 3"):
        rm.gen("x", regex=r"cat\b")


def test_at_most_one_constraint() -> None:
    for pair in (
        {"regex": "a", "dtype": int},
        {"lark": "x", "type": int},
        {"regex": "", "ebnf": ""},
    ):
        with pytest.raises(rm.InvalidArgument, match="at most one"):
            rm.gen("x", **pair)


@rm.function
def answers(s: rm.ProgramState) -> None:
    s += "Who?" + rm.gen("person", type=Person) + rm.gen("plain", json_schema=PERSON)
    s += rm.gen("many", type=list[int], n=2) + rm.gen("calls", structural_tags=TAGS)


def script(prompt: str, _params: Any, sample: int) -> str:
    if prompt.endswith("?"):
        return '{"name":"Ada","age":36}'
    if prompt.endswith("36}"):
        return '{"age":1}'
    return f"[{sample},2]" if prompt.endswith("1}") else "so <a>1</a>."


@pytest.mark.usefixtures("unchecked")
def test_values_of_a_run(backend: FakeBackend) -> None:
    backend.script = script
    state = answers.run(backend=backend)
    assert state["person"] == '{"name":"Ada","age":36}'
    assert state.value("person") == Person(name="Ada", age=36)
    assert state.value("plain") == {"age": 1}
    assert state.value("many") == [[0, 2], [1, 2]]
    assert state.value("calls") == ["so ", Tagged("<a>", "1"), "."]


@pytest.mark.usefixtures("unchecked")
def test_values_of_a_compiled_program(backend: FakeBackend) -> None:
    """Types stay here: the graph only names them, once each."""

    def double(person: Person) -> str:
        return person.name * 2

    @rm.function
    def program(s: rm.ProgramState) -> Any:
        s += "Who?" + rm.gen("person", type=Person)
        s["twice"] = rm.call(double, s.value("person"))
        s += s["twice"] + "?" + rm.gen("again", type=Person)
        return s.value("again")

    backend.script = script
    compiled = program.compile()
    state = compiled.run(backend=backend)
    assert state["twice"] == "AdaAda"
    assert state.value("again") == state.ret_value == Person(name="Ada", age=36)
    shapes = compiled.to_dict()
    assert json.dumps(shapes).count('"object": "<TypeReader of Person>", "index": 0') == 2
    assert Graph.from_dict(json.loads(json.dumps(shapes))).to_dict() == shapes
    assert "TypeReader" in json.dumps(program.run(backend=backend).graph().to_dict())


@pytest.mark.usefixtures("unchecked")
def test_a_text_that_validators_refuse_is_shown_with_the_reason(backend: FakeBackend) -> None:
    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += "Q" + rm.gen("x", type=Person)

    for text, reason in (('{"name":1}', "name: Input should be a valid string"), ("{", "Invalid")):
        backend.script = lambda *_, text=text: text
        state = program.run(backend=backend)
        assert state["x"] == text
        with pytest.raises(rm.ProgramError, match=reason) as caught:
            state.value("x")
        assert repr(text) in str(caught.value)


@pytest.mark.usefixtures("unchecked")
def test_types_inside_of_structural_tags(backend: FakeBackend) -> None:
    tags = {
        "structures": [{"begin": "<p>", "schema": Person, "end": "</p>"}, *TAGS["structures"]],
        "triggers": ["<"],
    }
    node = rm.gen("x", structural_tags=tags)
    sent = json.loads(constraint(node)["text"])
    assert sent["structures"][0]["schema"]["properties"]["name"]["type"] == "string"
    content = {"type": "json_schema", "json_schema": list[Tool]}
    tag = {"type": "tag", "begin": "[", "content": content, "end": "]"}
    sent = json.loads(constraint(rm.gen("x", structural_tags={"format": tag}))["text"])
    assert sent["format"]["content"]["json_schema"]["type"] == "array"
    with pytest.raises(rm.InvalidArgument, match=r"structural_tags: structures\[0\].schema=5"):
        rm.gen("x", structural_tags={"structures": [{"schema": 5}]})


def test_accepts_says_whether_and_where() -> None:
    assert rm.accepts("2026-11-29", regex=r"\d{4}-\d\d-\d\d")
    answer = rm.accepts("2026-1x", regex=r"\d{4}-\d\d", tokenizer=Tokenizer.tiny())
    assert not answer
    assert (answer.position, answer.reason) == (6, "'x' can't follow")
    assert rm.accepts("2026", regex=r"\d{4}-\d\d").position == 4


def test_accepts_takes_whatever_gen_takes() -> None:
    assert rm.accepts("12", dtype=int)
    assert not rm.accepts("1a", dtype="int")
    assert rm.accepts("a+", choices=["a+", "b"])
    assert not rm.accepts("aa", choices=["a+", "b"])
    with pytest.raises(rm.InvalidArgument, match="choices"):
        rm.accepts("a", choices=[])


@pytest.mark.usefixtures("unchecked")
def test_accepts_allows_blanks_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(
        "ramet.runtime.grammar.acceptance.check_text_against", lambda *given: seen.append(given[0])
    )
    rm.accepts("1", json_schema={})
    rm.accepts("1", type=int, whitespace="compact", strict=False)
    rm.accepts("1", structural_tags=TAGS)
    rm.accepts("1", regex="1")
    assert [(one.kind, one.strict, one.whitespace) for one in seen] == [
        ("json_schema", True, "flexible"),
        ("json_schema", False, "compact"),
        ("structural_tags", True, "flexible"),
        ("regex", True, "compact"),
    ]


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({}, rm.InvalidArgument, "exactly one"),
        ({"regex": "a", "lark": "start: x"}, rm.InvalidArgument, "exactly one"),
        ({"regex": "("}, rm.GrammarError, "missing"),
        ({"regex": 5}, rm.InvalidArgument, "regex=5"),
        ({"structural_tags": {}}, rm.GrammarError, "must have"),
        ({"type": "int"}, rm.InvalidArgument, "type='int'"),
        ({"regex": "a", "tokenizer": "gpt2"}, rm.InvalidArgument, "tokenizer"),
        ({"regex": "a", "strict": 5}, rm.InvalidArgument, "strict"),
        ({"regex": "a", "whitespace": 5}, rm.InvalidArgument, "whitespace"),
    ],
)
def test_accepts_refuses(given: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        rm.accepts("a", **given)
    with pytest.raises(rm.InvalidArgument, match="text"):
        rm.accepts(5, regex="a")  # type: ignore[arg-type]
