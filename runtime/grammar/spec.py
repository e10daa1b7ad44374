"""Constraint: what a generated text must be, as plain data that crosses the channel.

It names no engine. Building one checks what can be checked at once; `front_ends.source_of` says
whether the text means anything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from ramet.runtime.errors import GrammarError, InvalidArgument

MAX_TEXT: Final = 1024 * 1024
"""Longest constraint, in UTF-8 bytes."""

KINDS: Final = ("regex", "json_schema", "lark", "ebnf", "structural_tags")
"""`regex` (the dialect of `dialect.py`), `json_schema` and `structural_tags` (both as JSON text),
`lark` and `ebnf` (a grammar)."""

WHITESPACE: Final = ("compact", "flexible")


@dataclasses.dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint on a whole generated text.

    Raises InvalidArgument for what is no constraint, GrammarError for a text that is too large.
    """

    kind: str
    """One of `KINDS`."""
    text: str
    """The regex, the schema, the grammar or the tags."""
    strict: bool = True
    """Whether a JSON Schema that can't be enforced whole is refused; else the rest is checked on
    the finished text, and named."""
    whitespace: str = "compact"
    """Between the tokens of JSON: none ("compact"), or any ("flexible")."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidArgument(
                f"constraint: kind={self.kind!r:.200}: must be one of {', '.join(KINDS)}"
            )
        if not isinstance(self.text, str):
            raise InvalidArgument(f"{self.kind}={self.text!r:.200}: must be a str")
        if not isinstance(self.strict, bool):
            raise InvalidArgument(f"strict={self.strict!r:.200}: must be True or False")
        if self.whitespace not in WHITESPACE:
            raise InvalidArgument(
                f"whitespace={self.whitespace!r:.200}: must be one of {', '.join(WHITESPACE)}"
            )
        try:
            size = len(self.text.encode())
        except UnicodeEncodeError as error:
            raise InvalidArgument(
                f"{self.kind}: a lone surrogate at position {error.start}, which no text contains"
            ) from None
        if size > MAX_TEXT:
            raise GrammarError(
                f"{self.kind}: too large: {size:,} bytes, and at most {MAX_TEXT:,} are supported"
            )

    @classmethod
    def of(cls, value: object) -> Constraint | None:
        """From a Constraint, its wire form or None; raises as the constructor."""
        if value is None or isinstance(value, Constraint):
            return value
        if not isinstance(value, Mapping) or not {"kind", "text"} <= set(value) <= _FIELDS:
            raise InvalidArgument(
                f"constraint={value!r:.200}: must be a Constraint, a dict of kind and text "
                "(and strict, whitespace), or None"
            )
        return cls(**value)

    def to_wire(self) -> dict[str, Any]:
        """Plain data, without what is as by default; `of` reverses it."""
        wire: dict[str, Any] = {"kind": self.kind, "text": self.text}
        if not self.strict:
            wire["strict"] = False
        if self.whitespace != "compact":
            wire["whitespace"] = self.whitespace
        return wire


_FIELDS = {field.name for field in dataclasses.fields(Constraint)}
