"""The first start on a machine: kernels are compiled beside the preparation of the model.

Both take some seconds, once. Compiling holds the GIL, so there is a process for it, `python -m
ramet.runtime.first_start`, which leaves its results in the cache folder. The engine's process takes
part in it as soon as it has the model.
"""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ramet.kernels import code_folder
from ramet.runtime.config import RuntimeConfig, cache_dir


def kernels_folder() -> Path:
    """Where compiled kernels are kept."""
    return cache_dir() / "kernels"


@contextlib.contextmanager
def compiling_beside(config: RuntimeConfig) -> Iterator[None]:
    """Compile the kernels that `config` needs, unless they are there, while the caller does what
    else it has to do first.

    Afterwards they are compiled; an exception of the caller ends it.
    """
    fast = config.dtype in ("auto", "int8") and not config.device.startswith("cuda")
    folder = code_folder.open_folder(kernels_folder()) if fast else None
    if folder is None or config.isolation != "process" or code_folder.is_complete(folder):
        yield
        return
    nothing = subprocess.DEVNULL
    command = [sys.executable, "-P", "-m", "ramet.runtime.first_start"]
    process = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing)
    try:
        yield
        compile_kernels(folder)
    finally:
        process.kill()
        process.wait()


def compile_kernels(folder: Path) -> None:
    """Compile what a decoder and a sampler need, where a machine has such kernels, and mark the
    folder that has them now."""
    from ramet.kernels import ops

    if ops.prepare(folder.parent) is None:
        ops.compile_all()
    code_folder.mark_complete(folder)


def main() -> None:
    """Compile kernels into the cache folder, if it can be written."""
    gc.disable()  # The process ends before it would be worth its time.
    folder = code_folder.open_folder(kernels_folder())
    if folder is not None:
        compile_kernels(folder)


if __name__ == "__main__":
    main()
