"""All kernels compiled before they are needed, by as many processes as come.

Each part is compiled by whoever is there first; others do what nobody has begun, then find it in
the folder of compiled code.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from pathlib import Path

import filelock
import numpy as np
import torch
from numba import types

from ramet.kernels.draws import Draws


def compile_parts(folder: Path) -> None:
    """Use every kernel once: what is compiled then stays in `folder`, where code is kept."""
    # The compiler makes millions of objects, and nearly all of them stay: looking for garbage
    # among them is a sixth of its time.
    collects = gc.isenabled()
    gc.disable()
    try:
        left = [part for part in (_steps, _draws, _units) if not _compile(part, folder, wait=False)]
        for part in (*left, _team):
            _compile(part, folder, wait=True)
    finally:
        if collects:
            gc.enable()


def _compile(part: Callable[[], None], folder: Path, *, wait: bool) -> bool:
    """Compile a part, or find it compiled; False, without `wait`, if another process is at it."""
    lock = filelock.FileLock(folder / f"{part.__name__.strip('_')}.lock")
    held: contextlib.AbstractContextManager[object]
    try:
        held = lock.acquire(timeout=-1 if wait else 0, poll_interval=0.02)
    except filelock.Timeout:
        return False
    except (OSError, NotImplementedError):  # A file system without locks.
        held = contextlib.nullcontext()
    with held:
        part()
    return True


def _steps() -> None:
    """What takes longest, as a third of it is attention."""
    from ramet.kernels.cpu.fused import step  # noqa: F401  # Importing it compiles its routines.


def _draws() -> None:
    from ramet.kernels.cpu.fused import sampling

    logits, first = torch.zeros(1, 40), torch.tensor([0])
    sampling.greedy(logits, [0])
    asked = torch.tensor([[1.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    half = torch.tensor([[0.5]], dtype=torch.float64)
    sampling.draw(logits, Draws(first, asked, half, torch.zeros((0, 2), dtype=torch.int64)))


def _units() -> None:
    from ramet.kernels.cpu.fused.units import build_units

    items = np.array([[0], [1], [0], [1], [0]], dtype=np.int64)  # One row reads one slot.
    build_units(items, np.zeros(1, dtype=np.int64), group=1, kv_heads=1, window=0, threads=1)


def _team() -> None:
    """What needs the other parts, and is small."""
    from ramet.kernels.cpu.fused import team, weights

    weights.pack(torch.eye(2))
    for kernel in team.KERNELS:
        kernel.compile((types.int64,) * 3)
