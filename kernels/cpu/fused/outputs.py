"""What becomes of the sums of a tile: they are scaled, and stored, added or gated."""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import intrinsic

from ramet.kernels.cpu.fused.fields import Linear
from ramet.kernels.cpu.fused.jit import inlined
from ramet.kernels.cpu.fused.lanes import (
    FLOATS,
    LANES,
    Code,
    lanes_below,
    load_some,
    store_some,
)
from ramet.kernels.cpu.fused.likeliest import note_largest
from ramet.kernels.cpu.fused.softmax import exp2
from ramet.kernels.cpu.fused.tile import PANEL

STORE, BIAS, ADD, GATE, LARGEST = 0, 1, 2, 3, 4
"""What becomes of a product: it is written to float32 rows, or so with a bias; it is added to them;
of a matrix from `pack_gated`, silu(first) * second is written, float32; or each row's largest is
looked for (`likeliest`)."""
_VECTOR = 4 * LANES


def _silu(code: Code, x: Any) -> Any:
    """x / (1 + exp(-x))."""
    power = code.exactly("fmul", x, code.floats(-1.4426950408889634))
    most = code.floats(126.0)
    power = code.builder.select(code.builder.fcmp_ordered(">", power, most), most, power)
    below = code.exactly("fadd", exp2(code, power, code.floats(0.0)), code.floats(1.0))
    return code.builder.fdiv(x, below, flags=("nsz",))


def _putter(mode: int) -> Any:
    """`(sums, scales, bias, to, count)`: do so with sixteen sums, the first `count` of which mean
    something; `bias` and `to` are read and written no further."""

    def write(target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        sums, scales, bias, to, count = arguments
        code = Code(builder)
        some = lanes_below(code, count)
        value, scale = code.load(sums, FLOATS, 4), code.load(scales, FLOATS, 4)
        if mode in (BIAS, ADD):
            value = code.fma(value, scale, load_some(code, bias if mode == BIAS else to, some))
        else:
            value = code.exactly("fmul", value, scale)
        if mode == GATE:
            second = code.load(code.at(sums, _VECTOR), FLOATS, 4)
            its_scale = code.load(code.at(scales, _VECTOR), FLOATS, 4)
            second = code.exactly("fmul", second, its_scale)
            value = code.exactly("fmul", _silu(code, value), second)
        store_some(code, value, to, some)
        return target.get_dummy_value()

    @intrinsic
    def put_16(_context: Any, sums: Any, scales: Any, bias: Any, to: Any, count: Any) -> Any:
        return types.void(*[types.int64] * 5), write

    return put_16


_stored, _biased, _added, _gated = (_putter(mode) for mode in (STORE, BIAS, ADD, GATE))


@inlined
def put(line, sums, rows, first_row, panel):
    """Scale a tile's sums, `[rows, 32]`, and do with them what the mode says."""
    mode, outputs, stride = line[Linear.MODE], line[Linear.OUTPUTS], line[Linear.TO_STRIDE]
    scales = line[Linear.SCALES] + panel * (4 * PANEL)
    if mode == LARGEST:
        note_largest(line, sums, rows, first_row, panel)
        return
    if mode == GATE:
        to = line[Linear.TO] + panel * _VECTOR + first_row * stride
        for row in range(rows):
            count = outputs // 2 - panel * LANES
            _gated(sums + row * (4 * PANEL), scales, 0, to + row * stride, count)
        return
    for column in range(0, PANEL, LANES):
        count, s = outputs - panel * PANEL - column, scales + 4 * column
        if count <= 0:
            return
        b = line[Linear.BIAS] + panel * (4 * PANEL) + 4 * column
        to = line[Linear.TO] + panel * (4 * PANEL) + 4 * column + first_row * stride
        c = sums + 4 * column
        for row in range(rows):
            if mode == ADD:
                _added(c + row * (4 * PANEL), s, 0, to + row * stride, count)
            elif mode == BIAS:
                _biased(c + row * (4 * PANEL), s, b, to + row * stride, count)
            else:
                _stored(c + row * (4 * PANEL), s, 0, to + row * stride, count)
