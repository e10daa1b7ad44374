"""The folder of compiled kernels, one for each version of their sources and of their compiler.

Loads neither torch nor Numba: whoever starts an engine asks here first what there is to compile.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

KEPT_DAYS = 30
"""Folders that nobody has opened for so long are removed."""
_SOURCES = Path(__file__).parent / "cpu" / "fused"
_COMPLETE = "complete"
"""A file of this name says that the folder has all that is compiled before the first step."""


def open_folder(kernels: Path) -> Path | None:
    """The folder of the present sources below `kernels`, made and marked as in use; None if it
    can't be written. Any number of processes may have it open.

    Others that have not been opened for `KEPT_DAYS` days are removed. Whoever still runs from one
    of them has its code in memory, and what isn't there any more is compiled again.
    """
    folder = kernels / _name()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        os.utime(folder)
        _remove_unused(kernels)
    except OSError:
        return None
    return folder


def is_complete(folder: Path) -> bool:
    """Whether everything was compiled once."""
    return (folder / _COMPLETE).is_file()


def mark_complete(folder: Path) -> None:
    """Say that everything is compiled."""
    with contextlib.suppress(OSError):
        (folder / _COMPLETE).touch()


@functools.cache
def _name() -> str:
    """Names the sources of all kernels and the compiler: Numba keeps code by the file of its own
    function alone, and a change anywhere compiles everything again."""
    try:
        version = importlib.metadata.version("numba")
    except importlib.metadata.PackageNotFoundError:
        version = ""
    digest = hashlib.sha256(version.encode())
    for path in sorted(_SOURCES.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _remove_unused(kernels: Path) -> None:
    """Remove folders of other sources that have not been opened for long."""
    oldest = time.time() - KEPT_DAYS * 24 * 3600
    for folder in kernels.iterdir():
        with contextlib.suppress(FileNotFoundError):  # Another process was faster.
            if re.fullmatch("[0-9a-f]{16}", folder.name) and folder.stat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)
