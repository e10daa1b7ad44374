"""The matrix product that everything here is made of: a few rows by 32 columns, in registers.

`C = A @ B` for a few rows of A and a *panel* of B, which lies in memory as its steps are read: for
each step of the inner dimension, 16 outputs side by side. Three ways A and B are stored:

- `bytes`: B is int8 weights, A what `inputs` says. With `VNNI` a step is fours of inputs, lane by
  lane, the weights as 128 more than they are (`byte_tile`). Elsewhere a step is two inputs, 16
  outputs of the one, then of the other, and A is float32;
- `shorts`: bfloat16, as K and V lie in the pool: with `DOT` in pairs, lane by lane, else singly. A
  is bfloat16 with `DOT`, else float32 that bfloat16 could hold;
- `floats`: both are float32, singly; what `bytes` are unpacked to for many rows without `VNNI`.

Sums are float32, over a block of bytes with `VNNI` int32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from ramet.kernels.cpu.fused import byte_tile
from ramet.kernels.cpu.fused.byte_tile import AHEAD, ask_ahead
from ramet.kernels.cpu.fused.jit import has
from ramet.kernels.cpu.fused.lanes import (
    BF16_PAIRS,
    BYTES,
    DOT,
    F32,
    FLOATS,
    I32,
    I64,
    LANES,
    SHORTS,
    VNNI,
    Code,
    loop,
    routine,
)

PANEL = 2 * LANES
"""Columns of a panel."""
PAIR = 2 if DOT else 1
"""Values of the inner dimension that a step of `shorts` takes."""
ACTIVATION_BYTES = 2 if DOT else 4
"""Bytes of an element of A."""

_WIDE = has("avx512f")
# With 32 registers of 16 floats, 14 x 2 sums, 2 columns and a value of A fill them; with 16 of 8,
# or 32 of 4, it is 6 x 1. Measured on a Zen 4 core, bfloat16: 14, 12 and 8 rows by 2, and 6 by 4,
# are within 5 % of each other, at 0.95 of what its multipliers can do.
ROWS = 14 if _WIDE else 6
"""Most rows of a tile."""
_COLUMNS = 2 if _WIDE else 1
_HEIGHTS = (1, 2, 4, 8, 14) if _WIDE else (1, 2, 4, 6)
INPUT_ROWS = byte_tile.ROWS if VNNI else ROWS
"""Most rows of a tile of `bytes` or `floats`."""


def int8_pairs(code: Code, address: Any) -> list[Any]:
    """One step of `bytes` without `VNNI`, as two vectors of float32."""
    second = code.at(address, LANES)
    return [code.builder.sitofp(code.load(at, BYTES), FLOATS) for at in (address, second)]


def _columns_of_shorts(code: Code, address: Any) -> list[Any]:
    if DOT:
        return [code.load(address, BF16_PAIRS)]
    return [code.widen(code.load(address, SHORTS))]


def _columns_of_floats(code: Code, address: Any) -> list[Any]:
    return [code.load(address, FLOATS)]


_STORED: dict[str, tuple[int, Callable[[Code, Any], list[Any]]]] = {
    "bytes": (2 * LANES, int8_pairs),
    "shorts": (2 * LANES * PAIR, _columns_of_shorts),
    "floats": (4 * LANES, _columns_of_floats),
}
"""By the way B is stored: the bytes of 16 columns of a step, and how they are read."""


def _read_columns(
    code: Code, stored: str, b: Any, b_stride: Any, step: Any, steps: Any, beyond: Any
) -> list[Any]:
    """The columns of a step."""
    size, read = _STORED[stored]
    addresses = [
        code.at(code.at(b, code.times(b_stride, column)), code.times(step, size))
        for column in range(_COLUMNS)
    ]
    if stored == "bytes":
        late = code.builder.icmp_signed(">=", code.at(step, AHEAD // size), steps)
        ask_ahead(code, addresses, b_stride, late, size)
        for address in addresses:
            code.prefetch(code.builder.add(address, beyond), level=2)
    return [read(code, address) for address in addresses]


def _add_products(code: Code, stored: str, sums: Any, address: Any, columns: list[Any]) -> Any:
    """`sums` plus a row's values at `address` times the columns of a step."""
    builder = code.builder
    if stored == "shorts" and DOT:
        pair = builder.bitcast(code.splat(code.load(address, I32, 4)), BF16_PAIRS)
        name = "llvm.x86.avx512bf16.dpbf16ps.512"
        return code.call(name, FLOATS, sums, pair, columns[0])
    for index, column in enumerate(columns):
        value = code.splat(code.load(code.at(address, 4 * index), F32, 4))
        sums = code.fma(value, column, sums)
    return sums


def _tile(rows: int, stored: str) -> Any:
    """The instructions for so many rows by `_COLUMNS` vectors."""
    places = [(row, column) for row in range(rows) for column in range(_COLUMNS)]

    def write(target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        a, a_stride, b, b_stride, steps, c, c_stride, last = arguments
        code, adds = Code(builder), builder.icmp_signed("!=", last, ir.Constant(I64, 0))
        starts = [code.at(a, code.times(a_stride, row)) for row in range(rows)]
        outputs = [
            code.at(code.at(c, code.times(c_stride, row)), 4 * LANES * column)
            for row, column in places
        ]
        first = [code.floats(0.0)] * len(places)
        if stored != "bytes":
            there = [code.load(output, FLOATS, 4) for output in outputs]
            first = [builder.select(adds, *both) for both in zip(there, first, strict=True)]

        def add_step(step: Any, sums: list[Any]) -> list[Any]:
            columns = _read_columns(code, stored, b, b_stride, step, steps, last)
            values = [code.at(start, code.times(step, len(columns[0]) * 4)) for start in starts]
            return [
                _add_products(code, stored, so_far, values[row], columns[column])
                for so_far, (row, column) in zip(sums, places, strict=True)
            ]

        added = loop(code, steps, first, add_step)
        for output, value in zip(outputs, added, strict=True):
            code.store(value, output)
        return target.get_dummy_value()

    @intrinsic
    def tile(_context, a, a_stride, b, b_stride, steps, c, c_stride, last):
        return types.void(*[types.int64] * 8), write

    return tile


def _panel(stored: str, tile: Callable[[int], Any], heights: tuple[int, ...], columns: int) -> Any:
    """The product of a tile's rows and a panel, by tiles of these heights and so many columns of
    16."""
    tiles = [tile(rows) for rows in heights]
    one, two, few, more, most = (tiles + tiles[-1:])[:5]
    third, fourth = heights[2:4]

    def panel(rows, a, a_stride, b, b_stride, steps, c, c_stride, last):
        for column in range(0, 2, columns):
            b_here, c_here = b + column * b_stride, c + column * (4 * LANES)
            if rows == 1:
                one(a, a_stride, b_here, b_stride, steps, c_here, c_stride, last)
            elif rows == 2:
                two(a, a_stride, b_here, b_stride, steps, c_here, c_stride, last)
            elif rows <= third:
                few(a, a_stride, b_here, b_stride, steps, c_here, c_stride, last)
            elif rows <= fourth:
                more(a, a_stride, b_here, b_stride, steps, c_here, c_stride, last)
            else:
                most(a, a_stride, b_here, b_stride, steps, c_here, c_stride, last)

    panel.__name__ = panel.__qualname__ = stored
    return routine(panel)


def _floats_panel(stored: str) -> Any:
    return _panel(stored, lambda rows: _tile(rows, stored), _HEIGHTS, _COLUMNS)


times_bytes = (
    _panel("bytes", byte_tile.tile, byte_tile.HEIGHTS, byte_tile.COLUMNS)
    if VNNI
    else _floats_panel("bytes")
)
"""`(rows, a, a_stride, b, b_stride, steps, c, c_stride, beyond)`: `C = A @ B` for 1 to `INPUT_ROWS`
rows and 32 columns. `a`, `b`, `c` are addresses, strides bytes: of a row of A, of 16 columns of B,
of a row of C (float32). `steps`, at least 1, are blocks of inputs with `VNNI`, else pairs of them.
What lies `beyond` bytes behind B, and will be read next, is asked for.

The number of rows is rounded up to that of a tile, at most to the most: A must be readable and C
writable that far."""
times_shorts = _floats_panel("shorts")
"""As `times_bytes`, for 1 to `ROWS` rows and any steps, and in place of `beyond` `adds`: unless it
is 0, `C += A @ B`."""
times_floats = times_bytes if VNNI else _floats_panel("floats")
"""As `times_shorts`, for 1 to `INPUT_ROWS` rows; nothing is stored so with `VNNI`."""
