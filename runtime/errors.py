"""The one tree of errors, shared by every room and re-exported by `ramet.lang`.

Messages say what was asked, what is allowed, and where. An error crosses the engine's channel as
`(kind, message)` and is rebuilt on the user's side by `from_wire`.
"""

from __future__ import annotations


class RametError(Exception):
    """Base of every error that ramet raises on purpose."""


class ProgramError(RametError):
    """A program did something a program may not do, such as reading a name it never set."""


class InvalidArgument(RametError, ValueError):
    """An argument is unusable; the message names it, its value and what is allowed."""


class UnsupportedFeature(RametError, NotImplementedError):
    """The model, the backend or this version cannot do what was asked."""


class ContextOverflow(RametError):
    """A path is longer than the model's context; the message has both lengths, in tokens."""


class PoolTooSmall(RametError):
    """A request can never fit the KV pool; the message has both sizes, in tokens."""


class GrammarError(RametError):
    """A constraint is malformed or cannot be enforced; the message says where."""


class BackendError(RametError):
    """The engine or a remote endpoint failed; the message has its own words."""


class Cancelled(RametError):
    """The call was aborted: its iterator was closed, its state cancelled, or its time ran out."""


_KINDS: dict[str, type[RametError]] = {
    kind.__name__: kind
    for kind in (
        ProgramError,
        InvalidArgument,
        UnsupportedFeature,
        ContextOverflow,
        PoolTooSmall,
        GrammarError,
        BackendError,
        Cancelled,
    )
}


def to_wire(error: Exception) -> tuple[str, str]:
    """The `(kind, message)` form of an error; one that is not ours becomes a `BackendError`."""
    if isinstance(error, RametError):
        for kind in type(error).__mro__:
            if kind.__name__ in _KINDS:
                return kind.__name__, str(error)
    return "BackendError", f"{type(error).__name__}: {error}"


def from_wire(kind: str, message: str) -> RametError:
    """Rebuild an error from its `(kind, message)` form."""
    return _KINDS.get(kind, BackendError)(message)
