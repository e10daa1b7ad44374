"""Rows that linear layers multiply with packed weights.

With `VNNI` a row is integers of 16 bits with one scale, its largest magnitude over 32,512: a plane
of high bytes, a plane of low ones, both signed, and a tail of three numbers. All products with
int8 weights and their sums are then exact, in any order. Elsewhere a row is float32.
"""

from __future__ import annotations

import numpy as np

from ramet.kernels.cpu.fused.jit import inlined
from ramet.kernels.cpu.fused.lanes import VNNI, f32_array, float_of, i8_array, i32_array, routine

GROUP = 4 if VNNI else 1
"""Inputs that lie together in packed weights, and of which a row has whole numbers."""
LARGEST = 127 * 256
"""The largest integer, of which the high byte is 127."""
_MAGNITUDE = np.int32(0x7FFFFFFF)
"""The bits of a float32 but its sign."""
_INFINITE = np.int32(0x7F800000)
"""Those of infinity; NaN has more."""
_TAIL = 12
"""Bytes behind the planes: the sums of both, int32, and the scale."""


def row_bytes(inputs: int) -> int:
    """Bytes of a row."""
    return 2 * (-(-inputs // GROUP) * GROUP) + _TAIL if VNNI else 4 * inputs


@inlined
def bytes_of_row(inputs):
    """`row_bytes`, for kernels."""
    if VNNI:
        return 2 * ((inputs + GROUP - 1) // GROUP * GROUP) + _TAIL
    return 4 * inputs


@routine
def store_row(source, inputs, target):
    """Write a float32 row as inputs; one that isn't finite gives NaN products."""
    row = f32_array(source, (inputs,))
    if not VNNI:
        to = f32_array(target, (inputs,))
        for j in range(inputs):
            to[j] = row[j]
        return
    # What is finite is ordered as its bits are. LLVM makes vectors of this, not of a float's max().
    bits, most = i32_array(source, (inputs,)), np.int32(0)
    for j in range(inputs):
        most = max(most, np.int32(bits[j] & _MAGNITUDE))
    largest = float_of(np.uint32(most))
    plane = (inputs + GROUP - 1) // GROUP * GROUP
    high, low = i8_array(target, (plane,)), i8_array(target + plane, (plane,))
    factor = np.float32(LARGEST) / largest if most > 0 else np.float32(0.0)
    sum_high, sum_low = np.int32(0), np.int32(0)
    # Each step is cast: Numba would compute it in 64 bits.
    for j in range(inputs):
        # Rounded away from zero at halves, as LLVM has vectors for it.
        x = row[j] * factor
        whole = np.int32(x + (np.float32(0.5) if x >= 0 else np.float32(-0.5)))
        upper = np.int32(np.int32(whole + np.int32(128)) >> np.int32(8))
        lower = np.int32(whole - np.int32(upper << np.int32(8)))
        high[j], low[j] = upper, lower
        sum_high = np.int32(sum_high + upper)
        sum_low = np.int32(sum_low + lower)
    for j in range(inputs, plane):
        high[j], low[j] = 0, 0
    sums, scale = i32_array(target + 2 * plane, (2,)), f32_array(target + 2 * plane + 8, (1,))
    # The weights are stored as 128 more than they are.
    sums[0], sums[1] = sum_high * np.int32(128), sum_low * np.int32(128)
    scale[0] = largest / np.float32(LARGEST) if most < _INFINITE else np.float32(np.nan)
