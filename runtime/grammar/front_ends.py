"""Front ends: from the text of a constraint to a grammar for the mask engine, whatever its kind."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ramet.runtime.errors import UnsupportedFeature
from ramet.runtime.grammar import dialect
from ramet.runtime.grammar.lark_text import lark_text
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
    if kind == "regex":
        return Source(lark_text(dialect.parse(text)))
    if kind == "structural_tags":
        return tags_source(text, strict=strict, whitespace=whitespace, compile_part=_source)
    raise NotImplementedError(kind)


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


def tree_of(grammar: str, text: str) -> Any:
    """The `lark.Tree` of a whole text of a Lark grammar; raises GrammarError for another text."""
    raise UnsupportedFeature("lark: no parse trees in this version")
