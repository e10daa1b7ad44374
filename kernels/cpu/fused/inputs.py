"""Rows that linear layers multiply with packed weights, in turned blocks (`hadamard`).

With `VNNI` a block is 64 signed bytes and two numbers, one scale among them, the largest magnitude
over 127: the products with int8 weights and their sums over a block are exact, in any order.
Elsewhere a block is 64 float32.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from ramet.kernels.cpu.fused.hadamard import BLOCK, blocks_of, load_block, turn_block, turned
from ramet.kernels.cpu.fused.jit import inlined
from ramet.kernels.cpu.fused.lanes import BYTES, F32, I32, INTS, LANES, VNNI, Code, routine

BLOCK_BYTES = BLOCK + 8 if VNNI else 4 * BLOCK
"""Bytes of a block: with `VNNI` its values, -128 times their sum, int32, and the scale, float32."""
SUM, SCALE = BLOCK, BLOCK + 4
"""Where these two are."""
MAGNITUDE = 0x7FFFFFFF
"""The bits of a float32 but its sign."""
INFINITE = 0x7F800000
"""Those of infinity; NaN has more."""
_LEAST = 0x0D800000
"""Those of 2**-100: a block without larger values is zero, as 127 over them may be infinite."""
_ROUND = 12582912.0
"""1.5 * 2**23. What it is added to is rounded to a whole number, ties to even: the last bits."""
_ROUND_BITS = 0x4B400000


def row_bytes(inputs: int) -> int:
    """Bytes of a row."""
    return blocks_of(inputs) * BLOCK_BYTES


@inlined
def bytes_of_row(inputs):
    """`row_bytes`, for kernels."""
    return (inputs + BLOCK - 1) // BLOCK * BLOCK_BYTES


@intrinsic
def _store_bytes(_context: Any, source: Any, count: Any, target: Any) -> Any:
    """Write a block of bytes; one with a value that isn't finite gets a scale that is NaN."""

    def write(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        source, count, target = arguments
        code = Code(builder)
        vectors = turned(code, load_block(code, source, count))
        # What is finite is ordered as its bits are.
        sizes = [
            builder.and_(builder.bitcast(vector, INTS), code.ints(MAGNITUDE)) for vector in vectors
        ]
        most = sizes[0]
        for size in sizes[1:]:
            most = builder.select(builder.icmp_signed(">", size, most), size, most)
        most = code.call("llvm.vector.reduce.smax.v16i32", I32, most)
        some = builder.icmp_signed(">=", most, ir.Constant(I32, _LEAST))
        largest, zero = builder.bitcast(most, F32), ir.Constant(F32, 0.0)
        quotient = builder.fdiv(ir.Constant(F32, 127.0), largest, flags=("nsz",))
        factor = code.splat(builder.select(some, quotient, zero))
        total = code.ints(0)
        for index, vector in enumerate(vectors):
            whole = code.exactly("fmul", vector, factor)
            bits = builder.bitcast(code.exactly("fadd", whole, code.floats(_ROUND)), INTS)
            code.store(builder.trunc(bits, BYTES), code.at(target, LANES * index), 4)
            total = builder.add(total, builder.sub(bits, code.ints(_ROUND_BITS)))
        total = code.call("llvm.vector.reduce.add.v16i32", I32, total)
        code.store(builder.mul(total, ir.Constant(I32, -128)), code.at(target, SUM))
        # An eighth, as `turned` leaves it out; exact.
        scale = builder.fdiv(largest, ir.Constant(F32, 127.0 * 8), flags=("nsz",))
        finite = builder.icmp_signed("<", most, ir.Constant(I32, INFINITE))
        scale = builder.select(some, scale, zero)
        scale = builder.select(finite, scale, ir.Constant(F32, float("nan")))
        code.store(scale, code.at(target, SCALE))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), write


@routine
def store_row(source, inputs, target):
    """Write a float32 row as inputs; what isn't finite gives products that aren't."""
    for block in range((inputs + BLOCK - 1) // BLOCK):
        here, to = source + 4 * BLOCK * block, target + BLOCK_BYTES * block
        if VNNI:
            _store_bytes(here, inputs - BLOCK * block, to)
        else:
            turn_block(here, inputs - BLOCK * block, to)
