"""The decoder for CPUs as one function: Numba kernels, written for few instructions between them.

`decoder` is the door. Nothing here is imported unless `available` says so: Numba may be missing.
"""

from __future__ import annotations

import functools
import importlib.util


@functools.cache
def available() -> bool:
    """Whether these kernels can be compiled on this machine."""
    return importlib.util.find_spec("numba") is not None
