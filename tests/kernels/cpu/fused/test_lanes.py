"""Floats as bits, and back."""

from __future__ import annotations

import numpy as np
import torch

from ramet.kernels.cpu.fused.jit import jit
from ramet.kernels.cpu.fused.lanes import (
    DOT,
    bf16_bits,
    f32_array,
    fetch_add,
    float_of,
    i64_array,
    peek,
    poke,
    u16_array,
)


@jit
def _round_all(source, target, size):
    x, y = f32_array(source, (size,)), u16_array(target, (size,))
    for i in range(size):
        y[i] = bf16_bits(x[i])


@jit
def _round_one(x):
    return bf16_bits(x)


@jit
def _put(bits, address):
    f32_array(address, (1,))[0] = float_of(bits)


@jit
def _count(address):
    poke(address, 40)
    before = fetch_add(address, 2)
    return before, peek(address), i64_array(address, (1,))[0]


def floats(bits):
    return torch.tensor(bits, dtype=torch.int64).to(torch.int32).view(torch.float32)


def rounded(x):
    """bfloat16 bits by a loop, which the compiler makes vectors of, and one by one."""
    x = x.contiguous()
    y = torch.zeros(len(x), dtype=torch.int16)
    _round_all(x.data_ptr(), y.data_ptr(), len(x))
    each = [_round_one(np.float32(value)) for value in x.numpy()]
    assert y.view(torch.uint16).tolist() == each
    return y


def as_torch_does(x):
    return x.bfloat16().view(torch.int16)


def test_every_exponent_sign_and_tie():
    lows = [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x18000, 0x17FFF, 0x3F8000, 0x7F7FFF, 0x7FFFFF]
    bits = [s << 31 | e << 23 | m for s in (0, 1) for e in range(1, 255) for m in lows]
    x = floats([b - (1 << 32) if b >> 31 else b for b in bits])
    assert torch.equal(rounded(x), as_torch_does(x))


def test_random_bits():
    source = np.random.default_rng(0)
    x = torch.from_numpy(source.integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32))
    x = x[(x.abs() >= torch.finfo(torch.float32).tiny) & x.isfinite()]
    assert torch.equal(rounded(x), as_torch_does(x))


def test_zeros_infinities_and_what_rounds_to_them():
    x = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, 3.3961776e38, -3.4e38, 3.389e38])
    assert torch.equal(rounded(x), as_torch_does(x))
    assert rounded(x)[4] == 0x7F80


def test_nan_stays_nan_whatever_its_bits():
    bits = [0x7F800001, 0x7FFFFFFF, 0x7FC00000, 0x7F80FFFF, -1, -0x7FFFFF, -0x400000]
    assert bool(rounded(floats(bits)).view(torch.bfloat16).isnan().all())


def test_denormals_become_zero_or_a_neighbour():
    """VCVTNEPS2BF16 takes them for zeros; elsewhere they are rounded like others. Nothing here
    depends on numbers below 1e-38."""
    bits = [1, 0x7FFF, 0x8000, 0x18000, 0x123456, 0x7F7FFF, 0x7FFFFF]
    x = torch.cat([floats(bits), -floats(bits)])
    wanted = as_torch_does(x)
    if DOT:
        wanted = (torch.signbit(x).to(torch.int32) << 15).to(torch.int16)
    assert torch.equal(rounded(x), wanted)


def test_bits_and_atomics():
    found = np.zeros(1, dtype=np.uint32)
    for bits in (0, 1, 0x7F800001, 0xFFFFFFFF, 0x3F800000):
        _put(np.uint32(bits), found.ctypes.data)
        assert found[0] == bits
    memory = np.zeros(1, dtype=np.int64)
    assert _count(memory.ctypes.data) == (40, 42, 42)
