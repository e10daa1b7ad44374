"""The matrix product that everything here is made of: a few rows by 32 columns, in registers.

`C = A @ B` for a few rows of A and a *panel* of B, which lies in memory as its steps are read: for
each step of the inner dimension, 16 outputs side by side. Three ways B is stored:

- `bytes`: int8, two values of the inner dimension a step, 16 of the one, then 16 of the other;
- `shorts`: bfloat16, as K and V lie in the pool: with `DOT` in pairs, lane by lane, else singly;
- `floats`: float32, one at a time; what `bytes` are unpacked to for many rows without `DOT`.

A is bfloat16 with `DOT`, else float32 that bfloat16 could hold. So all products are exact, and the
sums are float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

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
    Code,
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
_AHEAD = 1024
"""Bytes by which weights are asked for before they are read. A core that reads them from memory for
one row gets 16 GB/s instead of 13.5; 512 to 4,096 are alike."""


def int8_pairs(code: Code, address: Any) -> list[Any]:
    """One step of `bytes`: as one vector of bfloat16 pairs, or two of float32."""
    builder = code.builder
    first = builder.sitofp(code.load(address, BYTES), FLOATS)
    second = builder.sitofp(code.load(code.at(address, LANES), BYTES), FLOATS)
    if not DOT:
        return [first, second]
    # Integers up to 127 are exact in bfloat16, so it is the upper half of their float32.
    kind = ir.VectorType(I32, LANES)
    low = builder.lshr(builder.bitcast(first, kind), code.ints(16))
    both = builder.or_(low, builder.bitcast(second, kind))
    return [builder.bitcast(both, BF16_PAIRS)]


def _columns_of_bytes(code: Code, address: Any) -> list[Any]:
    code.prefetch(code.at(address, _AHEAD))
    return int8_pairs(code, address)


def _columns_of_shorts(code: Code, address: Any) -> list[Any]:
    if DOT:
        return [code.load(address, BF16_PAIRS)]
    return [code.widen(code.load(address, SHORTS))]


def _columns_of_floats(code: Code, address: Any) -> list[Any]:
    return [code.load(address, FLOATS)]


_STORED: dict[str, tuple[int, Callable[[Code, Any], list[Any]]]] = {
    "bytes": (2 * LANES, _columns_of_bytes),
    "shorts": (2 * LANES * PAIR, _columns_of_shorts),
    "floats": (4 * LANES, _columns_of_floats),
}
"""By the way B is stored: the bytes of 16 columns of a step, and how they are read."""


def _add_products(code: Code, sums: Any, address: Any, columns: list[Any]) -> Any:
    """`sums` plus a row's values at `address` times the columns of a step."""
    builder = code.builder
    if DOT:
        pair = builder.bitcast(code.splat(code.load(address, I32, 4)), BF16_PAIRS)
        name = "llvm.x86.avx512bf16.dpbf16ps.512"
        return code.call(name, FLOATS, sums, pair, columns[0])
    for index, column in enumerate(columns):
        value = code.splat(code.load(code.at(address, 4 * index), F32, 4))
        sums = code.fma(value, column, sums)
    return sums


def _tile(rows: int, stored: str) -> Any:
    """The instructions for so many rows by `_COLUMNS` vectors."""
    size, read = _STORED[stored]
    places = [(row, column) for row in range(rows) for column in range(_COLUMNS)]

    def write(target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        a, a_stride, b, b_stride, steps, c, c_stride, adds = arguments
        code = Code(builder)
        outputs = [
            code.at(code.at(c, code.times(c_stride, row)), 4 * LANES * column)
            for row, column in places
        ]
        before = [
            builder.select(adds, code.load(output, FLOATS, 4), code.floats(0.0))
            for output in outputs
        ]
        entry, loop = builder.block, builder.append_basic_block("step")
        after = builder.append_basic_block("stored")
        builder.branch(loop)
        builder.position_at_end(loop)
        step = builder.phi(I64)
        sums = [builder.phi(FLOATS) for _ in places]
        columns = [
            read(code, code.at(code.at(b, code.times(b_stride, column)), code.times(step, size)))
            for column in range(_COLUMNS)
        ]
        width = len(columns[0]) * 4
        added = []
        for (row, column), so_far in zip(places, sums, strict=True):
            value = code.at(code.at(a, code.times(a_stride, row)), code.times(step, width))
            added.append(_add_products(code, so_far, value, columns[column]))
        following = code.at(step, 1)
        for phi, first, next_one in zip(
            [step, *sums], [ir.Constant(I64, 0), *before], [following, *added], strict=True
        ):
            phi.add_incoming(first, entry)
            phi.add_incoming(next_one, loop)
        builder.cbranch(builder.icmp_signed("<", following, steps), loop, after)
        builder.position_at_end(after)
        for output, value in zip(outputs, added, strict=True):
            code.store(value, output)
        return target.get_dummy_value()

    @intrinsic
    def tile(
        _context: Any, a: Any, a_stride: Any, b: Any, b_stride: Any, steps: Any, c: Any,
        c_stride: Any, adds: Any,
    ) -> Any:  # fmt: skip
        return types.void(*[types.int64] * 7, types.boolean), write

    return tile


def _panel(stored: str) -> Any:
    """The product of up to `ROWS` rows and a panel that is stored that way."""
    tiles = [_tile(rows, stored) for rows in _HEIGHTS]
    one, two, four, six_or_eight, most = (tiles + tiles[-1:])[:5]
    third = _HEIGHTS[3]

    def panel(rows, a, a_stride, b, b_stride, steps, c, c_stride, adds):
        for column in range(0, 2, _COLUMNS):
            b_here, c_here = b + column * b_stride, c + column * (4 * LANES)
            if rows == 1:
                one(a, a_stride, b_here, b_stride, steps, c_here, c_stride, adds != 0)
            elif rows == 2:
                two(a, a_stride, b_here, b_stride, steps, c_here, c_stride, adds != 0)
            elif rows <= 4:
                four(a, a_stride, b_here, b_stride, steps, c_here, c_stride, adds != 0)
            elif rows <= third:
                six_or_eight(a, a_stride, b_here, b_stride, steps, c_here, c_stride, adds != 0)
            else:
                most(a, a_stride, b_here, b_stride, steps, c_here, c_stride, adds != 0)

    panel.__name__ = panel.__qualname__ = stored
    return routine(panel)


times_bytes = _panel("bytes")
"""`(rows, a, a_stride, b, b_stride, steps, c, c_stride, adds)`: `C = A @ B`, or `C += A @ B` with
`adds`, for 1 to `ROWS` rows and 32 columns. `a`, `b`, `c` are addresses, strides bytes: of a row of
A, of 16 columns of B, of a row of C (float32). `steps` is at least 1.

The number of rows is rounded up to that of a tile, at most to `ROWS`: A must be readable and C
writable that far."""
times_shorts = _panel("shorts")
"""As `times_bytes`."""
times_floats = times_shorts if DOT else _panel("floats")
"""As `times_bytes`; nothing is stored so with `DOT`."""
