"""Structural tags as data: free text with constrained regions, read from JSON of either shape.

The first is SGLang's: `{"structures": [{"begin", "schema", "end"}], "triggers": […]}`; the content
of a structure is one of `schema` (a JSON Schema), `regex`, `lark` and `ebnf`, or nothing: any text
up to the first `end`. The second is xgrammar's: `{"type": "structural_tag", "format": {"type": …}}`
with `const_string`, `json_schema`, `regex`, `grammar` (EBNF), `any_text`, `sequence`, `or`, `tag`,
`triggered_tags` and `tags_with_separator`.

Special tokens that are spelled in a begin, an end or a trigger are ordinary text: a model's single
token for them is never allowed by its spelling.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NoReturn

from ramet.runtime.errors import GrammarError
from ramet.runtime.request import shown

MAX_DEPTH: Final = 32
"""How deep formats may nest."""
MAX_TRIGGERS: Final = 64
"""How many triggers free text may have."""


@dataclasses.dataclass(frozen=True, slots=True)
class Const:
    """Exactly this text."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class AnyText:
    """Any text in which none of some texts occurs."""

    excludes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Content:
    """What another constraint describes."""

    kind: str
    """`regex`, `json_schema`, `lark` or `ebnf`."""
    text: str
    place: str
    """Where it stands, for messages."""


@dataclasses.dataclass(frozen=True, slots=True)
class Chain:
    """One after another."""

    elements: tuple[Format, ...]
    place: str


@dataclasses.dataclass(frozen=True, slots=True)
class Either:
    """One of several."""

    options: tuple[Format, ...]
    place: str


@dataclasses.dataclass(frozen=True, slots=True)
class Tag:
    """A begin, a content and an end."""

    begin: str
    content: Format
    end: str
    place: str


@dataclasses.dataclass(frozen=True, slots=True)
class Triggered:
    """Free text; where one of the triggers occurs, it is the beginning of one of the tags."""

    triggers: tuple[str, ...]
    tags: tuple[Tag, ...]
    at_least_one: bool
    """Whether a tag stands at the very beginning."""
    stop_after_first: bool
    """Whether nothing follows the first tag."""
    place: str


@dataclasses.dataclass(frozen=True, slots=True)
class Separated:
    """Tags with a text between them."""

    tags: tuple[Tag, ...]
    separator: str
    at_least_one: bool
    stop_after_first: bool
    """Whether there is one tag at most."""
    place: str


Format = Const | AnyText | Content | Chain | Either | Tag | Triggered | Separated

STRUCTURE_KINDS: Final = {
    "schema": "json_schema",
    "regex": "regex",
    "lark": "lark",
    "ebnf": "ebnf",
}
"""What a structure may have for its content, and the kind of constraint that it is."""


def read_tags(text: str) -> Format:
    """The format that JSON text describes; raises GrammarError with the place of what is wrong."""
    try:
        data = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_number, parse_float=_finite
        )
    except ValueError as error:
        fail("", f"no JSON: {error}")
    except RecursionError:
        fail("", "nested too deeply")
    _check_object(data, "", ("structures", "triggers", "format", "type"))
    kind = data.get("type", "structural_tag")
    if kind != "structural_tag":
        fail("type", f'{shown(kind)}: must be "structural_tag"')
    if "format" in data:
        _check_object(data, "", ("type", "format"))
        return _format(data["format"], "format", 0)
    if "structures" not in data:
        fail("", 'must have "structures" and "triggers", or "format"')
    tags = tuple(
        _structure(one, f"structures[{index}]")
        for index, one in enumerate(_list(data, "structures", ""))
    )
    return _triggered(tags, data, "structures", "")


def fail(place: str, message: str) -> NoReturn:
    """Raise GrammarError for what stands at a place."""
    raise GrammarError(f"structural_tags: {place}{': ' if place else ''}{message}")


def _structure(data: Any, place: str) -> Tag:
    _check_object(data, place, ("begin", "end", *STRUCTURE_KINDS))
    found = [key for key in STRUCTURE_KINDS if key in data]
    if len(found) > 1:
        fail(place, f"takes at most one of {', '.join(STRUCTURE_KINDS)}, and has {len(found)}")
    content: Format = AnyText()
    if found:
        content = _content(STRUCTURE_KINDS[found[0]], data[found[0]], f"{place}.{found[0]}")
    return Tag(_text(data, "begin", place, 1), content, _text(data, "end", place, 1), place)


def _content(kind: str, value: Any, place: str) -> Content:
    if kind == "json_schema" and isinstance(value, (dict, bool)):
        value = json.dumps(value)
    if not isinstance(value, str):
        wanted = "a JSON Schema or its text" if kind == "json_schema" else "a text"
        fail(place, f"{shown(value)}: must be {wanted}")
    return Content(kind, _no_surrogate(value, place), place)


def _format(data: Any, place: str, depth: int) -> Format:
    if depth > MAX_DEPTH:
        fail(place, f"formats nest deeper than {MAX_DEPTH}")
    kind = data.get("type") if isinstance(data, dict) else None
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        if not isinstance(data, dict):
            fail(place, f"{shown(data)}: must be an object")
        fail(f"{place}.type", f"{shown(kind)}: must be one of {', '.join(_READERS)}")
    return read(data, place, depth)


def _read_const(data: Mapping[str, Any], place: str, _depth: int) -> Format:
    _check_object(data, place, ("type", "value"))
    return Const(_text(data, "value", place, 0))


def _read_schema(data: Mapping[str, Any], place: str, _depth: int) -> Format:
    _check_object(data, place, ("type", "json_schema", "style"))
    if data.get("style", "json") != "json":
        fail(f"{place}.style", f'{shown(data["style"])}: only "json" is supported')
    return _content("json_schema", data.get("json_schema"), f"{place}.json_schema")


def _read_regex(data: Mapping[str, Any], place: str, _depth: int) -> Format:
    _check_object(data, place, ("type", "pattern"))
    return _content("regex", data.get("pattern"), f"{place}.pattern")


def _read_grammar(data: Mapping[str, Any], place: str, _depth: int) -> Format:
    _check_object(data, place, ("type", "grammar"))
    return _content("ebnf", data.get("grammar"), f"{place}.grammar")


def _read_any_text(data: Mapping[str, Any], place: str, _depth: int) -> Format:
    _check_object(data, place, ("type", "excludes", "excluded_str", "excluded_strs"))
    excludes: tuple[str, ...] = ()
    for key in data.keys() & {"excludes", "excluded_str", "excluded_strs"}:
        excludes += _texts(data, key, place)
    return AnyText(excludes)


def _read_chain(data: Mapping[str, Any], place: str, depth: int) -> Format:
    return Chain(_elements(data, place, depth), place)


def _read_either(data: Mapping[str, Any], place: str, depth: int) -> Format:
    options = _elements(data, place, depth)
    if not options:
        fail(f"{place}.elements", "is empty, so that nothing matches")
    return options[0] if len(options) == 1 else Either(options, place)


def _read_tag(data: Mapping[str, Any], place: str, depth: int) -> Format:
    return _tag(data, place, depth)


def _read_triggered(data: Mapping[str, Any], place: str, depth: int) -> Format:
    keys = ("type", "triggers", "tags", "at_least_one", "stop_after_first")
    _check_object(data, place, keys)
    return _triggered(_tags(data, place, depth), data, "tags", place)


def _read_separated(data: Mapping[str, Any], place: str, depth: int) -> Format:
    keys = ("type", "tags", "separator", "at_least_one", "stop_after_first")
    _check_object(data, place, keys)
    return Separated(
        _tags(data, place, depth),
        _text(data, "separator", place, 0),
        _flag(data, "at_least_one", place),
        _flag(data, "stop_after_first", place),
        place,
    )


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any], str, int], Format]]] = {
    "const_string": _read_const,
    "json_schema": _read_schema,
    "regex": _read_regex,
    "grammar": _read_grammar,
    "any_text": _read_any_text,
    "sequence": _read_chain,
    "or": _read_either,
    "tag": _read_tag,
    "triggered_tags": _read_triggered,
    "tags_with_separator": _read_separated,
}


def _tag(data: Any, place: str, depth: int) -> Tag:
    _check_object(data, place, ("type", "begin", "content", "end"))
    if data.get("type", "tag") != "tag":
        fail(f"{place}.type", f'{shown(data["type"])}: must be "tag"')
    content = _format(data.get("content"), f"{place}.content", depth + 1)
    return Tag(_text(data, "begin", place, 0), content, _text(data, "end", place, 0), place)


def _tags(data: Mapping[str, Any], place: str, depth: int) -> tuple[Tag, ...]:
    tags = _list(data, "tags", place)
    if not tags:
        fail(_at(place, "tags"), "is empty")
    return tuple(_tag(one, f"{place}.tags[{index}]", depth + 1) for index, one in enumerate(tags))


def _triggered(tags: tuple[Tag, ...], data: Mapping[str, Any], key: str, place: str) -> Triggered:
    triggers = _texts(data, "triggers", place)
    for name, found in (("triggers", triggers), (key, tags)):
        if not found:
            fail(_at(place, name), "is empty")
    if len(triggers) > MAX_TRIGGERS:
        fail(_at(place, "triggers"), f"{len(triggers)} of them: at most {MAX_TRIGGERS}")
    for tag in tags:
        if not tag.begin.startswith(triggers):
            fail(
                f"{tag.place}.begin",
                f"{shown(tag.begin)}: must start with one of the triggers "
                + ", ".join(map(shown, triggers)),
            )
    for index, trigger in enumerate(triggers):
        if not any(tag.begin.startswith(trigger) for tag in tags):
            fail(f"{_at(place, 'triggers')}[{index}]", f"{shown(trigger)}: no begin starts with it")
    return Triggered(
        triggers,
        tags,
        _flag(data, "at_least_one", place),
        _flag(data, "stop_after_first", place),
        place,
    )


def _elements(data: Mapping[str, Any], place: str, depth: int) -> tuple[Format, ...]:
    _check_object(data, place, ("type", "elements"))
    return tuple(
        _format(one, f"{place}.elements[{index}]", depth + 1)
        for index, one in enumerate(_list(data, "elements", place))
    )


def _at(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _check_object(data: Any, place: str, known: Collection[str]) -> None:
    if not isinstance(data, dict):
        fail(place, f"{shown(data)}: must be an object")
    for key in data:
        if key not in known:
            fail(place, f"{shown(key)} is not known here; known are {', '.join(known)}")


def _list(data: Mapping[str, Any], key: str, place: str) -> Sequence[Any]:
    value = data.get(key)
    if not isinstance(value, list):
        fail(_at(place, key), f"{shown(value)}: must be a list")
    return value


def _texts(data: Mapping[str, Any], key: str, place: str) -> tuple[str, ...]:
    values = _list(data, key, place)
    for index, value in enumerate(values):
        if not isinstance(value, str) or not value:
            fail(f"{_at(place, key)}[{index}]", f"{shown(value)}: must be a text that is not empty")
        _no_surrogate(value, f"{_at(place, key)}[{index}]")
    return tuple(dict.fromkeys(values))


def _text(data: Mapping[str, Any], key: str, place: str, least: int) -> str:
    value = data.get(key)
    if not isinstance(value, str) or len(value) < least:
        wanted = "a text that is not empty" if least else "a text"
        fail(_at(place, key), f"{shown(value)}: must be {wanted}")
    return _no_surrogate(value, _at(place, key))


def _no_surrogate(value: str, place: str) -> str:
    if any("\ud800" <= char <= "\udfff" for char in value):
        fail(place, f"{shown(value)}: has a lone surrogate, which no text contains")
    return value


def _flag(data: Mapping[str, Any], key: str, place: str) -> bool:
    value = data.get(key, False)
    if not isinstance(value, bool):
        fail(_at(place, key), f"{shown(value)}: must be true or false")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            fail("", f"the key {shown(key)} is there twice")
        found[key] = value
    return found


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        fail("", f"{shown(text)} is too large for a number")
    return value


def _no_number(text: str) -> NoReturn:
    fail("", f"{text} is no JSON")
