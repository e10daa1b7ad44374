"""Front ends: from the text of a constraint to a grammar for the mask engine, whatever its kind."""

from __future__ import annotations

import functools

from ramet.runtime.grammar import dialect
from ramet.runtime.grammar.lark_text import lark_text
from ramet.runtime.grammar.source import Source
from ramet.runtime.grammar.spec import Constraint
from ramet.runtime.grammar.structural_tags import tags_source


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
