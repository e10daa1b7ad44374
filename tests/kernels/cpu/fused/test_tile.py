"""The product in registers: every number of rows and steps, however the panel is stored."""

from __future__ import annotations

import pytest
import torch

from ramet.kernels.cpu.fused import tile
from ramet.kernels.cpu.fused.jit import jit
from ramet.kernels.cpu.fused.lanes import DOT
from ramet.kernels.cpu.fused.tile import PAIR, PANEL, ROWS

ACTIVATIONS = torch.bfloat16 if DOT else torch.float32
STORED = ["bytes", "shorts"] if DOT else ["bytes", "shorts", "floats"]
SENTINEL = 7777.0


@jit
def _times(kind, rows, a, a_stride, b, b_stride, steps, c, c_stride, adds):
    if kind == 0:
        tile.times_bytes(rows, a, a_stride, b, b_stride, steps, c, c_stride, adds)
    elif kind == 1:
        tile.times_shorts(rows, a, a_stride, b, b_stride, steps, c, c_stride, adds)
    else:
        tile.times_floats(rows, a, a_stride, b, b_stride, steps, c, c_stride, adds)


def per_step(stored):
    return {"bytes": 2, "shorts": PAIR, "floats": 1}[stored]


def panel(matrix, stored):
    """A matrix `[inputs, 32]` as it is stored: 16 columns, then the others, some bytes apart."""
    halves = matrix.view(-1, 2, 16).transpose(0, 1)
    if stored == "bytes":
        return halves.to(torch.int8)
    if stored == "floats":
        return halves.float()
    pairs = halves.reshape(2, -1, PAIR, 16).transpose(2, 3)
    return pairs.to(torch.bfloat16)


def multiply(a, matrix, stored, rows, before=None):
    """`[rows, 32]`, and what lies behind the rows that a tile may write is left alone."""
    inputs = len(matrix)
    # Rows of A and of C lie further apart than they are long.
    wide = torch.full((ROWS, inputs + 3), float("nan"), dtype=ACTIVATIONS)
    wide[:, :inputs] = a
    b = panel(matrix, stored).reshape(2, -1)
    apart = torch.zeros(2, b.shape[1] + 64, dtype=b.dtype)
    apart[:, : b.shape[1]] = b
    c = torch.full((ROWS + 1, PANEL + 5), SENTINEL)
    if before is not None:
        c[:ROWS, :PANEL] = before
    _times(
        ["bytes", "shorts", "floats"].index(stored), rows, wide.data_ptr(),
        wide.stride(0) * wide.itemsize, apart.data_ptr(), apart.stride(0) * apart.itemsize,
        inputs // per_step(stored), c.data_ptr(), c.stride(0) * 4, int(before is not None),
    )  # fmt: skip
    assert (c[ROWS] == SENTINEL).all()
    assert (c[:, PANEL:] == SENTINEL).all()
    return c[:rows, :PANEL]


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("rows", range(1, ROWS + 1))
def test_integers_are_exact(rows, stored, adds):
    torch.manual_seed(rows)
    for steps in range(1, 41):
        inputs = steps * per_step(stored)
        a = torch.randint(-127, 128, (ROWS, inputs)).float()
        matrix = torch.randint(-127, 128, (inputs, PANEL)).float()
        before = torch.randint(-999, 999, (ROWS, PANEL)).float() if adds else None
        wanted = a[:rows] @ matrix
        if before is not None:
            wanted += before[:rows]
        assert torch.equal(multiply(a, matrix, stored, rows, before), wanted), steps


@pytest.mark.parametrize("stored", STORED)
def test_fractions(stored):
    torch.manual_seed(0)
    a = torch.randn(ROWS, 128).bfloat16().float()
    matrix = torch.randn(128, PANEL).bfloat16().float()
    if stored == "bytes":
        matrix = (matrix * 40).clamp(-127, 127).round()
    got = multiply(a, matrix, stored, ROWS)
    slack = 1e-6 * (a.double().abs() @ matrix.double().abs())
    assert bool(((got - a.double() @ matrix.double()).abs() <= slack).all())


@pytest.mark.parametrize("stored", STORED)
def test_what_is_not_finite_stays_in_its_row(stored):
    torch.manual_seed(0)
    a, matrix = torch.ones(ROWS, 8), torch.randint(1, 9, (8, PANEL)).float()
    sound = multiply(a, matrix, stored, ROWS)
    a[1, 3], a[2, 0] = float("nan"), float("inf")
    got = multiply(a, matrix, stored, ROWS)
    assert got[1].isnan().all()
    assert got[2].isinf().all()
    others = torch.tensor([0, *range(3, ROWS)])
    assert torch.equal(got[others], sound[others])
