"""What structural tags mean, written down a second time: slowly, and without a grammar."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import llguidance

from ramet.runtime.grammar.lark_text import HEADER
from ramet.runtime.grammar.source import Source

Structure = dict[str, Any]


def front_end(kind: str, text: str, strict: bool, whitespace: str) -> Source:
    """Contents as the mask engine itself has them; Lark text stays as it is."""
    if kind == "json_schema":
        # The engine's own `$` is the end of the text, as `\\Z` is in Python.
        schema = json.loads(text.replace(r"\\Z", "$"))
        schema = schema if isinstance(schema, dict) else {}
        options = {"x-guidance": {"whitespace_flexible": whitespace == "flexible"}}
        return Source(f"{HEADER}start: %json {json.dumps(schema | options)}")
    return Source(HEADER + text)


def matcher(lark: str) -> llguidance.LLMatcher:
    """A matcher over bytes."""
    tokenizer = llguidance.LLTokenizer("byte")
    grammar = llguidance.LLMatcher.grammar_from_lark(lark)
    made = llguidance.LLMatcher(tokenizer, grammar, log_level=0)
    assert not made.is_error(), made.get_error()
    return made


def takes(made: llguidance.LLMatcher, text: str) -> bool:
    """Whether a whole text is one that a grammar allows."""
    copy, data = made.deep_copy(), list(text.encode())
    return bool(copy.try_consume_tokens(data) == len(data) and copy.is_accepting())


def split(
    text: str, structures: list[Structure], triggers: list[str]
) -> list[str | tuple[str, str]] | None:
    """Free texts and (begin, content) in order; None for a text that isn't allowed."""
    pieces: list[str | tuple[str, str]] = []
    here = 0
    while (begin := _trigger(text, here, triggers)) is not None:
        for end in range(begin, len(text) + 1):
            found = [one for one in structures if _is_region(one, text[begin:end])]
            if found:
                break
        else:
            return None
        one = found[0]
        content = text[begin + len(one["begin"]) : end - len(one["end"])]
        pieces += [text[here:begin], (one["begin"], content)]
        here = end
    return [piece for piece in [*pieces, text[here:]] if piece]


def _trigger(text: str, start: int, triggers: list[str]) -> int | None:
    for end in range(start + 1, len(text) + 1):
        ending = [trigger for trigger in triggers if text[start:end].endswith(trigger)]
        if ending:
            return end - len(max(ending, key=len))
    return None


def _is_region(structure: Structure, text: str) -> bool:
    begin, end = structure["begin"], structure["end"]
    if not (text.startswith(begin) and text.endswith(end)) or len(text) < len(begin + end):
        return False
    content = text[len(begin) : len(text) - len(end)]
    if "regex" in structure:
        return re.fullmatch(structure["regex"], content) is not None
    if "schema" in structure:
        return _is_compact(structure["schema"], content)
    return end not in f"{content}{end}"[:-1]


def _is_compact(schema: Any, text: str) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return False
    valid = jsonschema.Draft202012Validator(schema).is_valid(value)
    return valid and json.dumps(value, separators=(",", ":"), ensure_ascii=False) == text
