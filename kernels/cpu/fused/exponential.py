"""exp in float64, out of operations that LLVM makes vectors of; Numba's own is a call per element.

Relative error at most 5e-16 where exp(x) is a normal number.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from ramet.kernels.cpu.fused.lanes import I64

_PER_LOG_2 = 1.4426950408889634
_LOG_2_HIGH = 0.6931471803691238  # its last 21 bits are 0: times an integer below 2**11 it is exact
_LOG_2_LOW = 1.9082149292705877e-10
_ROUNDER = 1.5 * 2.0**52
"""Added to a small number, it leaves the nearest integer in the lowest bits."""
_LEAST = -708.0
"""Below, exp is taken for 0: the result would soon be no normal number."""

# exp(r) = 1 + r + r**2 * q(r) for |r| <= log(2) / 2, q by Remez' algorithm: relative error 2.9e-16.
_Q0 = 0.49999999999998324
_Q1 = 0.16666666666611513
_Q2 = 0.04166666666813762
_Q3 = 0.008333333370892454
_Q4 = 0.00138888885160132
_Q5 = 0.00019841185202598496
_Q6 = 2.4801931846090835e-05
_Q7 = 2.7635006226749144e-06
_Q8 = 2.7476784130917933e-07


@intrinsic
def _times_power_of_2(_context: Any, value: Any, rounded: Any) -> Any:
    """`value` times 2 to the integer in the lowest bits of `rounded`, both float64."""

    def write(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        bits = [builder.bitcast(argument, I64) for argument in arguments]
        exponent = builder.shl(bits[1], ir.Constant(I64, 52))
        return builder.bitcast(builder.add(bits[0], exponent), ir.DoubleType())

    return types.float64(types.float64, types.float64), write


# No sums in another order here: that would take the rounder away.
@numba.njit(nogil=True, error_model="numpy", fastmath={"contract"})
def exponential(x: float) -> float:
    """exp(x) for x at most 0, minus infinity included; 0 below -708."""
    rounded = x * _PER_LOG_2 + _ROUNDER
    whole = rounded - _ROUNDER
    r = (x - whole * _LOG_2_HIGH) - whole * _LOG_2_LOW
    q = _Q8
    for c in (_Q7, _Q6, _Q5, _Q4, _Q3, _Q2, _Q1, _Q0):
        q = q * r + c
    return _times_power_of_2(r * r * q + r + 1.0, rounded) if x >= _LEAST else 0.0
