"""The linear layers of a step: packed weights times rows, a panel at a time, and what follows.

Few rows are multiplied by the int8 values as they are read. For more than a tile of rows a panel is
first unpacked to what the multipliers take, into a scratch that stays in the core's cache: reading
the values once per tile costs 20 % of the speed, unpacking a hundredth of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from ramet.kernels.cpu.fused.jit import inlined
from ramet.kernels.cpu.fused.lanes import (
    DOT,
    LANES,
    Code,
    bf16_bits,
    f32_array,
    float_of,
    routine,
    u16_array,
)
from ramet.kernels.cpu.fused.phases import finish, take, wait
from ramet.kernels.cpu.fused.tile import (
    ACTIVATION_BYTES,
    PAIR,
    PANEL,
    ROWS,
    int8_pairs,
    times_bytes,
    times_floats,
    times_shorts,
)

STORE, BIAS, ADD, GATE = 0, 1, 2, 3
"""What becomes of a product: it is written to float32 rows, or so with a bias; it is added to them;
or, of a matrix from `pack_gated`, silu(first) * second is written as activations."""

CHUNK = 256
"""Rows of a task, where there are more: enough that unpacking a panel for them costs nothing."""
_TASKS = 6
"""Tasks that there are for each thread at least, where panels are taken together."""
_STEP_BYTES = 2 * LANES
"""Bytes of two inputs of 16 outputs."""
_UNPACKED = 2 * LANES * ACTIVATION_BYTES
"""The same, unpacked."""
C_BYTES = ROWS * PANEL * 4
"""Bytes of a tile's sums."""


def scratch_bytes(inputs: int) -> int:
    """Bytes of scratch that a thread needs for matrices of so many inputs."""
    return C_BYTES + 2 * inputs // 2 * _UNPACKED


@intrinsic
def _unpack_step(_context: Any, source: Any, target: Any) -> Any:
    """Two inputs of 16 outputs, from int8 to what `times_shorts` or `times_floats` reads."""

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
def exp2(x):
    """2**x of a float32, relative error 2e-7; 2**-126 below that, 2**126 above it."""
    x = min(max(x, np.float32(-126.0)), np.float32(126.0))
    # Not floor(): LLVM makes vectors of this.
    whole = np.int32(x + (np.float32(0.5) if x >= 0 else np.float32(-0.5)))
    f = x - np.float32(whole)
    p = np.float32(1.5353362e-4)
    p = p * f + np.float32(1.3398874e-3)
    p = p * f + np.float32(9.6184372e-3)
    p = p * f + np.float32(5.5503324e-2)
    p = p * f + np.float32(2.4022648e-1)
    p = p * f + np.float32(6.9314718e-1)
    p = p * f + np.float32(1.0)
    return p * float_of(np.uint32((whole + np.int32(127)) << np.int32(23)))


@inlined
def silu(x):
    """x / (1 + exp(-x))."""
    return x / (np.float32(1.0) + exp2(x * np.float32(-1.4426950408889634)))


@inlined
def _unpack(values, inputs, unpacked):
    """Unpack a panel, two blocks of `inputs` times 16 int8."""
    for step in range(inputs):  # of both blocks: they follow one another, here and there
        _unpack_step(values + step * _STEP_BYTES, unpacked + step * _UNPACKED)


@inlined
def _put(mode, sums, scales, bias, out, out_stride, rows, first_row, panel, outputs):
    """Scale a tile's sums, `[rows, 32]`, and do with them what `mode` says."""
    c = f32_array(sums, (rows, PANEL))
    s = f32_array(scales + panel * (4 * PANEL), (PANEL,))
    if mode == GATE:
        count = min(LANES, outputs // 2 - panel * LANES)
        for row in range(rows):
            at = out + (first_row + row) * out_stride + panel * (LANES * ACTIVATION_BYTES)
            to = activation_view(at, (LANES,))
            for j in range(count):
                to[j] = activation(silu(c[row, j] * s[j]) * (c[row, LANES + j] * s[LANES + j]))
        return
    count = min(PANEL, outputs - panel * PANEL)
    for row in range(rows):
        x = f32_array(out + (first_row + row) * out_stride + panel * (4 * PANEL), (PANEL,))
        if mode == ADD:
            for j in range(count):
                x[j] += c[row, j] * s[j]
        else:
            for j in range(count):
                x[j] = c[row, j] * s[j]
        if mode == BIAS:
            b = f32_array(bias + panel * (4 * PANEL), (PANEL,))
            for j in range(count):
                x[j] += b[j]


@inlined
def _panel(
    mode, first, last, a, a_stride, values, scales, inputs, outputs, bias, out, out_stride,
    panel, scratch,
):  # fmt: skip
    """One panel for the rows `first` to `last - 1`."""
    here = values + panel * (PANEL * inputs)
    many = last - first > ROWS
    unpacked = scratch + C_BYTES
    if many:
        _unpack(here, inputs, unpacked)
    row = first
    while row < last:
        rows = min(ROWS, last - row)
        at = a + row * a_stride
        if not many:
            times_bytes(
                rows, at, a_stride, here, LANES * inputs, inputs // 2, scratch, 4 * PANEL, 0
            )
        elif DOT:
            times_shorts(
                rows, at, a_stride, unpacked, inputs // 2 * _UNPACKED, inputs // PAIR, scratch,
                4 * PANEL, 0,
            )  # fmt: skip
        else:
            times_floats(
                rows, at, a_stride, unpacked, inputs // 2 * _UNPACKED, inputs, scratch, 4 * PANEL,
                0,
            )  # fmt: skip
        _put(mode, scratch, scales, bias, out, out_stride, rows, row, panel, outputs)
        row += rows


@routine
def linear(
    mode, phase, threads, rows, a, a_stride, values, scales, inputs, outputs, bias, out, out_stride,
    scratch,
):  # fmt: skip
    """This thread's part of a phase: `rows` rows of activations at `a` times a packed matrix."""
    panels = (outputs + PANEL - 1) // PANEL
    chunks = (rows + CHUNK - 1) // CHUNK
    grain = max(1, panels // (threads * _TASKS)) if chunks == 1 else 1
    total = (panels + grain - 1) // grain * chunks
    task = take(phase, total)
    while task >= 0:
        first = task % chunks * CHUNK
        last = min(first + CHUNK, rows)
        start = task // chunks * grain
        for panel in range(start, min(start + grain, panels)):
            _panel(
                mode, first, last, a, a_stride, values, scales, inputs, outputs, bias, out,
                out_stride, panel, scratch,
            )  # fmt: skip
        finish(phase)
        task = take(phase, total)
    wait(phase, total)
