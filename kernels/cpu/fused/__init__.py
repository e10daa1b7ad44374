"""The decoder for CPUs as one function, and sampling: Numba kernels, with next to nothing between.

`decoder` and `sampling` are the doors. Numba may be missing, or be of no use on this machine: to be
imported only where `why_not` says nothing.
"""

from __future__ import annotations

import functools
from pathlib import Path


def prepare(folder: Path) -> str | None:
    """Keep compiled kernels below `folder`, if it can be written (`keeps_code` says so); then as
    `why_not`.

    To be called before any kernel is used; else each process compiles them anew.
    """
    try:
        from ramet.kernels.cpu.fused import jit
    except ImportError:
        return why_not()
    jit.keep_code_in(folder)
    return why_not()


def keeps_code() -> bool:
    """Whether compiled kernels are kept for the processes that come."""
    from ramet.kernels.cpu.fused import jit

    return jit.code_folder() is not None


def compile_all() -> None:
    """Compile all kernels, if there is a folder to keep them in."""
    from ramet.kernels.cpu.fused import compiling, jit

    folder = jit.code_folder()
    if folder is not None:
        compiling.compile_parts(folder)


@functools.cache
def why_not() -> str | None:
    """Why there are no kernels on this machine, or None: a small product is compiled and compared,
    because what a processor can do is tried, not looked up."""
    try:
        import numba
    except ImportError as error:
        return f"the package numba can't be imported: {error}"
    if numba.config.DISABLE_JIT:
        return "NUMBA_DISABLE_JIT is set"
    try:
        from ramet.kernels.cpu.fused.trial import product_is_right

        right = product_is_right()
    except Exception as error:  # Whatever the compiler says of this processor.
        first = next((line for line in str(error).splitlines() if line.strip()), "")
        return f"compiling them failed: {type(error).__name__}: {first}"
    return None if right else "a compiled matrix product is wrong"
