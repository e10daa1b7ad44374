"""Front ends: from the text of a constraint to a grammar for the mask engine, whatever its kind."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ramet.runtime.grammar import dialect
from ramet.runtime.grammar.json_schema.front import schema_source
from ramet.runtime.grammar.lark_text import lark_text
from ramet.runtime.grammar.rules.ebnf import ebnf_source
from ramet.runtime.grammar.rules.lark_rules import lark_source
from ramet.runtime.grammar.source import Source
from ramet.runtime.grammar.spec import Constraint
from ramet.runtime.grammar.structural_tags import tags_source

if TYPE_CHECKING:
    from ramet.runtime.grammar.tag_pieces import TagReader


@functools.lru_cache(maxsize=256)
def source_of(constraint: Constraint) -> Source:
    """The grammar of a constraint; raises GrammarError for a text that is malformed, not supported
    or too large, UnsupportedFeature where a package is missing.

    It takes time by the size of the text: `probe.source_apart` does it in a process of its own.
    """
    return _source(constraint.kind, constraint.text, constraint.strict, constraint.whitespace)


def _source(kind: str, text: str, strict: bool, whitespace: str) -> Source:
    match kind:
        case "regex":
            return Source(lark_text(dialect.parse(text)))
        case "json_schema":
            return schema_source(text, strict=strict, whitespace=whitespace)
        case "lark":
            return lark_source(text)
        case "ebnf":
            return ebnf_source(text)
        case "structural_tags":
            return tags_source(text, strict=strict, whitespace=whitespace, compile_part=_source)
    raise ValueError(f"kind={kind!r}")


@functools.lru_cache(maxsize=64)
def tag_reader(constraint: Constraint) -> TagReader:
    """What tells the pieces of texts under structural tags apart; raises as `source_of`."""
    from ramet.runtime.grammar.tag_pieces import TagReader

    return TagReader(
        constraint.text,
        strict=constraint.strict,
        whitespace=constraint.whitespace,
        compile_part=_source,
    )


def violations(constraint: Constraint, text: str) -> list[str]:
    """What a whole text that the grammar takes violates of what the grammar leaves, each as
    `at …: …`."""
    from ramet.runtime.grammar.json_schema.checking import check_document
    from ramet.runtime.grammar.tag_formats import Content

    if constraint.kind == "json_schema":
        return check_document(constraint.text, text)
    found: list[str] = []

    def check(content: Content, part: str) -> None:
        if content.kind == "json_schema":
            found.extend(f"{content.place}: {one}" for one in check_document(content.text, part))

    if constraint.kind == "structural_tags":
        tag_reader(constraint).pieces(text, check)
    return found


def tree_of(grammar: str, text: str) -> Any:
    """The `lark.Tree` of a whole text of a Lark grammar; raises GrammarError for another text."""
    from ramet.runtime.grammar.rules.tree import parse_tree

    return parse_tree(grammar, text)
