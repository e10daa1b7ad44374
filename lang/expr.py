"""Expressions: what `s += …` takes, as immutable nodes.

Built by the functions of `api.py`, read by `branch.py`. A node holds only what the user wrote; no
node knows of a state or a backend, so one expression may be appended many times.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from ramet.lang.choices import ChoicesMethod
from ramet.lang.errors import InvalidArgument, ProgramError
from ramet.lang.marked import plain_text
from ramet.lang.typed import Reader
from ramet.runtime.request import SamplingParams, check_text, shown


class Expr:
    """Base of all expressions; `+` joins them with each other and with text."""

    __slots__ = ()

    def __str__(self) -> str:
        """Refused: a call is no text yet. `repr` shows it."""
        raise ProgramError(
            f"{self.brief()} cannot stand inside a text or an f-string: append it with + instead, "
            'as in "…" + gen("x")'
        )

    def __format__(self, _spec: str) -> str:
        return str(self)

    def brief(self) -> str:
        """What it is, for messages."""
        return type(self).__name__

    def __add__(self, other: object) -> Expr:
        return Sum((*nodes_of(self), *nodes_of(other)))

    def __radd__(self, other: object) -> Expr:
        return Sum((*nodes_of(other), *nodes_of(self)))


@dataclasses.dataclass(frozen=True, slots=True)
class Text(Expr):
    """Literal text; `special` text may become special tokens inside a role, too."""

    text: str
    special: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Gen(Expr):
    """One generation."""

    name: str | None
    fields: Mapping[str, Any]
    """The fields of SamplingParams that the user set; the rest is the run's."""
    params: SamplingParams | None
    """`fields` alone, if they can stand alone."""
    site: str
    """Where the call stands, as file:line."""
    logprob_texts: bool = True
    """Whether logprob entries keep the token's text."""
    dtype: str | Reader | None = None
    """The type of `s.value(name)`, as `typed.typed_value` has it; None is the text."""
    reasoning: str | None = None
    """The family of models whose thinking is told apart (`reasoning.THINK_TAGS`), if any is."""

    def brief(self) -> str:
        """As it is written."""
        return "gen()" if self.name is None else f"gen({self.name!r})"


@dataclasses.dataclass(frozen=True, slots=True)
class Select(Expr):
    """One selection between given texts."""

    name: str | None
    choices: tuple[str, ...]
    method: ChoicesMethod
    temperature: float
    site: str

    def brief(self) -> str:
        """As it is written."""
        return "select()" if self.name is None else f"select({self.name!r})"


@dataclasses.dataclass(frozen=True, slots=True)
class RoleBegin(Expr):
    """The opening of a chat message."""

    role: str


@dataclasses.dataclass(frozen=True, slots=True)
class RoleEnd(Expr):
    """The end of a chat message."""

    role: str


@dataclasses.dataclass(frozen=True, slots=True)
class Sum(Expr):
    """Expressions in order; `parts` holds no sums."""

    parts: tuple[Expr, ...]

    def brief(self) -> str:
        """Its parts."""
        return " + ".join(part.brief() for part in self.parts)


def nodes_of(value: object) -> Iterator[Expr]:
    """The nodes of what a program appends, in order, without sums.

    Raises InvalidArgument for what is neither text nor an expression, and for text with a lone
    surrogate.
    """
    if isinstance(value, str):
        yield Text(plain_text(check_text("text", value)))
    elif isinstance(value, Sum):
        yield from value.parts
    elif isinstance(value, Expr):
        yield value
    else:
        raise InvalidArgument(
            f"cannot append {shown(value)} of type {type(value).__name__}: a state takes text, "
            "gen(...), select(...), a role block, or a sum of them (str(...) makes text)"
        )
