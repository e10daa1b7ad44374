"""Numba, set up in one place: how kernels are compiled, where their code is kept, what this
processor has."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numba.core.codegen
from numba.core.ccallback import CFunc
from numba.core.sigutils import normalize_signature

from ramet.kernels.code_folder import open_folder
from ramet.kernels.cpu.fused.code_files import CodeCache
from ramet.kernels.cpu.fused.parts import PartCompiler

_OPTIONS: dict[str, Any] = {
    "error_model": "numpy",
    # Sums may be put in another order. NaN and infinity stay what they are: masks are made of them.
    "fastmath": {"contract", "reassoc", "nsz", "arcp"},
    "boundscheck": False,
}


class _Setup:
    """The one setting of this file: where compiled code is kept."""

    folder: Path | None = None


def keep_code_in(folder: Path) -> bool:
    """Keep compiled kernels below `folder`, which is made; False if it can't be written.

    To be called before the kernels' files are imported; without it they are compiled again by
    each process. Processes may share the folder, also when they start at once.
    """
    opened = open_folder(folder)
    if opened is not None:
        _Setup.folder = opened
    return opened is not None


def code_folder() -> Path | None:
    """Where compiled kernels are kept, if they are."""
    return _Setup.folder


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `function` at its first call, to run without the GIL."""
    return _kept(function, _OPTIONS)


def jit_exactly(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `jit`, with each operation on floats as it is written."""
    return _kept(function, {**_OPTIONS, "fastmath": False})


def _kept(function: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    compiled = numba.njit(nogil=True, **options)(function)
    _keep_code_of(compiled, function)
    return compiled  # type: ignore[no-any-return]


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """For what only other kernels call: it becomes a part of each of them."""
    own = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": PartCompiler}
    return numba.njit(nogil=True, **own, **_OPTIONS)(function)  # type: ignore[no-any-return]


def compile_routine(function: Callable[..., Any], signature: Any) -> Any:
    """Compile `function` now, as a C function; `lanes.routine` makes it one for kernels."""
    compiled = CFunc(function, normalize_signature(signature), locals={}, options=_OPTIONS)
    _keep_code_of(compiled, function)
    compiled.compile()
    return compiled


def _keep_code_of(compiled: Any, function: Callable[..., Any]) -> None:
    """Numba reads where code is kept when a function is decorated; whoever else uses it in this
    process keeps theirs."""
    if _Setup.folder is None:
        return
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = os.fspath(_Setup.folder)
    try:
        compiled._cache = CodeCache(function)
    finally:
        numba.config.CACHE_DIR = before


def has(feature: str) -> bool:
    """Whether Numba compiles for a processor with `feature`, by LLVM's name ("avx512bf16")."""
    given = numba.config.CPU_FEATURES
    if given is None:
        given = numba.core.codegen.get_host_cpu_features()
    return f"+{feature}" in given.split(",")
