"""Where the formats of structural tags begin and end."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

from ramet.runtime.grammar.tag_formats import (
    AnyText,
    Chain,
    Const,
    Content,
    Either,
    Format,
    Separated,
    Tag,
    Triggered,
    fail,
)
from ramet.runtime.request import shown

_SELF_DELIMITING: Final = {"object", "array", "string", "boolean", "null"}


def first_stop(text: str, stops: Iterable[str], start: int = 0) -> tuple[int, str] | None:
    """The stop that is complete first from `start` on, and where it begins; of several at once the
    longest."""
    found = [(at + len(stop), at, stop) for stop in stops if (at := text.find(stop, start)) >= 0]
    return min(found)[1:] if found else None


def trigger_of(tag: Tag, stops: Sequence[str]) -> str:
    """The stop with which a tag begins; raises GrammarError if another one comes first in it."""
    found = first_stop(tag.begin, stops)
    assert found is not None
    at, stop = found
    if at or not tag.begin.startswith(stop):
        never(tag, stop)
    return stop


def split_head(found: Format) -> tuple[str, Format]:
    """The text with which a format begins, and the rest."""
    match found:
        case Const():
            return found.text, Const("")
        case Tag():
            return found.begin, dataclasses.replace(found, begin="")
        case Chain(elements=(first, *rest)):
            head, tail = split_head(first)
            return head, dataclasses.replace(found, elements=(tail, *rest))
    return "", found


def is_open(found: Format) -> bool:
    """Whether only what follows a format says where it ends."""
    match found:
        case Const():
            return False
        case Content():
            return found.kind != "json_schema" or may_be_number(found.text)
        case Tag():
            return not found.end and is_open(found.content)
        case Chain():
            return bool(found.elements) and is_open(found.elements[-1])
        case Either():
            return any(map(is_open, found.options))
        case Triggered() | Separated():
            return not (found.at_least_one and found.stop_after_first)
    return True


def flat(elements: Iterable[Format]) -> list[Format]:
    """The elements of a chain, without chains among them."""
    found: list[Format] = []
    for element in elements:
        found.extend(flat(element.elements) if isinstance(element, Chain) else [element])
    return [element for element in found if element != Const("")]


def never(tag: Tag, stop: str) -> NoReturn:
    """Refuse a tag: another text is complete in its begin first."""
    fail(
        f"{tag.place}.begin",
        f"{shown(tag.begin)} can never come: {shown(stop)} is complete in it first",
    )


def is_regular(found: Format) -> bool:
    """Whether a format is a regular language, and simple enough to be written as one terminal."""
    match found:
        case Const() | AnyText() | Content(kind="regex"):
            return True
        case Tag():
            return is_regular(found.content) and not isinstance(found.content, Tag)
    return False


def document_of(found: Format) -> tuple[Content, str] | None:
    """The JSON that a format is, and the end behind it; None for another format."""
    match found:
        case Content(kind="json_schema"):
            return found, ""
        case Tag(begin="", content=Content(kind="json_schema") as content):
            return content, found.end
    return None


def either_schema(texts: Sequence[str]) -> str:
    """The text of a schema that is any of several, whose references find what they found."""

    def schema(index: int, text: str) -> Any:
        def moved(part: dict[str, Any]) -> dict[str, Any]:
            target = part.get("$ref")
            if isinstance(target, str) and (target == "#" or target.startswith("#/")):
                part["$ref"] = f"#/anyOf/{index}{target[1:]}"
            return part

        return json.loads(text, object_hook=moved)

    options = [schema(index, text) for index, text in enumerate(texts)]
    drafts = [one.pop("$schema") for one in options if isinstance(one, dict) and "$schema" in one]
    return json.dumps({**({"$schema": drafts[0]} if drafts else {}), "anyOf": options})


def may_be_number(text: str) -> bool:
    """Whether a JSON Schema may describe a number, as far as its `type` says."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        return True  # Its front end will say what is wrong.
    kinds = schema.get("type") if isinstance(schema, dict) else None
    kinds = [kinds] if isinstance(kinds, str) else kinds
    return not isinstance(kinds, list) or not all(kind in _SELF_DELIMITING for kind in kinds)
