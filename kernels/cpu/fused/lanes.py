"""What Numba has no words for: addresses, vectors of sixteen floats, bfloat16, atomic counters.

Each function here becomes a few instructions inside the kernel that calls it. Addresses are int64;
nothing is checked.
"""

from __future__ import annotations

import inspect
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import np_cfarray

from ramet.kernels.cpu.fused.jit import compile_routine, has

LANES = 16
"""Outputs, keys or dimensions that one vector holds, on every processor; those with shorter
registers take several for it."""

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F32 = ir.FloatType()
FLOATS = ir.VectorType(F32, LANES)
INTS = ir.VectorType(I32, LANES)
BYTES = ir.VectorType(I8, LANES)
FOURS = ir.VectorType(I8, 4 * LANES)
SHORTS = ir.VectorType(I16, LANES)


class _BFloat(ir.types._BaseFloatType):
    """LLVM's bfloat, which llvmlite lacks."""

    null = "0.0"
    intrinsic_name = "bf16"

    def __str__(self) -> str:
        return "bfloat"


_BFloat._create_instance()
BF16 = _BFloat()
BF16_PAIRS = ir.VectorType(BF16, 2 * LANES)

VNNI = has("avx512vnni")
"""Whether the processor multiplies fours of bytes and adds them to int32 (VPDPBUSD)."""
DOT = has("avx512bf16")
"""Whether the processor multiplies pairs of bfloat16 and adds them to float32 (VDPBF16PS)."""


class Code:
    """Writes the instructions of one function, at `builder`'s place."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def pointer(self, address: Any, kind: Any) -> Any:
        """The pointer to a `kind` at an address."""
        return self.builder.inttoptr(address, kind.as_pointer())

    def load(self, address: Any, kind: Any, align: int = 1) -> Any:
        """The `kind` at an address."""
        value = self.builder.load(self.pointer(address, kind))
        value.align = align
        return value

    def store(self, value: Any, address: Any, align: int = 4) -> None:
        """Write `value` at an address."""
        self.builder.store(value, self.pointer(address, value.type)).align = align

    def at(self, address: Any, offset: Any) -> Any:
        """An address and so many bytes."""
        if isinstance(offset, int):
            offset = ir.Constant(I64, offset)
        return self.builder.add(address, offset)

    def times(self, value: Any, factor: int) -> Any:
        """int64 `value * factor`."""
        return self.builder.mul(value, ir.Constant(I64, factor))

    def splat(self, value: Any) -> Any:
        """A vector that holds `value` in all lanes."""
        kind = ir.VectorType(value.type, LANES)
        nothing = ir.Constant(kind, ir.Undefined)
        first = self.builder.insert_element(nothing, value, ir.Constant(I32, 0))
        zeros = ir.Constant(INTS, [0] * LANES)
        return self.builder.shuffle_vector(first, nothing, zeros)

    def floats(self, value: float) -> Any:
        """A vector of one constant."""
        return ir.Constant(FLOATS, [value] * LANES)

    def ints(self, value: int) -> Any:
        """A vector of one constant int32."""
        return ir.Constant(INTS, [value] * LANES)

    def call(self, name: str, result: Any, *arguments: Any) -> Any:
        """Call an intrinsic or a C function by name."""
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, arguments)

    def prefetch(self, address: Any, level: int = 1) -> None:
        """Ask for the cache line at an address, which need not be readable; `level` 2: to have it
        in the second cache only."""
        read, near, data = (ir.Constant(I32, value) for value in (0, 4 - level, 1))
        place = self.pointer(address, I8)
        self.call("llvm.prefetch.p0", ir.VoidType(), place, read, near, data)

    def exactly(self, operation: str, a: Any, b: Any) -> Any:
        """`fadd`, `fsub` or `fmul` of two floats, as it is written.

        Numba gives what has no flags those of the function around it: it might be added up in
        another order, and in a different one wherever it is inlined.
        """
        return getattr(self.builder, operation)(a, b, flags=("nsz",))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """`a * b + c`, rounded once."""
        return self.call(f"llvm.fma.v{LANES}f32", FLOATS, a, b, c)

    def narrow(self, values: Any, ints: Any) -> Any:
        """float32 rounded to the nearest bfloat16, ties to even, as float32 bits, `ints`.

        For processors that can't round so themselves: LLVM's own way calls into a library that
        isn't there.
        """
        builder = self.builder
        bits = builder.bitcast(values, ints)

        def constant(value: int) -> Any:
            return self.ints(value) if ints == INTS else ir.Constant(I32, value)

        odd = builder.and_(builder.lshr(bits, constant(16)), constant(1))
        up = builder.add(builder.add(bits, odd), constant(0x7FFF))
        # Adding to a NaN's bits could make a number of it.
        number = builder.fcmp_ordered("ord", values, values)
        rounded = builder.select(number, up, builder.or_(bits, constant(0x400000)))
        return builder.and_(rounded, constant(-0x10000))

    def widen(self, shorts: Any) -> Any:
        """bfloat16 bits, int16 lanes, as float32."""
        wide = self.builder.zext(shorts, INTS)
        return self.builder.bitcast(self.builder.shl(wide, self.ints(16)), FLOATS)


def loop(code: Code, count: Any, first: list[Any], body: Any) -> list[Any]:
    """`count` times, at least once, `body(number, values)`, which gives the next values; the last
    ones."""
    builder = code.builder
    before, inside = builder.block, builder.append_basic_block("loop")
    after = builder.append_basic_block("after")
    builder.branch(inside)
    builder.position_at_end(inside)
    number, *values = [builder.phi(value.type) for value in (count, *first)]
    last: list[Any] = body(number, values)
    following = code.at(number, 1)
    for phi, start, next_one in zip(
        [number, *values], [ir.Constant(I64, 0), *first], [following, *last], strict=True
    ):
        phi.add_incoming(start, before)
        phi.add_incoming(next_one, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, count), inside, after)
    builder.position_at_end(after)
    return last


def lanes_below(code: Code, count: Any, first: int = 0) -> Any:
    """Which of the lanes, the first being number `first`, are among `count`, below 2**31."""
    numbers = ir.Constant(INTS, list(range(first, first + LANES)))
    return code.builder.icmp_signed("<", numbers, code.splat(code.builder.trunc(count, I32)))


def load_some(code: Code, address: Any, lanes: Any) -> Any:
    """Sixteen float32 at an address; zeros where `lanes` is false, and nothing is read there."""
    place, align = code.pointer(address, FLOATS), ir.Constant(I32, 4)
    name = f"llvm.masked.load.v{LANES}f32.p0"
    return code.call(name, FLOATS, place, align, lanes, code.floats(0.0))


def store_some(code: Code, values: Any, address: Any, lanes: Any) -> None:
    """Write those of sixteen float32 where `lanes` is true."""
    place, align = code.pointer(address, FLOATS), ir.Constant(I32, 4)
    name = f"llvm.masked.store.v{LANES}f32.p0"
    code.call(name, ir.VoidType(), values, place, align, lanes)


@intrinsic
def float_of(_context: Any, value: Any) -> Any:
    """The float32 of these bits, uint32."""

    def write(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], F32)

    return types.float32(types.uint32), write


@intrinsic
def bf16_bits(_context: Any, value: Any) -> Any:
    """A float32 rounded to the nearest bfloat16, ties to even, as its uint16 bits."""

    def write(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        if DOT:
            return builder.bitcast(builder.fptrunc(arguments[0], BF16), I16)
        bits = Code(builder).narrow(arguments[0], I32)
        return builder.trunc(builder.lshr(bits, ir.Constant(I32, 16)), I16)

    return types.uint16(types.float32), write


@intrinsic
def fetch_add(_context: Any, address: Any, amount: Any) -> Any:
    """Add to the int64 at an address, in one step among all threads; what it was before."""

    def write(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], I64.as_pointer())
        return builder.atomic_rmw("add", pointer, arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), write


@intrinsic
def peek(_context: Any, address: Any) -> Any:
    """The int64 at an address, and all that was written before whoever wrote it did."""

    def write(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], I64.as_pointer())
        return builder.load_atomic(pointer, "seq_cst", 8)

    return types.int64(types.int64), write


@intrinsic
def poke(_context: Any, address: Any, value: Any) -> Any:
    """Write the int64 at an address, after all that this thread wrote before."""

    def write(target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], I64.as_pointer())
        builder.store_atomic(arguments[1], pointer, "seq_cst", 8)
        return target.get_dummy_value()

    return types.void(types.int64, types.int64), write


@intrinsic
def prefetch(_context: Any, address: Any) -> Any:
    """Ask for the cache line at an address, which need not be readable."""

    def write(target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        Code(builder).prefetch(arguments[0])
        return target.get_dummy_value()

    return types.void(types.int64), write


@intrinsic
def pause(_context: Any) -> Any:
    """Tell the processor that this thread only waits."""

    def write(target: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        code = Code(builder)
        if has("sse2"):
            code.call("llvm.x86.sse2.pause", ir.VoidType())
        elif has("neon"):
            code.call("llvm.aarch64.hint", ir.VoidType(), ir.Constant(I32, 1))
        return target.get_dummy_value()

    return types.void(), write


@intrinsic
def give_way(_context: Any) -> Any:
    """Let another thread have this core (POSIX's sched_yield)."""

    def write(target: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        Code(builder).call("sched_yield", I32)
        return target.get_dummy_value()

    return types.void(), write


def routine(function: Any) -> Any:
    """A kernel of int64 arguments without a result, compiled on its own: those that call it are
    linked to it, so its instructions are made once, however many there are.

    What `inlined` and `jit` compile is compiled again with each function that calls it.
    """
    name = f"ramet_{function.__module__.rpartition('.')[2]}_{function.__name__}"
    count = len(inspect.signature(function).parameters)
    compiled = compile_routine(function, types.void(*[types.int64] * count))
    llvm.add_symbol(name, compiled.address)

    @intrinsic
    def call(_context, *_arguments):
        def write(target: Any, builder: Any, _signature: Any, given: Any) -> Any:
            values = cgutils.unpack_tuple(builder, given[0], count)
            Code(builder).call(name, ir.VoidType(), *values)
            return target.get_dummy_value()

        return types.void(types.StarArgUniTuple(types.int64, count)), write

    call.__dict__["compiled"] = compiled  # Its code lives as long as this.
    return call


def view(kind: Any) -> Any:
    """A kernel function `(address, shape) -> array` of a dtype; `shape` is a tuple of int64."""

    @intrinsic
    def of(_context: Any, _address: Any, shape: Any) -> Any:
        def write(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], I8.as_pointer())
            return np_cfarray(target, builder, signature, (pointer, arguments[1]))

        sizes = types.UniTuple(types.int64, len(shape))
        return types.Array(kind, len(shape), "C")(types.int64, sizes), write

    return of


f32_array = view(types.float32)
i32_array = view(types.int32)
i64_array = view(types.int64)
u16_array = view(types.uint16)
