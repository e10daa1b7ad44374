"""Source: what a front end turns a constraint into, for the mask engine."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """A grammar for the mask engine, and what it leaves for the finished text."""

    lark: str
    """The grammar, in llguidance's Lark syntax, header included."""
    unenforced: tuple[str, ...] = ()
    """What it does not enforce, each as `pointer: keyword`, to be checked on the finished text;
    empty unless the constraint isn't strict."""
