"""The linear layers of a step: packed weights times rows, a panel at a time, and what follows.

With `VNNI` any number of rows is multiplied by the int8 values as they are read. Elsewhere, for
more than a tile of rows, a panel is first unpacked to float32, into a scratch that stays in the
core's cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from ramet.kernels.cpu.fused.fields import NUM_LINEAR, Linear
from ramet.kernels.cpu.fused.hadamard import BLOCK, blocks_of
from ramet.kernels.cpu.fused.inputs import bytes_of_row
from ramet.kernels.cpu.fused.jit import inlined
from ramet.kernels.cpu.fused.lanes import (
    DOT,
    LANES,
    VNNI,
    Code,
    bf16_bits,
    f32_array,
    float_of,
    i64_array,
    routine,
    u16_array,
)
from ramet.kernels.cpu.fused.outputs import put
from ramet.kernels.cpu.fused.phases import finish, take, wait
from ramet.kernels.cpu.fused.tile import (
    INPUT_ROWS,
    PANEL,
    ROWS,
    int8_pairs,
    times_bytes,
    times_floats,
)

CHUNK = 256
"""Most rows of a task: enough that unpacking a panel for them costs nothing."""
AHEAD = 256 * 1024
"""Most bytes of weights that a thread asks for while it waits: they stay in its L2 cache."""
_STEP_BYTES = 2 * LANES
"""Bytes of two inputs of 16 outputs."""
_UNPACKED = 2 * LANES * 4
"""The same, unpacked."""
C_BYTES = INPUT_ROWS * PANEL * 4
"""Bytes of a tile's sums."""


def scratch_bytes(inputs: int) -> int:
    """Bytes of scratch that a thread needs for matrices of so many inputs."""
    return C_BYTES + (0 if VNNI else blocks_of(inputs) * BLOCK * _UNPACKED)


@intrinsic
def _unpack_step(_context: Any, source: Any, target: Any) -> Any:
    """Two inputs of 16 outputs, from int8 to what `times_floats` reads."""

    def write(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        code = Code(builder)
        for index, vector in enumerate(int8_pairs(code, arguments[0])):
            code.store(vector, code.at(arguments[1], 4 * LANES * index))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), write


@inlined
def activation_view(address, shape):
    """The array of activations at an address: bfloat16 bits with `DOT`, else float32."""
    if DOT:
        return u16_array(address, shape)
    return f32_array(address, shape)


@inlined
def activation(value):
    """A float32 as an activation: rounded to bfloat16, as its bits with `DOT`."""
    if DOT:
        return bf16_bits(value)
    return float_of(np.uint32(bf16_bits(value)) << np.uint32(16))


@inlined
def _unpack(values, inputs, unpacked):
    """Unpack a panel: twice `inputs` times 16 int8, which follow one another, here and there."""
    for step in range(inputs):
        _unpack_step(values + step * _STEP_BYTES, unpacked + step * _UNPACKED)


@inlined
def _panel(line, first, last, panel, scratch):
    """One panel for the rows `first` to `last - 1`."""
    blocks = (line[Linear.INPUTS] + BLOCK - 1) // BLOCK
    inputs = blocks * BLOCK
    a_stride, b_stride = bytes_of_row(inputs), inputs * LANES
    here = line[Linear.VALUES] + panel * 2 * b_stride
    unpacked = scratch + C_BYTES
    many = not VNNI and last - first > INPUT_ROWS
    if many:
        _unpack(here, inputs, unpacked)
    for row in range(first, last, INPUT_ROWS):
        rows = min(INPUT_ROWS, last - row)
        at = line[Linear.FROM] + row * a_stride
        if many:
            times_floats(
                rows, at, a_stride, unpacked, inputs // 2 * _UNPACKED, inputs, scratch, 4 * PANEL,
                0,
            )  # fmt: skip
        else:
            steps = blocks if VNNI else inputs // 2
            # While the last rows are multiplied, nothing but the next panel is to be read.
            late = first < row >= last - 2 * INPUT_ROWS and 2 * rows > INPUT_ROWS
            beyond = 2 * b_stride if late else 0
            times_bytes(rows, at, a_stride, here, b_stride, steps, scratch, 4 * PANEL, beyond)
        put(line, scratch, rows, row, panel)


@inlined
def ahead_of(line_at, rows, thread, threads):
    """`(address, end)` of the weights that a thread will read first in a linear phase: what it may
    ask for ahead of time. Nothing, where the products take longer than the reading."""
    line = i64_array(line_at, (NUM_LINEAR,))
    panels = (line[Linear.OUTPUTS] + PANEL - 1) // PANEL
    first, last = panels * thread // threads, panels * (thread + 1) // threads
    size = PANEL * ((line[Linear.INPUTS] + BLOCK - 1) // BLOCK * BLOCK)
    start = line[Linear.VALUES] + first * size
    return start, start + (min((last - first) * size, AHEAD) if rows <= ROWS else 0)


@routine
def linear(line_at, phase, thread, threads, rows, scratch):
    """A thread's part of a phase: rows of inputs times a packed matrix."""
    line = i64_array(line_at, (NUM_LINEAR,))
    panels = (line[Linear.OUTPUTS] + PANEL - 1) // PANEL
    chunks = (rows + CHUNK - 1) // CHUNK
    total = panels * chunks
    task = take(phase, total, thread, threads)
    while task >= 0:
        first = task % chunks * CHUNK
        _panel(line, first, min(first + CHUNK, rows), task // chunks, scratch)
        finish(phase)
        task = take(phase, total, thread, threads)
    wait(phase, total, 0, 0)
