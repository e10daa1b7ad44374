"""Constraint: what a generated text must be, as plain data that crosses the channel.

It is checked when it is built, in the user's process and again in the engine, and names no engine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

from ramet.runtime.errors import GrammarError, InvalidArgument, UnsupportedFeature
from ramet.runtime.grammar import dialect

MAX_TEXT: Final = 128 * 1024
"""Longest constraint, in UTF-8 bytes; ten thousand alternatives of a dozen characters."""

LATER: Final = ("json_schema", "ebnf", "lark", "structural_tags")
"""Kinds that have a name, but no front end in this version."""

_CHECKS: Final[Mapping[str, Callable[[str], object]]] = {"regex": dialect.parse}
"""By kind, what raises GrammarError for a text that isn't one."""


@dataclasses.dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint on a whole generated text.

    Raises InvalidArgument for what is no text, UnsupportedFeature for a kind of a later version,
    GrammarError for a text that is malformed, unsupported or too large.
    """

    kind: str
    """`regex` (the dialect of `dialect.py`)."""
    text: str
    """The regex itself."""

    def __post_init__(self) -> None:
        if self.kind in LATER:
            raise UnsupportedFeature(f"constraint: this version enforces no {self.kind}")
        if self.kind not in _CHECKS:
            raise InvalidArgument(
                f"constraint: kind={self.kind!r:.200}: must be one of {', '.join(_CHECKS)}"
            )
        if not isinstance(self.text, str):
            raise InvalidArgument(f"{self.kind}={self.text!r:.200}: must be a str")
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
        _CHECKS[self.kind](self.text)

    @classmethod
    def of(cls, value: object) -> Constraint | None:
        """From a Constraint, its wire form or None; raises as the constructor."""
        if value is None or isinstance(value, Constraint):
            return value
        if not isinstance(value, Mapping) or set(value) != {"kind", "text"}:
            raise InvalidArgument(
                f"constraint={value!r:.200}: must be a Constraint, a dict of kind and text, or None"
            )
        return cls(value["kind"], value["text"])

    def to_wire(self) -> dict[str, Any]:
        """Plain data; `of` reverses it."""
        return {"kind": self.kind, "text": self.text}
