"""The decoder for CPUs as one function, and sampling: Numba kernels, with next to nothing between.

`decoder` and `sampling` are the doors. Numba may be missing or of no use here:
`ops.why_no_decoder` and `available` find out.
"""

from __future__ import annotations

import functools


@functools.cache
def available() -> bool:
    """Whether Numba is there and compiles."""
    try:
        import numba
    except ImportError:
        return False
    return not numba.config.DISABLE_JIT
