from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import importlib.util
import ipaddress
import json
import random
import re
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NotRequired,
    Required,
    TypedDict,
    TypeVar,
)

import hypothesis
import jsonschema
import pydantic
import pytest
import typing_extensions
from hypothesis import strategies
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StringConstraints
from tag_oracle import front_end, matcher

from ramet.lang.errors import InvalidArgument
from ramet.lang.type_schema import adapter_of
from ramet.lang.typed import TypeReader, type_reader

Item = TypeVar("Item")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Address(BaseModel):
    street: str
    city: str = "Rome"


class Person(BaseModel):
    name: Annotated[str, StringConstraints(min_length=1, max_length=8, pattern="^[A-Z][a-z]*$")]
    age: int = Field(ge=0, le=150)
    address: Address | None = None
    colours: list[Colour] = Field(default_factory=list, max_length=3)

    @pydantic.computed_field
    def adult(self) -> bool:
        return self.age >= 18


class Node(BaseModel):
    value: int
    children: list[Node] = []


class Box(BaseModel, Generic[Item]):
    model_config = ConfigDict(extra="forbid")
    content: Item


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = Field(9, ge=0, le=9)


class Dog(BaseModel):
    name: str = Field(max_length=4)
    kind: Literal["dog"] = "dog"


class Aliased(BaseModel):
    first: int = Field(alias="First")
    second: bool = Field(validation_alias=AliasChoices("zwei", "second"))


class Point(NamedTuple):
    x: int
    y: float = 0.0


class Movie(TypedDict, total=False):
    title: str
    year: Required[int]


class Show(typing_extensions.TypedDict):
    movies: NotRequired[list[int]]
    name: str


@dataclasses.dataclass
class Size:
    width: int
    height: int | None = None
    tags: set[Literal["a", "b"]] = dataclasses.field(default_factory=set)


UUID = "12345678-1234-5678-1234-567812345678"
Tagged = Annotated[Cat | Dog, Field(discriminator="kind")]

VALUES: list[tuple[Any, str, Any]] = [
    (int, "-5", -5),
    (float, "1.5", 1.5),
    (bool, "true", True),
    (str, '"a\\n"', "a\n"),
    (None.__class__, "null", None),
    (Literal["a", "b"], '"a"', "a"),
    (Literal[1, "x", None], "1", 1),
    (Colour, '"red"', Colour.RED),
    (Level, "2", Level.HIGH),
    (int | None, "null", None),
    (int | str, '"5"', "5"),
    (list[int], "[1,2]", [1, 2]),
    (tuple[int, str], '[1,"a"]', (1, "a")),
    (tuple[int, ...], "[1]", (1,)),
    (set[int], "[1,1]", {1}),
    (frozenset[str], '["a"]', frozenset("a")),
    (collections.deque[int], "[1]", collections.deque([1])),
    (dict[str, int], '{"a":1}', {"a": 1}),
    (dict[int, bool], '{"-7":true}', {-7: True}),
    (dict[Literal["a", "b"], int], '{"b":1}', {"b": 1}),
    (dict[Colour, int], '{"blue":1}', {Colour.BLUE: 1}),
    (dict[Annotated[str, Field(pattern="^a+$")], int], '{"aa":1}', {"aa": 1}),
    (dict[bool, int], '{"true":1}', {True: 1}),
    (Any, '{"a":[1]}', {"a": [1]}),
    (bytes, '"ab"', b"ab"),
    (decimal.Decimal, "0.10", decimal.Decimal("0.1")),
    (datetime.date, '"2024-02-29"', datetime.date(2024, 2, 29)),
    (datetime.datetime, '"2024-01-02T03:04:05"', datetime.datetime(2024, 1, 2, 3, 4, 5)),
    (
        pydantic.AwareDatetime,
        '"2024-01-02T03:04:05Z"',
        datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    ),
    (datetime.time, '"23:59:59.5"', datetime.time(23, 59, 59, 500_000)),
    (datetime.timedelta, '"P1DT2H"', datetime.timedelta(days=1, hours=2)),
    (uuid.UUID, f'"{UUID}"', uuid.UUID(UUID)),
    (ipaddress.IPv4Network, '"10.0.0.0/8"', ipaddress.IPv4Network("10.0.0.0/8")),
    (ipaddress.IPv6Interface, '"::1/64"', ipaddress.IPv6Interface("::1/64")),
    (pydantic.HttpUrl, '"https://a.org/b?c#d"', pydantic.HttpUrl("https://a.org/b?c#d")),
    (Node, '{"value":1,"children":[{"value":2}]}', Node(value=1, children=[Node(value=2)])),
    (Box[int], '{"content":1}', Box[int](content=1)),
    (Open, '{"a":1,"b":[]}', Open(a=1, b=[])),
    (Tagged, '{"kind":"cat","lives":3}', Cat(lives=3)),
    (Aliased, '{"First":1,"zwei":true}', Aliased(First=1, zwei=True)),
    (Point, "[1,2.5]", Point(1, 2.5)),
    (Movie, '{"year":1999}', {"year": 1999}),
    (Show, '{"name":"x"}', {"name": "x"}),
    (list[Movie], '[{"year":1999}]', [{"year": 1999}]),
    (dict[str, Movie | None], '{"a":null}', {"a": None}),
    (
        Annotated[Movie, Field(description="x")] | int,
        '{"title":"x","year":1}',
        {"year": 1, "title": "x"},
    ),
    (Size, '{"width":1,"tags":["a"]}', Size(1, None, {"a"})),
    (
        Person,
        '{"name":"Ada","age":36,"address":{"street":"x"},"colours":["red"]}',
        Person(name="Ada", age=36, address=Address(street="x"), colours=[Colour.RED]),
    ),
    (list[Person | Node], '[{"value":1}]', [Node(value=1)]),
]


def schema_of(wanted: Any) -> Any:
    return json.loads(type_reader("type", wanted).schema_text)


@pytest.mark.parametrize(("wanted", "text", "value"), VALUES, ids=lambda one: str(one)[:40])
def test_values_are_what_the_schema_describes(wanted: Any, text: str, value: Any) -> None:
    reader = type_reader("type", wanted)
    jsonschema.Draft202012Validator.check_schema(schema_of(wanted))
    jsonschema.validate(json.loads(text), schema_of(wanted))
    found = reader.read(text)
    assert found == value
    assert type(found) is type(value)


def walk(made: Any, generator: random.Random) -> str | None:
    """A text that the masks lead to; None for one that doesn't end soon."""
    state, data = made.deep_copy(), bytearray()
    closing = b'"]}'
    while len(data) < 400:
        mask = state.compute_bitmask()
        allowed = [byte for byte in range(32, 127) if mask[byte // 8] >> byte % 8 & 1]
        if state.is_accepting() and (not allowed or generator.random() < 0.5):
            return data.decode()
        if not allowed:
            return None
        ends = [byte for byte in allowed if byte in closing]
        byte = generator.choice(ends if ends and generator.random() < 0.4 else allowed)
        assert state.try_consume_tokens([byte]) == 1
        data.append(byte)
    return None


@pytest.mark.parametrize(
    "wanted", [wanted for wanted, _, _ in VALUES if wanted is not Any], ids=str
)
def test_whatever_the_schema_allows_can_be_read(wanted: Any) -> None:
    """Random texts under the mask engine's own JSON grammar of the schema."""
    reader = type_reader("type", wanted)
    made = matcher(front_end("json_schema", reader.schema_text, True, "compact").lark)
    generator = random.Random(str(wanted))
    texts = [text for _ in range(40) if (text := walk(made, generator)) is not None]
    assert len(texts) >= 10
    for text in texts:
        reader.read(text)


def test_properties_are_in_the_order_of_their_declaration() -> None:
    schema = schema_of(Person)
    assert list(schema["properties"]) == ["name", "age", "address", "colours"]
    assert schema["required"] == ["name", "age"]


@pytest.mark.parametrize("wanted", [Person, Size, Movie, Box[int], list[Node]])
def test_classes_have_no_other_properties(wanted: Any) -> None:
    schema = schema_of(wanted)
    objects = [schema, *schema.get("$defs", {}).values()]
    for one in objects:
        if "properties" in one:
            assert one["additionalProperties"] is False
    assert schema_of(Open)["additionalProperties"] is True


def test_a_tag_is_always_there() -> None:
    schema = schema_of(Tagged)
    assert "discriminator" not in schema
    assert "oneOf" not in schema
    assert len(schema["anyOf"]) == 2
    for name, required in (("Cat", ["kind"]), ("Dog", ["name", "kind"])):
        assert schema["$defs"][name]["required"] == required
    assert not jsonschema.Draft202012Validator(schema).is_valid({"lives": 3})


@pytest.mark.parametrize(
    ("wanted", "check"),
    [
        (datetime.date, datetime.date.fromisoformat),
        (datetime.time, None),
        (datetime.datetime, None),
        (pydantic.NaiveDatetime, None),
        (pydantic.AwareDatetime, None),
        (datetime.timedelta, None),
        (pydantic.HttpUrl, None),
        (pydantic.UUID4, None),
        (ipaddress.IPv4Network, ipaddress.IPv4Network),
        (ipaddress.IPv6Interface, ipaddress.IPv6Interface),
    ],
)
def test_whatever_is_spelled_so_exists(wanted: Any, check: Callable[[str], Any] | None) -> None:
    pattern = schema_of(wanted)["pattern"]
    reader = type_reader("type", wanted)

    @hypothesis.given(strategies.from_regex(pattern, fullmatch=True))
    @hypothesis.settings(max_examples=200, database=None, derandomize=True)
    def examine(text: str) -> None:
        reader.read(json.dumps(text.rstrip("\n")))
        if check is not None:
            check(text.rstrip("\n"))

    examine()


def test_a_patterns_dollar_is_the_end() -> None:
    class Code(BaseModel):
        a: str = Field(pattern=r"^[$\]]\$b$|c$")
        b: dict[Annotated[str, Field(pattern="^x$")], int] = {}

    properties = schema_of(Code)["properties"]
    assert properties["a"]["pattern"] == r"^[$\]]\$b\Z|c\Z"
    assert list(properties["b"]["patternProperties"]) == [r"^x\Z"]
    for text in ("$$b", "]$b", "c", "xc"):
        assert re.search(properties["a"]["pattern"], text)
        assert not re.search(properties["a"]["pattern"], text + "\n")


def test_every_date_can_be_spelled() -> None:
    pattern = re.compile(schema_of(datetime.date)["pattern"])
    day = datetime.date(1, 1, 1)
    for ordinal in range(1, datetime.date.max.toordinal(), 97):
        assert pattern.search(day.fromordinal(ordinal).isoformat())
    for year in range(1, 9999):
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        assert bool(pattern.search(f"{year:04}-02-29")) == leap
    assert not pattern.search("0000-01-01")


def test_decimals_keep_their_digits() -> None:
    class Price(BaseModel):
        amount: decimal.Decimal = Field(ge=0)
        rate: float = 0.0

    assert schema_of(Price)["properties"]["amount"]["type"] == "number"
    reader = type_reader("type", Price)
    for digits in (
        "0.12345678901234567890123456789",
        "12345678901234567890.5",
        "1e-30",
        "7",
        "1e-400",
        "34e700",
    ):
        found = reader.read(f'{{"amount":{digits},"rate":0.12345678901234567}}')
        assert found.amount == decimal.Decimal(digits)
        assert found.rate == 0.12345678901234567


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (Callable, "pydantic makes no JSON Schema"),
        (type, "pydantic makes no JSON Schema"),
        (object.__new__, "pydantic makes no JSON Schema"),
        ("Person", "must be a type, not its name"),
        (5, "must be a type"),
        (list["Nobody"], "Nobody"),  # type: ignore[name-defined]  # noqa: F821
    ],
)
def test_what_json_has_not_is_refused(wanted: Any, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason) as caught:
        adapter_of("type", wanted)
    assert str(caught.value).startswith("type=")


def test_names_in_a_type_are_those_of_the_code_that_gives_it() -> None:
    class Local(BaseModel):
        a: int

    given: Any = list["Local"]
    assert type_reader("type", given).read('[{"a":1}]') == [Local(a=1)]

    def elsewhere() -> Any:
        class Local(BaseModel):
            b: int

        return type_reader("type", given).read('[{"b":1}]') == [Local(b=1)]

    assert elsewhere()


def test_a_model_of_a_module_that_is_not_registered(tmp_path: Path) -> None:
    """As one loaded by its path, whose models pydantic can't complete by itself."""
    path = tmp_path / "loaded.py"
    path.write_text(
        "from __future__ import annotations\nfrom typing import Literal\nimport pydantic\n"
        "from ramet.lang.typed import type_reader\n"
        "class Model(pydantic.BaseModel):\n    a: Literal['x']\n"
        "def read(text):\n    return type_reader('type', Model).read(text)\n"
    )
    spec = importlib.util.spec_from_file_location("loaded", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.read('{"a":"x"}').a == "x"


def test_a_model_that_is_not_whole_yet_is_refused() -> None:
    class Half(BaseModel):
        other: Missing  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(InvalidArgument, match="Half"):
        adapter_of("type", Half)


def test_defaults_that_json_has_not_only_document() -> None:
    class Held(BaseModel):
        value: int = Field(default=object())

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "default" not in schema_of(Held)["properties"]["value"]


def test_validators_have_the_last_word() -> None:
    class Even(BaseModel):
        n: int

        @pydantic.field_validator("n")
        @classmethod
        def check(cls, n: int) -> int:
            if n % 2:
                raise ValueError("is odd")
            return n

    reader = type_reader("type", Even)
    assert isinstance(reader, TypeReader)
    assert reader.read('{"n":2}').n == 2
    with pytest.raises(Exception, match=r"'{\"n\":3}' is no Even: n: Value error, is odd"):
        reader.read('{"n":3}')
