"""Functions that are only parts of others: brought to LLVM's language, but not compiled themselves.

Numba compiles each function for its own sake before it is linked to those that call it, and then
again as a part of each of them. Without the former, compiling all kernels takes two thirds of the
time, and what comes out is as fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class PartCompiler(Compiler):
    """Numba's compiler, for a function that nothing but other kernels calls."""

    def compile_extra(self, func: Callable[..., Any]) -> Any:
        """Compile a Python function; Numba puts its code into the library that it finds here."""
        self.state.library = _Part(self.state.targetctx.codegen(), func.__qualname__)
        return super().compile_extra(func)


class _NoEnvironment:
    """What a function's globals would be written to, if it were called from Python."""

    @staticmethod
    def set_env(_name: str, _environment: Any) -> None:
        """There is no machine code that would read them."""


class _Part(JITCodeLibrary):
    """The code of one function, to be linked as it is."""

    codegen = _NoEnvironment

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True
