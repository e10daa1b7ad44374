"""Scopes: where in a run nested programs are started, so that their seeds don't depend on order."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import hashlib
from collections.abc import Iterator

from ramet.lang.errors import ProgramError

MAX_NESTING = 64
"""How deep programs may run programs; a waiting one may run its child on its own stack."""


@dataclasses.dataclass(slots=True)
class Scope:
    """The body of a run, or one `call` of a function in it. Nested programs and calls are counted
    apart in each, because a compiled program's functions run in any order."""

    owner: object
    """The run."""
    seed: int | None
    """The run's seed."""
    depth: int
    """How many programs the run is nested in."""
    path: str = ""
    num_nested: int = 0
    num_calls: int = 0

    def nested_seed(self, name: str) -> int | None:
        """The seed of the nested program `name`, which is about to start; None if this run has
        none. Raises ProgramError if programs are nested too deep."""
        if self.depth >= MAX_NESTING:
            raise ProgramError(f"{name}: programs are nested more than {MAX_NESTING} deep")
        here = self._here()
        number, here.num_nested = here.num_nested, here.num_nested + 1
        if self.seed is None:
            return None
        stream = f"{self.seed}|nested|{here.path}{number}".encode()
        return int.from_bytes(hashlib.blake2b(stream, digest_size=8).digest(), "little")

    @contextlib.contextmanager
    def call(self, number: int | None = None) -> Iterator[None]:
        """What runs inside is the `number`-th `call` of a function, by default the next one."""
        path = f"{number}."
        if number is None:
            outer = self._here()
            path = f"{outer.path}{outer.num_calls}."
            outer.num_calls += 1
        token = _current.set(dataclasses.replace(self, path=path, num_nested=0, num_calls=0))
        try:
            yield
        finally:
            _current.reset(token)

    def _here(self) -> Scope:
        """The innermost scope of the same run that this code is in."""
        scope = _current.get()
        return scope if scope is not None and scope.owner is self.owner else self


_current: contextvars.ContextVar[Scope | None] = contextvars.ContextVar("ramet_scope", default=None)
