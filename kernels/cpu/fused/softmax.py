"""The softmax of attention, sixteen scores at a time: maxima, powers of two, sums.

A row of scores is 32 or 64 float32. NaN is never lost on the way: a row with a NaN score has a NaN
sum. A score of -inf weighs exactly zero.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from ramet.kernels.cpu.fused.jit import has
from ramet.kernels.cpu.fused.lanes import (
    BF16,
    DOT,
    F32,
    FLOATS,
    I16,
    I32,
    INTS,
    LANES,
    Code,
)

_POWER = (
    0.9999999266823865,
    0.6931530239114028,
    0.24015381838019206,
    0.055826172900648584,
    0.008989127362383798,
    0.0018777841277592684,
)
"""Coefficients of the polynomial of degree 5 nearest to 2^x for 0 <= x < 1: 7.7e-8 off at most
(Remez's algorithm), 1.5e-7 in float32."""
_LEAST = -126.0
"""Powers of two below that of this are zero, where the processor doesn't scale by itself."""
_FAR = -1e38
"""What lower numbers are taken for, minus infinity first of all; two to it is zero anyhow."""
_SCALES = has("avx512dq")
_MINUS_INFINITY = float("-inf")


def exp2(code: Code, x: Any, base: Any) -> Any:
    """2^(x - base) for a whole number `base`, where that isn't above 2: within 3e-7 of it, zero
    for -inf, NaN for NaN.

    Its mantissa depends on `x` alone, so that another base gives the same number, scaled.
    """
    builder = code.builder
    far = code.floats(_FAR)
    # In this order, NaN stays.
    x = builder.select(builder.fcmp_ordered("<", x, far), far, x)
    floor = code.call(f"llvm.floor.v{LANES}f32", FLOATS, x)
    value = _polynomial(code, code.exactly("fsub", x, floor))
    power = code.exactly("fsub", floor, base)
    if _SCALES:
        always, as_set = ir.Constant(I16, -1), ir.Constant(I32, 4)
        return code.call(
            "llvm.x86.avx512.mask.scalef.ps.512", FLOATS, value, power, value, always, as_set
        )
    least = code.floats(_LEAST)
    small = builder.fcmp_ordered("<", power, least)
    held = builder.select(small, least, power)
    # 1.5 * 2^23 leaves an integer in the low bits; shifted into the exponent it is its power.
    bits = builder.bitcast(code.exactly("fadd", held, code.floats(12582912.0)), INTS)
    bits = builder.add(builder.shl(bits, code.ints(23)), code.ints(127 << 23))
    value = code.exactly("fmul", value, builder.bitcast(bits, FLOATS))
    return builder.select(small, code.floats(0.0), value)


def _polynomial(code: Code, x: Any) -> Any:
    value = code.floats(_POWER[-1])
    for coefficient in _POWER[-2::-1]:
        value = code.fma(value, x, code.floats(coefficient))
    return value


def _larger(code: Code, a: Any, b: Any) -> Any:
    """The larger one; `b` where either is NaN. One instruction on x86."""
    return code.builder.select(code.builder.fcmp_ordered(">", a, b), a, b)


def _across(code: Code, vector: Any, join: Any) -> Any:
    """All lanes joined, in lane 0."""
    width = LANES // 2
    while width:
        moved = [(lane + width) % LANES for lane in range(LANES)]
        other = code.builder.shuffle_vector(vector, vector, ir.Constant(INTS, moved))
        vector = join(vector, other)
        width //= 2
    return code.builder.extract_element(vector, ir.Constant(I32, 0))


def _as_int32(code: Code, value: Any) -> Any:
    return code.builder.trunc(value, I32)


def _activations(code: Code, values: Any) -> Any:
    """Sixteen float32 as activations."""
    if DOT:
        return code.builder.fptrunc(values, ir.VectorType(BF16, LANES))
    return values


def _highest(vectors: int, masked: bool) -> Any:
    """The highest of so many vectors of scores; `masked`: hides lanes, in memory too."""

    def write(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        code = Code(builder)
        scores = arguments[0]
        places = [code.at(scores, 4 * LANES * index) for index in range(vectors)]
        values = [code.load(place, FLOATS, 4) for place in places]
        if masked:
            low, high = (_as_int32(code, argument) for argument in arguments[1:])
            # One unsigned comparison for both ends: what is below `low` wraps around.
            first, count = code.splat(low), code.splat(builder.sub(high, low))
            for index, place in enumerate(places):
                lanes = [LANES * index + lane for lane in range(LANES)]
                beyond = builder.sub(ir.Constant(INTS, lanes), first)
                seen = builder.icmp_unsigned("<", beyond, count)
                hidden = code.floats(_MINUS_INFINITY)
                values[index] = builder.select(seen, values[index], hidden)
                code.store(values[index], place)
        while len(values) > 1:
            values = [_larger(code, a, b) for a, b in zip(values[::2], values[1::2], strict=True)]
        return _across(code, values[0], lambda a, b: _larger(code, a, b))

    if not masked:

        @intrinsic
        def highest(_context: Any, scores: Any) -> Any:
            return types.float32(types.int64), write

        return highest

    @intrinsic
    def highest_of(_context: Any, scores: Any, low: Any, high: Any) -> Any:
        return types.float32(types.int64, types.int64, types.int64), write

    return highest_of


@intrinsic
def any_above_64(_context: Any, scores: Any, factor: Any, limit: Any) -> Any:
    """Whether any of the 64 scores at an address, times a positive factor, is above the limit; NaN
    may count or not."""

    def write(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        scores, factor, limit = arguments
        code = Code(builder)
        values = [code.load(code.at(scores, 4 * LANES * index), FLOATS, 4) for index in range(4)]
        highest = _larger(code, _larger(code, *values[:2]), _larger(code, *values[2:]))
        highest = code.exactly("fmul", highest, code.splat(factor))
        above = builder.fcmp_ordered(">", highest, code.splat(limit))
        return builder.icmp_unsigned("!=", builder.bitcast(above, I16), ir.Constant(I16, 0))

    return types.boolean(types.int64, types.float32, types.float32), write


def _weigh(vectors: int) -> Any:
    """Turns so many vectors of scores into weights."""

    def write(target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        scores, weights, sums, factor, base = arguments
        code = Code(builder)
        factor, base, total = code.splat(factor), code.splat(base), code.load(sums, FLOATS, 4)
        for index in range(vectors):
            score = code.load(code.at(scores, 4 * LANES * index), FLOATS, 4)
            value = exp2(code, code.exactly("fmul", score, factor), base)
            place = code.at(weights, (2 if DOT else 4) * LANES * index)
            code.store(_activations(code, value), place)
            # One after the other: in this order they are added wherever a tile begins.
            total = code.exactly("fadd", total, value)
        code.store(total, sums)
        return target.get_dummy_value()

    @intrinsic
    def weigh(_context: Any, scores: Any, weights: Any, sums: Any, factor: Any, base: Any) -> Any:
        return types.void(*[types.int64] * 3, types.float32, types.float32), write

    return weigh


highest_64 = _highest(4, masked=False)
"""`(scores) -> float32`: the highest of the 64 scores at an address; may be NaN if one is."""
highest_seen_32 = _highest(2, masked=True)
"""`(scores, low, high) -> float32`: sets all of 32 scores but `low..high-1` to -inf first."""
highest_seen_64 = _highest(4, masked=True)
"""As `highest_seen_32`, of 64."""
weigh_32 = _weigh(2)
"""`(scores, weights, sums, factor, base)`: 32 weights `2^(score * factor - base)`, written as
activations, and added, as float32, to the sixteen sums at an address."""
weigh_64 = _weigh(4)
"""As `weigh_32`, of 64."""


@intrinsic
def power_of_two(_context: Any, x: Any) -> Any:
    """2^x of a whole number up to 0, zero below -126, as for -inf; zero for NaN."""

    def write(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        x = arguments[0]
        # False for NaN.
        normal = builder.fcmp_ordered(">=", x, ir.Constant(F32, _LEAST))
        exponent = builder.fptosi(builder.select(normal, x, ir.Constant(F32, _LEAST)), I32)
        bits = builder.shl(builder.add(exponent, ir.Constant(I32, 127)), ir.Constant(I32, 23))
        value = builder.bitcast(bits, F32)
        return builder.select(normal, value, ir.Constant(F32, 0.0))

    return types.float32(types.float32), write


@intrinsic
def rotate_16(_context: Any, address: Any, by: Any) -> Any:
    """Move the sixteen float32 at an address on by 0 to 15 places, the last ones to the front."""

    def write(target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        address, by = arguments
        code = Code(builder)
        values = code.load(address, FLOATS, 4)
        for bit in range(LANES.bit_length() - 1):
            lanes = [(lane - (1 << bit)) % LANES for lane in range(LANES)]
            moved = builder.shuffle_vector(values, values, ir.Constant(INTS, lanes))
            wanted = builder.trunc(builder.lshr(by, ir.Constant(by.type, bit)), ir.IntType(1))
            values = builder.select(wanted, moved, values)
        code.store(values, address)
        return target.get_dummy_value()

    return types.void(types.int64, types.int64), write


@intrinsic
def sum_16(_context: Any, address: Any) -> Any:
    """The sum of the sixteen float32 at an address."""

    def write(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        code = Code(builder)
        return _across(code, code.load(arguments[0], FLOATS, 4), partial(code.exactly, "fadd"))

    return types.float32(types.int64), write


@intrinsic
def fill_16(_context: Any, address: Any, value: Any) -> Any:
    """Write sixteen times a float32."""

    def write(target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        code = Code(builder)
        code.store(code.splat(arguments[1]), arguments[0])
        return target.get_dummy_value()

    return types.void(types.int64, types.float32), write


@intrinsic
def scale_16(_context: Any, address: Any, factor: Any) -> Any:
    """Multiply sixteen float32 by a number, in place."""

    def write(target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        code = Code(builder)
        values = code.exactly("fmul", code.load(arguments[0], FLOATS, 4), code.splat(arguments[1]))
        code.store(values, arguments[0])
        return target.get_dummy_value()

    return types.void(types.int64, types.float32), write


@intrinsic
def copy_16(_context: Any, source: Any, target: Any) -> Any:
    """Copy sixteen float32."""

    def write(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        code = Code(builder)
        code.store(code.load(arguments[0], FLOATS, 4), arguments[1])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), write


@intrinsic
def add_scaled_16(_context: Any, source: Any, its: Any, target: Any, own: Any) -> Any:
    """`target = own * target + its * source`, sixteen float32 at addresses."""

    def write(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        source, its, goal, own = arguments
        code = Code(builder)
        before = code.exactly("fmul", code.load(goal, FLOATS, 4), code.splat(own))
        code.store(code.fma(code.load(source, FLOATS, 4), code.splat(its), before), goal)
        return context.get_dummy_value()

    return types.void(types.int64, types.float32, types.int64, types.float32), write
