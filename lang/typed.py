"""Typed values: from the text of a call to the value that `s.value(name)` gives.

Types, and what reads them, stay in the user's process; the engine has only the constraint's text.
"""

from __future__ import annotations

import abc
import functools
import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    ForwardRef,
    Literal,
    get_args,
    get_origin,
)

from ramet.lang.errors import GrammarError, ProgramError, UnsupportedFeature
from ramet.lang.ir import REGEX_BOOL, REGEX_FLOAT, REGEX_INT, REGEX_STR
from ramet.runtime.request import shown

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from ramet.runtime.grammar.spec import Constraint
    from ramet.runtime.grammar.tag_formats import Content

REGEXES: Final[Mapping[str, str]] = {
    "int": REGEX_INT,
    "float": REGEX_FLOAT,
    "bool": REGEX_BOOL,
    "str": REGEX_STR,
}
"""The constraint that each `dtype` stands for."""

_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "int": int,
    "float": float,
    "bool": "True".__eq__,
    "str": lambda text: text[1:-1],
}


class Reader(abc.ABC):
    """Reads the values of a kind of text."""

    @abc.abstractmethod
    def read(self, text: str) -> Any:
        """The value of a whole text; raises ProgramError with the text for another one."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class JsonReader(Reader):
    """Reads JSON documents."""

    def read(self, text: str) -> Any:
        """The document."""
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ProgramError(f"{text!r} is no JSON document: {error}") from None


class TypeReader(Reader):
    """Reads the JSON of a type's values."""

    def __init__(
        self, wanted: Any, adapter: TypeAdapter[Any], schema: dict[str, Any], has_decimals: bool
    ) -> None:
        self._has_decimals = has_decimals
        self._name = shown(wanted) if not isinstance(wanted, type) else wanted.__name__
        self._adapter = adapter
        self.schema_text = json.dumps(schema, ensure_ascii=False)
        """The JSON Schema of these values; properties are in the order of their declaration."""

    def __repr__(self) -> str:
        return f"<TypeReader of {self._name}>"

    def read(self, text: str) -> Any:
        """The value, validated."""
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(
                _with_all_digits(text) if self._has_decimals else text
            )
        except ValidationError as error:
            raise ProgramError(f"{text!r} is no {self._name}: {_reasons(error)}") from None


class TreeReader(Reader):
    """Reads texts of a Lark grammar, as parse trees."""

    def __init__(self, grammar: str) -> None:
        self._grammar = grammar

    def read(self, text: str) -> Any:
        """The parse tree, a `lark.Tree`."""
        from ramet.runtime.grammar.front_ends import tree_of

        try:
            return tree_of(self._grammar, text)
        except GrammarError as error:
            raise ProgramError(f"{text!r} is no text of its grammar: {error}") from None


class TagsReader(Reader):
    """Reads texts under structural tags: free text and regions, in order."""

    def __init__(self, constraint: Constraint, types: Mapping[str, TypeReader]) -> None:
        self._constraint = constraint
        self._types = types

    def read(self, text: str) -> Any:
        """A list of texts and `Tagged` pairs."""
        from ramet.runtime.grammar.front_ends import tag_reader
        from ramet.runtime.grammar.tag_pieces import Mismatch

        try:
            return tag_reader(self._constraint).pieces(text, self._content)
        except Mismatch as error:
            raise ProgramError(f"{text!r} is not what its structural tags allow: {error}") from None

    def _content(self, content: Content, text: str) -> Any:
        if content.kind == "json_schema":
            return self._types.get(content.place, JSON).read(text)
        return text


JSON: Final = JsonReader()
"""The reader of documents; one for all, so that equal calls of a graph stay equal."""


def type_reader(argument: str, wanted: Any) -> TypeReader:
    """What reads the values of a type.

    Raises InvalidArgument naming the argument for what is no type that JSON can have,
    UnsupportedFeature without the package pydantic.
    """
    if _has_names(wanted):  # They mean something else elsewhere.
        return _make_reader(argument, wanted)
    try:
        return _known_reader(argument, wanted)
    except TypeError:  # Not hashable: an annotation that holds a list, say.
        return _make_reader(argument, wanted)


def _has_names(wanted: Any) -> bool:
    """Whether types in it are given by their names."""
    if isinstance(wanted, (str, ForwardRef)):
        return True
    inner = get_args(wanted) if get_origin(wanted) is not Literal else ()
    return any(map(_has_names, inner[:1] if get_origin(wanted) is Annotated else inner))


def _make_reader(argument: str, wanted: Any) -> TypeReader:
    try:
        from ramet.lang import type_schema
    except ImportError as error:
        raise UnsupportedFeature(
            f"{argument}={shown(wanted)}: needs the package pydantic, and {error}"
        ) from None
    return TypeReader(wanted, *type_schema.adapter_of(argument, wanted))


_known_reader = functools.lru_cache(maxsize=256)(_make_reader)


def typed_value(reader: str | Reader, text: str) -> Any:
    """The value that a text spells: of a `dtype` (`int`, `float`, `bool`, `str`; strings lose their
    quotes), or as a reader has it.

    Raises ProgramError with the text for one that is no whole value, as when the call was cut at
    its limit of tokens.
    """
    if isinstance(reader, Reader):
        return reader.read(text)
    stripped = text.strip(" \n")
    if not re.fullmatch(REGEXES[reader], stripped):
        raise ProgramError(
            f"{text!r} is no whole {reader}: the call was cut at max_tokens, or nothing kept it to "
            f"dtype={reader}"
        )
    return _READERS[reader](stripped)


def _with_all_digits(text: str) -> str:
    """JSON in which numbers that no float has are texts, so that a Decimal gets all digits."""

    def number(spelled: str) -> Any:
        value = float(spelled)
        return value if Decimal(repr(value)) == Decimal(spelled) else spelled

    try:
        return json.dumps(json.loads(text, parse_float=number))
    except (ValueError, RecursionError):
        return text  # Not for us to say.


def _reasons(error: Any) -> str:
    """What pydantic says, each with its place."""
    return "; ".join(
        f"{'.'.join(map(str, one['loc']))}: {one['msg']}" if one["loc"] else one["msg"]
        for one in error.errors(include_url=False, include_context=False, include_input=False)
    )
