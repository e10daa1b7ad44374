"""exp against more digits than float64 has."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import pytest

pytest.importorskip("numba")

from ramet.kernels.cpu.fused.exponential import exponential


@pytest.mark.parametrize("x", [-1e-18, -1e-3, -0.3465, -0.3466, -1.0, -7.77, -36.6, -100.1, -345.6])
def test_it_is_exact_to_the_last_digit_or_two(x: float) -> None:
    with localcontext(prec=50):
        for step in range(40):
            at = x * (1 + step / 64)
            assert abs(Decimal(exponential(at)) / Decimal(at).exp() - 1) < Decimal("5e-16")


def test_the_ends() -> None:
    assert exponential(0.0) == exponential(-0.0) == 1.0
    assert exponential(-708.0) == pytest.approx(math.exp(-708.0), rel=1e-15)
    assert exponential(-708.0001) == exponential(-1e308) == exponential(-math.inf) == 0.0
