"""The first start on a machine: kernels are compiled beside the preparation of the model.

Both take some ten seconds, once. Compiling holds the GIL, so it is a process of its own, `python -m
ramet.runtime.first_start`; it leaves its results in the cache folder, where the engine finds them.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from ramet.runtime.builtin_model import is_prepared
from ramet.runtime.config import RuntimeConfig, cache_dir


@contextlib.contextmanager
def compiling_beside(config: RuntimeConfig) -> Iterator[None]:
    """Compile the kernels that `config` needs while the caller prepares a model that isn't ready.

    Afterwards they are compiled, or the engine will do it; an exception of the caller ends it.
    """
    fast = config.dtype in ("auto", "int8") and not config.device.startswith("cuda")
    if not fast or config.isolation != "process" or is_prepared(config.model):
        yield
        return
    nothing = subprocess.DEVNULL
    command = [sys.executable, "-m", "ramet.runtime.first_start"]
    process = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing)
    try:
        yield
        process.wait()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def main() -> None:
    """Compile what a decoder and a sampler need."""
    from ramet.kernels import ops

    if ops.prepare(cache_dir() / "kernels") is None:
        ops.compile_all()


if __name__ == "__main__":
    main()
