"""Kernels compiled by Numba, which may be absent: imported by those who asked `available` first."""

from __future__ import annotations

import functools


@functools.cache
def available() -> bool:
    """Whether this room can be imported."""
    try:
        import numba  # noqa: F401
    except ImportError:
        return False
    return True
