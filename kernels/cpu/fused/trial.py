"""Whether this machine's compiler and processor do what the kernels are made of."""

from __future__ import annotations

import numpy as np
import torch

from ramet.kernels.cpu.fused.inputs import GROUP, row_bytes, store_row
from ramet.kernels.cpu.fused.jit import jit
from ramet.kernels.cpu.fused.lanes import VNNI
from ramet.kernels.cpu.fused.tile import INPUT_ROWS, PANEL, times_bytes
from ramet.kernels.cpu.fused.weights import pack


@jit
def _multiply(floats, a, b, c, rows, steps):
    for row in range(floats.shape[0]):
        store_row(floats[row].ctypes.data, floats.shape[1], a[row].ctypes.data)
    times_bytes(
        rows, a.ctypes.data, a.strides[0], b.ctypes.data, b.strides[0], steps, c.ctypes.data,
        c.strides[0], 0,
    )  # fmt: skip


def product_is_right() -> bool:
    """Multiply a panel by each number of rows of a tile, and compare with plain sums."""
    inputs, rows = 8, INPUT_ROWS
    matrix = (np.arange(PANEL * inputs) * 37 % 255 - 127).reshape(PANEL, inputs)
    floats = (np.arange(rows * inputs, dtype=np.float32).reshape(rows, inputs) - 40) / 8
    packed = pack(torch.from_numpy(matrix.astype(np.float32)))
    b, a = packed.values.numpy(), np.zeros((rows, row_bytes(inputs)), dtype=np.uint8)
    wanted = floats @ (packed.dequantised().numpy() / packed.scales.numpy()[:, None]).T
    for count in range(1, rows + 1):
        c = np.zeros((rows, PANEL), dtype=np.float32)
        _multiply(floats, a, b, c, count, inputs // (GROUP if VNNI else 2))
        # Rounding an input to 16 bits changes it by 8e-5 at most.
        if not np.allclose(c[:count], wanted[:count], rtol=1e-6, atol=0.1):
            return False
    return True
