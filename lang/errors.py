"""The errors that programs meet; they are defined in `ramet.runtime.errors`."""

from __future__ import annotations

from ramet.runtime.errors import (
    BackendError,
    Cancelled,
    ContextOverflow,
    GrammarError,
    InvalidArgument,
    PoolTooSmall,
    ProgramError,
    RametError,
    UnsupportedFeature,
)

__all__ = [
    "BackendError",
    "Cancelled",
    "ContextOverflow",
    "GrammarError",
    "InvalidArgument",
    "PoolTooSmall",
    "ProgramError",
    "RametError",
    "UnsupportedFeature",
]
