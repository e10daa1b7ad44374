"""Weights as the kernels read them: int8 with one float32 scale per output, 16 outputs abreast.

The same values serve one row and a thousand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch

from ramet.kernels.cpu.fused.inputs import GROUP
from ramet.kernels.cpu.fused.jit import jit
from ramet.kernels.cpu.fused.lanes import LANES, VNNI
from ramet.kernels.cpu.fused.memory import Room
from ramet.kernels.cpu.fused.tile import PANEL

_ZERO = 128 if VNNI else 0
"""What stands for zero."""


@dataclasses.dataclass(frozen=True)
class PackedMatrix:
    """A weight matrix `[outputs, inputs]`; `outputs` is filled up to whole panels by zeros."""

    values: torch.Tensor
    """`[blocks, inputs / GROUP, 16, GROUP]`, inputs filled up to whole groups: value `(16 * block +
    lane, GROUP * group + index)` of the matrix, int8; with `VNNI` 128 more, uint8."""
    scales: torch.Tensor
    """float32 `[16 * blocks]`: by which an output's values are multiplied."""
    outputs: int
    """Outputs that mean something."""
    inputs: int
    """The inner dimension."""

    def dequantised(self) -> torch.Tensor:
        """float32 `[16 * blocks, inputs]`: the matrix that products are made with."""
        rows = self.values.transpose(1, 2).reshape(self.values.shape[0] * LANES, -1)
        return (rows[:, : self.inputs].float() - _ZERO) * self.scales.unsqueeze(1)


def pack(weight: torch.Tensor, name: str = "weight", room: Room | None = None) -> PackedMatrix:
    """Quantise and pack a float matrix `[outputs, inputs]`, `inputs` even, into `room`.

    A row's scale is its largest magnitude over 127 (round to nearest; symmetric, per channel).
    Raises ValueError, with the matrix's `name`, for an odd number of inputs or a value that isn't
    finite.
    """
    return _pack([weight], name, room)


def pack_gated(
    gate_up: torch.Tensor, name: str = "weight", room: Room | None = None
) -> PackedMatrix:
    """Pack the two matrices of a gated MLP, `[2 * inner, inputs]`, gate's rows before up's: each
    panel has 16 outputs of the one, then the same 16 of the other."""
    return _pack(gate_up.chunk(2), name, room)


def _pack(matrices: Sequence[torch.Tensor], name: str, room: Room | None) -> PackedMatrix:
    """Pack matrices of one shape, their blocks of 16 outputs taking turns."""
    count, (outputs, inputs) = len(matrices), matrices[0].shape
    if inputs % 2:
        raise ValueError(f"{name}: {inputs} inputs; packed matrices have an even number of them")
    own = -(-outputs // LANES)
    blocks = own * count
    blocks += blocks * LANES % PANEL // LANES
    size = (blocks, -(-inputs // GROUP), LANES, GROUP)
    values = (room or Room()).take(size, torch.uint8 if VNNI else torch.int8)
    values.fill_(_ZERO)
    scales = torch.zeros(blocks * LANES, dtype=torch.float32)
    for index, matrix in enumerate(matrices):
        floats = matrix.detach().float().contiguous().numpy()
        if not _quantise(floats, values.numpy(), scales.numpy(), index, count):
            raise ValueError(f"{name}: not all of its values are finite")
    # Divided here: the compiler would multiply by a rounded 1 / 127, which is another float32.
    return PackedMatrix(values, scales.div_(127.0), outputs * count, inputs)


@jit
def _quantise(weight, values, maxima, first, stride):
    """Fill the blocks `first`, `first + stride`, ... and write each output's largest magnitude;
    whether all values are finite."""
    outputs, inputs = weight.shape
    for output in range(outputs):
        largest = np.float32(0.0)
        for k in range(inputs):
            size = abs(weight[output, k])
            if not size < np.inf:
                return False
            largest = max(largest, size)
        block, lane = first + output // LANES * stride, output % LANES
        factor = np.float32(127.0) / largest if largest > 0 else np.float32(0.0)
        maxima[block * LANES + lane] = largest
        for k in range(inputs):
            whole = np.int32(np.rint(weight[output, k] * factor)) + _ZERO
            values[block, k // GROUP, lane, k % GROUP] = whole
    return True
