"""Whether this machine's compiler and processor do what the kernels are made of."""

from __future__ import annotations

import numpy as np
import torch

from ramet.kernels.cpu.fused.hadamard import BLOCK
from ramet.kernels.cpu.fused.inputs import row_bytes, store_row
from ramet.kernels.cpu.fused.jit import jit
from ramet.kernels.cpu.fused.lanes import VNNI
from ramet.kernels.cpu.fused.tile import INPUT_ROWS, PANEL, times_bytes
from ramet.kernels.cpu.fused.weights import pack
from ramet.kernels.reference import hadamard, quantise, quantise_inputs


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
    inputs, rows = 70, INPUT_ROWS
    matrix = (np.arange(PANEL * inputs) * 37 % 255 - 127).reshape(PANEL, inputs)
    floats = (np.arange(rows * inputs, dtype=np.float32).reshape(rows, inputs) - 40) / 8
    weights = torch.from_numpy(matrix.astype(np.float32))
    values, _ = quantise(weights)
    b, a = pack(weights).values.numpy(), np.zeros((rows, row_bytes(inputs)), dtype=np.uint8)
    rows_read = torch.from_numpy(floats)
    turned = quantise_inputs(rows_read) if VNNI else hadamard(rows_read)
    wanted = (turned @ values.float().T).numpy()
    for count in range(1, rows + 1):
        c = np.zeros((rows, PANEL), dtype=np.float32)
        _multiply(floats, a, b, c, count, 2 if VNNI else BLOCK)
        if not np.allclose(c[:count], wanted[:count], rtol=1e-5, atol=0.1):
            return False
    return True
