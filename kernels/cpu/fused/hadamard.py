"""Blocks of 64 inputs, turned so that no value stands out: what linear layers are computed in.

A block of a row and the same block of each row of weights are multiplied by one orthogonal matrix,
Sylvester's Hadamard matrix of order 64 over 8, so their products stay what they were. It spreads
what a few inputs hold over all 64, so that integers with one scale for all of them lose less
(QuaRot, Ashkboos et al. 2024, there over whole rows and inside the model). The matrix is symmetric:
turned again, a block is itself.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from ramet.kernels.cpu.fused.lanes import (
    FLOATS,
    I64,
    INTS,
    LANES,
    VNNI,
    Code,
    lanes_below,
    load_some,
    store_some,
)

BLOCK = 64
"""Inputs of a block: the order of the matrix."""
GROUP = 4 if VNNI else 1
"""Inputs of a packed matrix that lie side by side."""
_VECTORS = BLOCK // LANES


def blocks_of(inputs: int) -> int:
    """Blocks of so many inputs; zeros fill up the last."""
    return -(-inputs // BLOCK)


def turned(code: Code, vectors: list[Any]) -> list[Any]:
    """Eight times a turned block, by the fast Walsh-Hadamard transform: six times sums and
    differences of two values each, as `reference.hadamard` has them."""
    builder = code.builder
    for apart in (1, 2, 4, 8):
        order = ir.Constant(INTS, [lane ^ apart for lane in range(LANES)])
        signs = ir.Constant(FLOATS, [-1.0 if lane & apart else 1.0 for lane in range(LANES)])
        for index, vector in enumerate(vectors):
            others = builder.shuffle_vector(vector, vector, order)
            vectors[index] = code.fma(vector, signs, others)
    for apart in (1, 2):
        vectors = [
            code.exactly("fsub", vectors[i ^ apart], vectors[i])
            if i & apart
            else code.exactly("fadd", vectors[i], vectors[i | apart])
            for i in range(_VECTORS)
        ]
    return vectors


def load_block(code: Code, address: Any, count: Any) -> list[Any]:
    """A block's float32 values, of which the first `count` lie at an address, zeros behind them."""
    return [
        load_some(code, code.at(address, 4 * first), lanes_below(code, count, first))
        for first in range(0, BLOCK, LANES)
    ]


def _store_eighths(code: Code, vectors: list[Any], address: Any, count: Any) -> None:
    """Write the first `count` values of a block, over 8."""
    for index, vector in enumerate(vectors):
        place = code.at(address, 4 * LANES * index)
        value = code.exactly("fmul", vector, code.floats(0.125))
        store_some(code, value, place, lanes_below(code, count, LANES * index))


@intrinsic
def turn_block(_context: Any, source: Any, count: Any, target: Any) -> Any:
    """Turn a block, of which the first `count` values are at `source`, float32, to `target`, all
    64."""

    def write(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        code = Code(builder)
        values = turned(code, load_block(code, *arguments[:2]))
        _store_eighths(code, values, arguments[2], ir.Constant(I64, BLOCK))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), write


@intrinsic
def turn_back(_context: Any, source: Any, scale: Any, target: Any, count: Any) -> Any:
    """Write the first `count` values of what a packed row's block is without the turning: its
    first byte is at `source`, and its row has that scale."""

    def write(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        source, scale, target, count = arguments
        code, vectors = Code(builder), []
        for first in range(0, BLOCK, LANES):
            whole = ir.Constant(INTS, ir.Undefined)
            for lane in range(LANES):
                group, index = divmod(first + lane, GROUP)
                byte = code.load(code.at(source, group * LANES * GROUP + index), ir.IntType(8))
                wide = (builder.zext if VNNI else builder.sext)(byte, ir.IntType(32))
                whole = builder.insert_element(whole, wide, ir.Constant(ir.IntType(32), lane))
            if VNNI:
                whole = builder.sub(whole, code.ints(128))
            floats = builder.sitofp(whole, FLOATS)
            vectors.append(code.exactly("fmul", floats, code.splat(scale)))
        _store_eighths(code, turned(code, vectors), target, count)
        return context.get_dummy_value()

    return types.void(types.int64, types.float32, types.int64, types.int64), write
