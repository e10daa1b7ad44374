"""Whether this machine's compiler and processor do what the kernels are made of."""

from __future__ import annotations

import numpy as np

from ramet.kernels.cpu.fused.jit import jit
from ramet.kernels.cpu.fused.lanes import DOT
from ramet.kernels.cpu.fused.tile import PANEL, ROWS, times_bytes


@jit
def _multiply(a, b, c, rows, steps):
    times_bytes(
        rows, a.ctypes.data, a.strides[0], b.ctypes.data, b.strides[0], steps, c.ctypes.data,
        c.strides[0], 0,
    )  # fmt: skip


def product_is_right() -> bool:
    """Multiply a panel by each number of rows of a tile, and compare with plain sums."""
    inputs = 6
    values = (np.arange(PANEL * inputs) * 37 % 255 - 127).astype(np.int8)
    b = values.reshape(2, inputs, PANEL // 2)
    wanted = np.arange(ROWS * inputs, dtype=np.float32).reshape(ROWS, inputs) - 40
    a = (wanted.view(np.uint32) >> 16).astype(np.uint16) if DOT else wanted
    matrix = b.transpose(0, 2, 1).reshape(PANEL, inputs).astype(np.float32)
    for rows in range(1, ROWS + 1):
        c = np.zeros((ROWS, PANEL), dtype=np.float32)
        _multiply(a, b, c, rows, inputs // 2)
        if not np.array_equal(c[:rows], (wanted @ matrix.T)[:rows]):
            return False
    return True
