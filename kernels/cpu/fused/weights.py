"""Weights as the kernels read them: in turned blocks (`hadamard`), int8 with one float32 scale per
output, 16 outputs abreast.

The same values serve one row and a thousand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch

from ramet.kernels.cpu.fused.hadamard import BLOCK, GROUP, blocks_of, turn_block
from ramet.kernels.cpu.fused.inputs import INFINITE, MAGNITUDE
from ramet.kernels.cpu.fused.jit import jit_exactly
from ramet.kernels.cpu.fused.lanes import LANES, VNNI, float_of
from ramet.kernels.cpu.fused.memory import Room
from ramet.kernels.cpu.fused.tile import PANEL
from ramet.kernels.reference import hadamard

_ZERO = 128 if VNNI else 0
"""What stands for zero."""


@dataclasses.dataclass(frozen=True)
class PackedMatrix:
    """A weight matrix `[outputs, inputs]`; `outputs` is filled up to whole panels by zeros."""

    values: torch.Tensor
    """`[columns, inputs / GROUP, 16, GROUP]`, inputs filled up to whole blocks: value
    `(16 * column + lane, GROUP * group + index)` of the turned matrix, int8; with `VNNI` 128 more,
    uint8."""
    scales: torch.Tensor
    """float32 `[16 * columns]`: by which an output's values are multiplied."""
    outputs: int
    """Outputs that mean something."""
    inputs: int
    """The inner dimension."""

    def dequantised(self) -> torch.Tensor:
        """float32 `[16 * columns, inputs]`: the matrix that products stand for."""
        rows = self.values.transpose(1, 2).reshape(self.values.shape[0] * LANES, -1)
        return hadamard((rows.float() - _ZERO) * self.scales.unsqueeze(1))[:, : self.inputs]


def pack(weight: torch.Tensor, name: str = "weight", room: Room | None = None) -> PackedMatrix:
    """Turn, quantise and pack a float matrix `[outputs, inputs]`, into `room`.

    A row's scale is its largest turned magnitude over 127 (round to nearest; symmetric, per
    channel). Raises ValueError, with the matrix's `name`, for a value that isn't finite, or is so
    large that turning makes it so.
    """
    return _pack([weight], name, room)


def pack_gated(
    gate_up: torch.Tensor, name: str = "weight", room: Room | None = None
) -> PackedMatrix:
    """Pack the two matrices of a gated MLP, `[2 * inner, inputs]`, gate's rows before up's: each
    panel has 16 outputs of the one, then the same 16 of the other."""
    return _pack(gate_up.chunk(2), name, room)


def _pack(matrices: Sequence[torch.Tensor], name: str, room: Room | None) -> PackedMatrix:
    """Pack matrices of one shape, their columns of 16 outputs taking turns."""
    count, (outputs, inputs) = len(matrices), matrices[0].shape
    columns = -(-outputs // LANES) * count
    columns += columns * LANES % PANEL // LANES
    filled = blocks_of(inputs) * BLOCK
    size = (columns, filled // GROUP, LANES, GROUP)
    values = (room or Room()).take(size, torch.uint8 if VNNI else torch.int8)
    values.fill_(_ZERO)
    scales = torch.zeros(columns * LANES, dtype=torch.float32)
    turned = np.empty(filled, dtype=np.float32)
    for index, matrix in enumerate(matrices):
        floats = matrix.detach().float().contiguous().numpy()
        if not _quantise(floats, turned, values.numpy(), scales.numpy(), index, count):
            raise ValueError(f"{name}: not all of its values are finite")
    # Divided here: the compiler would multiply by a rounded 1 / 127, which is another float32.
    return PackedMatrix(values, scales.div_(127.0), outputs * count, inputs)


@jit_exactly
def _quantise(weight, turned, values, maxima, first, stride):
    """Fill the columns `first`, `first + stride`, ... and write each output's largest magnitude;
    whether all values are finite. `turned` is memory for a row."""
    outputs, inputs = weight.shape
    for output in range(outputs):
        source, target = weight[output].ctypes.data, turned.ctypes.data
        for start in range(0, inputs, BLOCK):
            turn_block(source + 4 * start, inputs - start, target + 4 * start)
        # What is finite is ordered as its bits are. LLVM makes vectors of this, not of floats.
        most = np.int32(0)
        for bits in turned.view(np.int32):
            most = max(most, np.int32(bits & MAGNITUDE))
        if most >= INFINITE:
            return False
        largest = float_of(np.uint32(most))
        column, lane = first + output // LANES * stride, output % LANES
        factor = np.float32(127.0) / largest if largest > 0 else np.float32(0.0)
        maxima[column * LANES + lane] = largest
        for k in range(turned.shape[0]):
            whole = np.int32(np.rint(turned[k] * factor)) + _ZERO
            values[column, k // GROUP, lane, k % GROUP] = whole
    return True
