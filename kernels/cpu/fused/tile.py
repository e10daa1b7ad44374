"""The matrix product that everything here is made of: a few rows by 32 columns, in registers.

`C = A @ B` for a few rows of A and a *panel* of B, which lies in memory as its steps are read: for
each step of the inner dimension, 16 outputs side by side. Three ways A and B are stored:

- `bytes`: B is int8 weights, A what `inputs` says. With `VNNI` a step is fours of inputs, lane by
  lane, the weights as 128 more than they are; A's two planes are multiplied apart, as integers.
  Elsewhere a step is two inputs, 16 outputs of the one, then of the other, and A is float32;
- `shorts`: bfloat16, as K and V lie in the pool: with `DOT` in pairs, lane by lane, else singly. A
  is bfloat16 with `DOT`, else float32 that bfloat16 could hold;
- `floats`: both are float32, singly; what `bytes` are unpacked to for many rows without `VNNI`.

Sums are float32, or with `VNNI` int32 until the end, where they can't overflow.
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
    FOURS,
    I32,
    I64,
    INTS,
    LANES,
    SHORTS,
    VNNI,
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
INPUT_ROWS = 7 if VNNI else ROWS
"""Most rows of a tile of `bytes` or `floats`: with two sums each, half as many."""
_INPUT_HEIGHTS = (1, 2, 3, 5, 7) if VNNI else _HEIGHTS
_AHEAD = 1024
"""Bytes by which weights are asked for before they are read. A core that reads them from memory for
one row gets 16 GB/s instead of 13.5; 512 to 4,096 are alike."""


def int8_pairs(code: Code, address: Any) -> list[Any]:
    """One step of `bytes` without `VNNI`, as two vectors of float32."""
    second = code.at(address, LANES)
    return [code.builder.sitofp(code.load(at, BYTES), FLOATS) for at in (address, second)]


def _columns_of_bytes(code: Code, address: Any) -> list[Any]:
    return [code.load(address, FOURS)] if VNNI else int8_pairs(code, address)


def _columns_of_shorts(code: Code, address: Any) -> list[Any]:
    if DOT:
        return [code.load(address, BF16_PAIRS)]
    return [code.widen(code.load(address, SHORTS))]


def _columns_of_floats(code: Code, address: Any) -> list[Any]:
    return [code.load(address, FLOATS)]


_STORED: dict[str, tuple[int, Callable[[Code, Any], list[Any]]]] = {
    "bytes": (4 * LANES if VNNI else 2 * LANES, _columns_of_bytes),
    "shorts": (2 * LANES * PAIR, _columns_of_shorts),
    "floats": (4 * LANES, _columns_of_floats),
}
"""By the way B is stored: the bytes of 16 columns of a step, and how they are read."""


def _ask_ahead(code: Code, columns: list[Any], b_stride: Any, step: Any, steps: Any) -> None:
    """Ask for weights `_AHEAD` bytes behind those of a step.

    A panel's columns follow one another, and the next panel follows them. Behind the end of a
    column is the beginning of the next one, which is there already, so that the same one of the
    next panel is asked for: it is what will be read, unless there are more rows or no more panels.
    """
    builder, (size, _) = code.builder, _STORED["bytes"]
    late = builder.icmp_signed(">=", code.at(step, _AHEAD // size), steps)
    panel = builder.select(late, code.times(b_stride, len(columns)), ir.Constant(I64, 0))
    for column in columns[:-1]:
        code.prefetch(code.at(builder.add(column, panel), _AHEAD))
    code.prefetch(code.at(columns[-1], _AHEAD))


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
        _ask_ahead(code, addresses, b_stride, step, steps)
        for address in addresses:
            code.prefetch(code.builder.add(address, beyond), level=2)
    return [read(code, address) for address in addresses]


def _add_products(code: Code, stored: str, sums: Any, address: Any, columns: list[Any]) -> Any:
    """`sums` plus a row's values at `address` times the columns of a step."""
    builder = code.builder
    if stored == "bytes" and VNNI:
        four = builder.bitcast(code.splat(code.load(address, I32, 4)), FOURS)
        return code.call("llvm.x86.avx512.vpdpbusd.512", INTS, sums, columns[0], four)
    if stored == "shorts" and DOT:
        pair = builder.bitcast(code.splat(code.load(address, I32, 4)), BF16_PAIRS)
        name = "llvm.x86.avx512bf16.dpbf16ps.512"
        return code.call(name, FLOATS, sums, pair, columns[0])
    for index, column in enumerate(columns):
        value = code.splat(code.load(code.at(address, 4 * index), F32, 4))
        sums = code.fma(value, column, sums)
    return sums


def _joined(code: Code, tail: Any, high: Any, low: Any) -> Any:
    """The product that the sums of both planes stand for, in float32; see `inputs.store_row`."""
    builder = code.builder
    high = builder.sub(high, code.splat(code.load(tail, I32, 4)))
    low = builder.sub(low, code.splat(code.load(code.at(tail, 4), I32, 4)))
    both = code.fma(builder.sitofp(high, FLOATS), code.floats(256.0), builder.sitofp(low, FLOATS))
    return code.exactly("fmul", both, code.splat(code.load(code.at(tail, 8), F32, 4)))


def _tile(rows: int, stored: str) -> Any:
    """The instructions for so many rows by `_COLUMNS` vectors."""
    whole = stored == "bytes" and VNNI
    planes = 2 if whole else 1
    places = [(row, column) for row in range(rows) for column in range(_COLUMNS)]

    def write(target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        a, a_stride, b, b_stride, steps, c, c_stride, last = arguments
        code, adds = Code(builder), builder.icmp_signed("!=", last, ir.Constant(I64, 0))
        starts = [code.at(a, code.times(a_stride, row)) for row in range(rows)]
        outputs = [
            code.at(code.at(c, code.times(c_stride, row)), 4 * LANES * column)
            for row, column in places
        ]
        before = [code.floats(0.0)] * len(places)
        if stored != "bytes":
            there = [code.load(output, FLOATS, 4) for output in outputs]
            before = [builder.select(adds, *both) for both in zip(there, before, strict=True)]
        first = [code.ints(0)] * (2 * len(places)) if whole else before
        entry, loop = builder.block, builder.append_basic_block("step")
        after = builder.append_basic_block("stored")
        builder.branch(loop)
        builder.position_at_end(loop)
        step = builder.phi(I64)
        sums = [builder.phi(start.type) for start in first]
        columns = _read_columns(code, stored, b, b_stride, step, steps, last)
        values = [code.at(start, code.times(step, len(columns[0]) * 4)) for start in starts]
        added = []
        for index, so_far in enumerate(sums):
            row, column = places[index // planes]
            value = code.at(values[row], code.times(steps, 4 * (index % planes)))
            added.append(_add_products(code, stored, so_far, value, columns[column]))
        following = code.at(step, 1)
        for phi, start, next_one in zip(
            [step, *sums], [ir.Constant(I64, 0), *first], [following, *added], strict=True
        ):
            phi.add_incoming(start, entry)
            phi.add_incoming(next_one, loop)
        builder.cbranch(builder.icmp_signed("<", following, steps), loop, after)
        builder.position_at_end(after)
        if whole:
            tails = [code.at(starts[row], code.times(steps, 8)) for row, _ in places]
            added = [
                _joined(code, *parts) for parts in zip(tails, added[::2], added[1::2], strict=True)
            ]
        for output, value in zip(outputs, added, strict=True):
            code.store(value, output)
        return target.get_dummy_value()

    @intrinsic
    def tile(_context, a, a_stride, b, b_stride, steps, c, c_stride, last):
        return types.void(*[types.int64] * 8), write

    return tile


def _panel(stored: str) -> Any:
    """The product of a tile's rows and a panel that is stored that way."""
    heights = _HEIGHTS if stored == "shorts" else _INPUT_HEIGHTS
    tiles = [_tile(rows, stored) for rows in heights]
    one, two, few, more, most = (tiles + tiles[-1:])[:5]
    third, fourth = heights[2:4]

    def panel(rows, a, a_stride, b, b_stride, steps, c, c_stride, last):
        for column in range(0, 2, _COLUMNS):
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


times_bytes = _panel("bytes")
"""`(rows, a, a_stride, b, b_stride, steps, c, c_stride, beyond)`: `C = A @ B` for 1 to `INPUT_ROWS`
rows and 32 columns. `a`, `b`, `c` are addresses, strides bytes: of a row of A, of 16 columns of B,
of a row of C (float32). `steps` is at least 1. What lies `beyond` bytes behind B, and will be read
next, is asked for.

The number of rows is rounded up to that of a tile, at most to the most: A must be readable and C
writable that far."""
times_shorts = _panel("shorts")
"""As `times_bytes`, for 1 to `ROWS` rows, and in place of `beyond` `adds`: unless it is 0,
`C += A @ B`."""
times_floats = times_bytes if VNNI else _panel("floats")
"""As `times_shorts`, for 1 to `INPUT_ROWS` rows; nothing is stored so with `VNNI`."""
