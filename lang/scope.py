"""Scopes: where in a run nested programs are started, so that their seeds don't depend on order."""

from __future__ import annotations

import contextvars
import dataclasses


@dataclasses.dataclass(slots=True)
class Scope:
    """The body of a run, or one `call` of a function in it. Nested programs and calls are counted
    apart in each, because a compiled program's functions run in any order."""

    owner: object
    """The run."""
    path: str = ""
    num_nested: int = 0
    num_calls: int = 0

    def here(self) -> Scope:
        """The innermost scope of the same run that this code is in; this one outside of others."""
        scope = _current.get()
        return scope if scope is not None and scope.owner is self.owner else self

    def enter(self) -> contextvars.Token[Scope | None]:
        """Make this the innermost scope of this thread or task; `leave` takes the result."""
        return _current.set(self)

    @staticmethod
    def leave(token: contextvars.Token[Scope | None]) -> None:
        """Go back to the scope before."""
        _current.reset(token)


_current: contextvars.ContextVar[Scope | None] = contextvars.ContextVar("ramet_scope", default=None)
