"""Powers of two and maxima on vectors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ramet.kernels.cpu.fused import softmax
from ramet.kernels.cpu.fused.jit import jit
from ramet.kernels.cpu.fused.tile import ACTIVATION_BYTES


@jit
def _weigh(scores, weights, sums, factor, base):
    softmax.weigh_64(scores, weights, sums, factor, base)


@jit
def _powers(x):
    return [softmax.power_of_two(value) for value in x]


@jit
def _rotate(address, by):
    softmax.rotate_16(address, by)


@jit
def _highest_seen(scores, low, high):
    return softmax.highest_seen_64(scores, low, high)


def weigh(x, factor=1.0, base=0.0, sums=None):
    """float32 weights of scores, the bits of the weights as activations, and the sixteen sums."""
    x = np.ascontiguousarray(x, dtype=np.float32).reshape(-1, 64)
    one, bits = np.empty((len(x), 4, 16), dtype=np.float32), []
    total = np.zeros(16, dtype=np.float32) if sums is None else sums
    for row in range(len(x)):
        written = np.empty(64 * ACTIVATION_BYTES, dtype=np.uint8)
        for part in range(4):
            # A sum of one weight each is the weight.
            alone = np.full(64, -np.inf, dtype=np.float32)
            alone[16 * part : 16 * part + 16] = x[row, 16 * part : 16 * part + 16]
            one[row, part] = 0
            args = (written.ctypes.data, one[row, part].ctypes.data, np.float32(factor))
            _weigh(alone.ctypes.data, *args, np.float32(base))
        args = (written.ctypes.data, total.ctypes.data, np.float32(factor), np.float32(base))
        _weigh(x[row].ctypes.data, *args)
        bits.append(written)
    return one.reshape(-1), np.concatenate(bits), total


def test_weights_are_within_3e_7():
    x = np.concatenate([np.linspace(-125, 1, 64_000), np.linspace(-2, 0, 64_000)])
    x = x.astype(np.float32)
    got, _, _ = weigh(x)
    assert float(np.abs(got / np.exp2(x.astype(np.float64)) - 1).max()) <= 3e-7


def test_weights_at_the_ends():
    x = np.zeros(64)
    x[:5] = [-math.inf, -1e30, -300.0, math.nan, -3.4e38]
    got, _, _ = weigh(x)
    assert got[[0, 1, 2, 4]].tolist() == [0, 0, 0, 0]
    assert math.isnan(got[3])
    assert (abs(got[5:] - 1) < 3e-7).all()


def test_another_base_only_scales_the_weights():
    x = np.random.default_rng(1).normal(scale=9, size=6400).astype(np.float32)
    x[:4] = [-1e-8, 1e-8, 3.0, -3.0]
    got, bits, sums = weigh(x, 0.18)
    for base in (-3, 1, 7, 60):
        other, other_bits, other_sums = weigh(x, 0.18, base)
        scale = np.float32(2.0**base)
        assert np.array_equal(other * scale, got)
        assert np.array_equal(other_sums * scale, sums)
        if ACTIVATION_BYTES == 4:
            assert np.array_equal(other_bits.view(np.float32) * scale, bits.view(np.float32))
        else:
            exponents = bits.view(np.int16).astype(int) - other_bits.view(np.int16)
            assert (exponents == base * 128).all()


def test_sums_take_sixteen_keys_after_the_other():
    x = np.random.default_rng(2).normal(size=(3, 64)).astype(np.float32)
    weights, _, sums = weigh(x)
    wanted = np.zeros(16, dtype=np.float32)
    for sixteen in weights.reshape(-1, 16):
        wanted += sixteen
    assert np.array_equal(sums, wanted)


def test_whole_powers_of_two():
    x = np.array([0, -1, -126, -127, -1e9, -math.inf, math.nan], dtype=np.float32)
    assert _powers(x) == [1.0, 0.5, 2.0**-126, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("by", range(16))
def test_lanes_move_on(by):
    x = np.arange(16, dtype=np.float32)
    _rotate(x.ctypes.data, by)
    assert np.array_equal(x, np.roll(np.arange(16), by))


@pytest.mark.parametrize(("low", "high"), [(0, 64), (5, 6), (0, 1), (63, 64), (17, 50), (9, 9)])
def test_hidden_scores_become_minus_infinity(low, high):
    scores = np.random.default_rng(0).normal(size=64).astype(np.float32)
    scores[[3, 60]] = math.nan if low > 3 and high < 60 else 0.0
    wanted = np.full(64, -math.inf, dtype=np.float32)
    wanted[low:high] = scores[low:high]
    highest = _highest_seen(scores.ctypes.data, low, high)
    assert scores.tolist() == wanted.tolist()
    assert highest == wanted.max()
