"""The product of rows of bytes and a panel of int8 weights, for processors with `VNNI`.

A block's 64 products are summed as integers, 16 times fours of bytes, and added to the float32 sums
with the row's scale. The weights are stored as 128 more than they are, unsigned, so a block's sum
begins with what that is too much (`inputs`). It stays below 2**24, which float32 holds.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from ramet.kernels.cpu.fused.hadamard import BLOCK
from ramet.kernels.cpu.fused.inputs import BLOCK_BYTES, SCALE, SUM
from ramet.kernels.cpu.fused.lanes import F32, FLOATS, FOURS, I32, I64, INTS, LANES, Code, loop

COLUMNS = 2
"""Of 16 outputs, of a tile."""
_STEPS = BLOCK // 4
_STEP_BYTES = 4 * LANES
"""Bytes of a step's 16 columns."""
_SIZE = _STEPS * _STEP_BYTES
"""Bytes of a block's."""
AHEAD = 1024
"""Bytes by which weights are asked for before they are read. A core that reads them from memory for
one row gets 16 GB/s instead of 13.5; 512 to 4,096 are alike."""
_UNROLLED = 4
"""Steps that are written out one after the other."""
ROWS = 7
"""Most rows of a tile. With 32 registers of 16 numbers: 7 x 2 sums of a block and as many of all,
2 columns of weights, four bytes of a row."""
HEIGHTS = (1, 2, 3, 5, 7)
"""Rows that tiles have."""


def ask_ahead(code: Code, columns: list[Any], b_stride: Any, late: Any, size: int) -> None:
    """Ask for the next `size` bytes of weights, `AHEAD` bytes behind those at `columns`.

    A panel's columns follow one another, and the next panel follows them. Behind the end of a
    column, where that is `late`, is the beginning of the next one, which is there already, so that
    the same one of the next panel is asked for: it is what will be read, unless there are more rows
    or no more panels.
    """
    builder = code.builder
    panel = builder.select(late, code.times(b_stride, len(columns)), ir.Constant(I64, 0))
    starts = [builder.add(column, panel) for column in columns[:-1]] + columns[-1:]
    for offset in range(0, size, _STEP_BYTES):
        for start in starts:
            code.prefetch(code.at(start, AHEAD + offset))


def _add_steps(
    code: Code, rows: list[Any], columns: list[Any], beyond: Any, sums: list[Any]
) -> list[Any]:
    """The sums and the products of `_UNROLLED` steps at these addresses."""
    builder, sums = code.builder, list(sums)
    for step in range(_UNROLLED):
        here = [code.at(column, step * _STEP_BYTES) for column in columns]
        for address in here:
            code.prefetch(builder.add(address, beyond), level=2)
        weights = [code.load(address, FOURS) for address in here]
        for number, row in enumerate(rows):
            four = builder.bitcast(code.splat(code.load(code.at(row, 4 * step), I32, 4)), FOURS)
            for column, weight in enumerate(weights):
                index = number * len(columns) + column
                name = "llvm.x86.avx512.vpdpbusd.512"
                sums[index] = code.call(name, INTS, sums[index], weight, four)
    return sums


def tile(rows: int) -> Any:
    """The instructions for so many rows by 32 columns; `tile.times_bytes` says which arguments."""
    places = [(row, column) for row in range(rows) for column in range(COLUMNS)]

    def write(target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        a, a_stride, b, b_stride, blocks, c, c_stride, beyond = arguments
        code = Code(builder)

        def add_block(block: Any, so_far: list[Any]) -> list[Any]:
            from_b = code.at(b, code.times(block, _SIZE))
            columns = [code.at(from_b, code.times(b_stride, column)) for column in range(COLUMNS)]
            from_a = code.at(a, code.times(block, BLOCK_BYTES))
            starts = [code.at(from_a, code.times(a_stride, row)) for row in range(rows)]
            late = builder.icmp_signed(">=", code.at(block, AHEAD // _SIZE), blocks)

            def add_steps(part: Any, sums: list[Any]) -> list[Any]:
                its_rows = [code.at(start, code.times(part, 4 * _UNROLLED)) for start in starts]
                size = _UNROLLED * _STEP_BYTES
                its_columns = [code.at(column, code.times(part, size)) for column in columns]
                ask_ahead(code, its_columns, b_stride, late, size)
                return _add_steps(code, its_rows, its_columns, beyond, sums)

            sums = [code.splat(code.load(code.at(starts[row], SUM), I32, 4)) for row, _ in places]
            sums = loop(code, ir.Constant(I64, _STEPS // _UNROLLED), sums, add_steps)
            scales = [code.splat(code.load(code.at(start, SCALE), F32, 4)) for start in starts]
            return [
                code.fma(builder.sitofp(whole, FLOATS), scales[row], before)
                for whole, before, (row, _) in zip(sums, so_far, places, strict=True)
            ]

        added = loop(code, blocks, [code.floats(0.0)] * len(places), add_block)
        for (row, column), value in zip(places, added, strict=True):
            output = code.at(code.at(c, code.times(c_stride, row)), 4 * LANES * column)
            code.store(value, output)
        return target.get_dummy_value()

    @intrinsic
    def of_bytes(_context, a, a_stride, b, b_stride, blocks, c, c_stride, beyond):
        return types.void(*[types.int64] * 8), write

    return of_bytes
