"""Passes over a row of float32 logits, sixteen at a time: the largest, a mask, those above a bound.

Written in LLVM's words where a loop of Numba's would go number by number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from ramet.kernels.cpu.fused.jit import inlined
from ramet.kernels.cpu.fused.lanes import F32, FLOATS, I16, I64, LANES, Code

BLOCK = 1024
"""Tokens that are added up, or searched for the largest, before the next; a multiple of 64."""
_SUMS = 4
_BIT = ir.IntType(1)


@intrinsic
def _largest(_context: Any, address: Any) -> Any:
    """The largest of the `BLOCK` float32 at an address; NaN if one of them is."""
    bits = ir.VectorType(_BIT, LANES)

    def write(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        code = Code(builder)
        entry, loop = builder.block, builder.append_basic_block("step")
        after = builder.append_basic_block("done")
        builder.branch(loop)
        builder.position_at_end(loop)
        step, strange = builder.phi(I64), builder.phi(bits)
        best = [builder.phi(FLOATS) for _ in range(_SUMS)]
        here = code.at(arguments[0], code.times(step, 4 * LANES * _SUMS))
        values = [code.load(code.at(here, 4 * LANES * i), FLOATS, 4) for i in range(_SUMS)]
        new = [
            builder.select(builder.fcmp_ordered(">", value, old), value, old)
            for value, old in zip(values, best, strict=True)
        ]
        seen = strange
        for first, second in zip(values[::2], values[1::2], strict=True):
            seen = builder.or_(seen, builder.fcmp_unordered("uno", first, second))
        following = code.at(step, 1)
        starts = [ir.Constant(I64, 0), ir.Constant(bits, [0] * LANES)]
        starts += [code.floats(float("-inf"))] * _SUMS
        for phi, start, next_one in zip(
            [step, strange, *best], starts, [following, seen, *new], strict=True
        ):
            phi.add_incoming(start, entry)
            phi.add_incoming(next_one, loop)
        steps = ir.Constant(I64, BLOCK // (LANES * _SUMS))
        builder.cbranch(builder.icmp_signed("<", following, steps), loop, after)
        builder.position_at_end(after)
        name = f"llvm.vector.reduce.fmax.v{LANES}f32"
        result = code.call(name, F32, new[0])
        for vector in new[1:]:
            other = code.call(name, F32, vector)
            result = builder.select(builder.fcmp_ordered(">", other, result), other, result)
        some = code.call(f"llvm.vector.reduce.or.v{LANES}i1", _BIT, seen)
        return builder.select(some, ir.Constant(F32, float("nan")), result)

    return types.float32(types.int64), write


@intrinsic
def _allow(_context: Any, source: Any, bits: Any, target: Any) -> Any:
    """Copy 16 float32 from one address to another; minus infinity where the bit is 0,
    but what is NaN stays it."""

    def write(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        code = Code(builder)
        chosen = builder.bitcast(builder.trunc(arguments[1], I16), ir.VectorType(_BIT, LANES))
        values = code.load(arguments[0], FLOATS, 4)
        chosen = builder.or_(chosen, builder.fcmp_unordered("uno", values, values))
        code.store(builder.select(chosen, values, code.floats(float("-inf"))), arguments[2])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), write


@intrinsic
def _at_least(_context: Any, address: Any, least: Any) -> Any:
    """A bit for each of the 16 float32 at an address: whether it is `least` or more."""

    def write(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        code = Code(builder)
        values = code.load(arguments[0], FLOATS, 4)
        kept = builder.fcmp_ordered(">=", values, code.splat(arguments[1]))
        return builder.zext(builder.bitcast(kept, I16), I64)

    return types.int64(types.int64, types.float32), write


@intrinsic
def _lowest_bit(_context: Any, bits: Any) -> Any:
    """The place of the lowest bit that is 1; there is one."""

    def write(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(_BIT, 1))

    return types.int64(types.int64), write


@inlined
def likeliest(x):
    """(its token, the lowest of equals; the largest of `x`, or NaN if there is one)."""
    best, place = np.float32(-np.inf), 0
    for start in range(0, len(x), BLOCK):
        stop = min(start + BLOCK, len(x))
        if stop - start == BLOCK:
            value = _largest(x.ctypes.data + 4 * start)
        else:
            value = np.float32(-np.inf)
            for i in range(start, stop):
                # Not above a NaN, either, which so stays.
                if not x[i] <= value:
                    value = x[i]
                    if value != value:
                        break
        if value != value:
            return start, value
        if value > best:
            best, place = value, start
    while x[place] != best:
        place += 1
    return place, best


@inlined
def mask(x, words, out):
    """`x`, and minus infinity where the bit of `words` is 0, to `out`; NaN stays."""
    whole = len(x) // 32
    source, target = x.ctypes.data, out.ctypes.data
    for i in range(whole):
        word = np.int64(words[i])
        _allow(source + 128 * i, word, target + 128 * i)
        _allow(source + 128 * i + 64, word >> 16, target + 128 * i + 64)
    for i in range(32 * whole, len(x)):
        chosen = (words[whole] >> (i - 32 * whole)) & 1 or x[i] != x[i]
        out[i] = x[i] if chosen else np.float32(-np.inf)


@inlined
def likeliest_of(x, words, some):
    """As `likeliest` of what `mask` leaves, `BLOCK` of it at a time in the memory `some`."""
    best, place = np.float32(-np.inf), 0
    for start in range(0, len(x), BLOCK):
        stop = min(start + BLOCK, len(x))
        mask(x[start:stop], words[start // 32 :], some)
        at, value = likeliest(some[: stop - start])
        if value != value:
            return start + at, value
        if value > best:
            best, place = value, start + at
    return place, best


@inlined
def gather(x, least, found):
    """Write the tokens with a logit of at least `least` to `found`, in order; their number."""
    size = 0
    whole = len(x) // LANES
    for chunk in range(whole):
        bits = _at_least(x.ctypes.data + 4 * LANES * chunk, least)
        while bits:
            found[size] = LANES * chunk + _lowest_bit(bits)
            size += 1
            bits &= bits - 1
    for i in range(LANES * whole, len(x)):
        if x[i] >= least:
            found[size] = i
            size += 1
    return size
