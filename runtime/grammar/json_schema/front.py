"""The front door: from a schema's text to a grammar of the documents that satisfy it."""

from __future__ import annotations

from typing import Final

from ramet.runtime.errors import GrammarError, InvalidArgument
from ramet.runtime.grammar.json_schema.builder import Builder
from ramet.runtime.grammar.json_schema.normal import normalise
from ramet.runtime.grammar.json_schema.reading import Unsupported
from ramet.runtime.grammar.json_schema.text import refuse, step
from ramet.runtime.grammar.source import Source

WHITESPACE: Final = ("compact", "flexible")
MAX_DROPPED: Final = 100
"""Keywords that one schema may have unenforced."""


def schema_source(text: str, *, strict: bool = True, whitespace: str = "compact") -> Source:
    """A grammar of the documents that satisfy a schema, given as JSON text.

    Documents have declared keys in the schema's order, no `1.0` for an integer, and no blanks
    (`whitespace="compact"`), or up to MAX_WHITESPACE in one place between tokens (`"flexible"`).
    With `strict`, a keyword that can't be enforced is an error; else it is left out and named in
    `unenforced`. Raises GrammarError for a malformed, unsupported or unsatisfiable schema.
    """
    if whitespace not in WHITESPACE:
        raise InvalidArgument(
            f"whitespace={whitespace!r:.200}: must be one of {', '.join(WHITESPACE)}"
        )
    root = normalise(text)
    dropped: dict[tuple[str, str], None] = {}
    while True:
        try:
            lark = Builder(set(dropped), whitespace, len(text)).build(root)
        except Unsupported as error:
            blamed = [source for source in _sources(error) if source not in dropped]
            if strict or not blamed:
                why = f"{error.keyword} can't be enforced: {error.why}"
                refuse(step(error.pointer, error.keyword), why)
            source = blamed[0]
            if len(dropped) >= MAX_DROPPED:
                raise GrammarError("json_schema: too many keywords can't be enforced") from None
            dropped[source] = None
            continue
        except RecursionError:
            raise GrammarError("json_schema: nested too deep: a chain of schemas") from None
        if lark is None:
            raise GrammarError("json_schema: at the root: no document can satisfy this schema")
        return Source(lark, tuple(f"{pointer or '/'}: {word}" for pointer, word in dropped))


def _sources(error: Unsupported) -> list[tuple[str, str]]:
    """The keywords that may be behind what can't be enforced, the likeliest first.

    An `unevaluated…` is read as `additionalProperties` or `items`, an array or object in `const` or
    `enum` as a schema of its parts.
    """
    found = [(error.pointer, error.keyword)]
    if error.keyword in ("additionalProperties", "patternProperties"):
        found.append((error.pointer, "unevaluatedProperties"))
    elif error.keyword in ("items", "prefixItems"):
        found.append((error.pointer, "unevaluatedItems"))
    parent, _, last = error.pointer.rpartition("/")
    if last in ("const", "enum"):
        found.append((parent, last))
    return found
