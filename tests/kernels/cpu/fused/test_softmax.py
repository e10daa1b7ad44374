"""Powers of two and maxima on vectors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ramet.kernels.cpu.fused import softmax
from ramet.kernels.cpu.fused.jit import jit
from ramet.kernels.cpu.fused.lanes import f32_array
from ramet.kernels.cpu.fused.softmax import exp2


@jit
def _powers(source, target, size):
    x, y = f32_array(source, (size,)), f32_array(target, (size,))
    for i in range(size):
        y[i] = exp2(x[i])


@jit
def _highest_seen(scores, low, high):
    return softmax.highest_seen_64(scores, low, high)


def powers(x):
    x = np.ascontiguousarray(x, dtype=np.float32)
    y = np.empty_like(x)
    _powers(x.ctypes.data, y.ctypes.data, len(x))
    return y


def test_exp2_is_within_3e_7():
    x = np.concatenate([np.linspace(-125, 1, 200_001), np.linspace(-2, 0, 100_001)])
    x = x.astype(np.float32)
    wanted = np.exp2(x.astype(np.float64))
    assert float(np.abs(powers(x) / wanted - 1).max()) <= 3e-7


def test_exp2_at_the_ends():
    y = powers([-math.inf, -1e30, -300.0, math.nan])
    assert y[:3].tolist() == [0, 0, 0]
    assert math.isnan(y[3])


@pytest.mark.parametrize(("low", "high"), [(0, 64), (5, 6), (0, 1), (63, 64), (17, 50), (9, 9)])
def test_hidden_scores_become_minus_infinity(low, high):
    scores = np.random.default_rng(0).normal(size=64).astype(np.float32)
    scores[[3, 60]] = math.nan if low > 3 and high < 60 else 0.0
    wanted = np.full(64, -math.inf, dtype=np.float32)
    wanted[low:high] = scores[low:high]
    highest = _highest_seen(scores.ctypes.data, low, high)
    assert scores.tolist() == wanted.tolist()
    assert highest == wanted.max()
