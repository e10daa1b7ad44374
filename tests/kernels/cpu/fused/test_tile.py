"""The product in registers: every number of rows and steps, however the panel is stored."""

from __future__ import annotations

import pytest
import torch
from fused_linear import as_inputs

from ramet.kernels import reference
from ramet.kernels.cpu.fused import tile
from ramet.kernels.cpu.fused.jit import jit
from ramet.kernels.cpu.fused.lanes import DOT, VNNI
from ramet.kernels.cpu.fused.tile import INPUT_ROWS, PAIR, PANEL, ROWS

ACTIVATIONS = torch.bfloat16 if DOT else torch.float32
STORED = ["bytes", "shorts"] if VNNI else ["bytes", "shorts", "floats"]
MOST = {"bytes": INPUT_ROWS, "shorts": ROWS, "floats": INPUT_ROWS}
SENTINEL = 7777.0


@jit
def _times(kind, rows, a, a_stride, b, b_stride, steps, c, c_stride, last):
    if kind == 0:
        tile.times_bytes(rows, a, a_stride, b, b_stride, steps, c, c_stride, last)
    elif kind == 1:
        tile.times_shorts(rows, a, a_stride, b, b_stride, steps, c, c_stride, last)
    else:
        tile.times_floats(rows, a, a_stride, b, b_stride, steps, c, c_stride, last)


def per_step(stored):
    return {"bytes": 64 if VNNI else 2, "shorts": PAIR, "floats": 1}[stored]


def panel(matrix, stored):
    """A matrix `[inputs, 32]` as it is stored: 16 columns, then the others, some bytes apart."""
    halves = matrix.view(-1, 2, 16).transpose(0, 1)
    if stored == "bytes" and VNNI:
        fours = halves.reshape(2, -1, 4, 16).transpose(2, 3)
        return (fours + 128).to(torch.uint8)
    if stored == "bytes":
        return halves.to(torch.int8)
    if stored == "floats":
        return halves.float()
    pairs = halves.reshape(2, -1, PAIR, 16).transpose(2, 3)
    return pairs.to(torch.bfloat16)


def rows_of(a, stored):
    """A as it is stored, its rows further apart than they are long; bytes as turned blocks."""
    if stored == "bytes" and VNNI:
        found = as_inputs(reference.hadamard(a))
        wide = torch.full((len(found), found.shape[1] + 12), 255, dtype=torch.uint8)
    else:
        found = a.to(ACTIVATIONS) if stored == "shorts" else a.float()
        wide = torch.full((len(a), found.shape[1] + 3), float("nan"), dtype=found.dtype)
    wide[:, : found.shape[1]] = found
    return wide


def multiply(a, matrix, stored, rows, before=None):
    """`[rows, 32]`, and what lies behind the rows that a tile may write is left alone."""
    most = MOST[stored]
    wide = rows_of(a, stored)
    b = panel(matrix, stored).reshape(2, -1)
    apart = torch.zeros(2, b.shape[1] + 64, dtype=b.dtype)
    apart[:, : b.shape[1]] = b
    c = torch.full((most + 1, PANEL + 5), SENTINEL)
    if before is not None:
        c[:most, :PANEL] = before[:most]
    _times(
        ["bytes", "shorts", "floats"].index(stored), rows, wide.data_ptr(),
        wide.stride(0) * wide.itemsize, apart.data_ptr(), apart.stride(0) * apart.itemsize,
        len(matrix) // per_step(stored), c.data_ptr(), c.stride(0) * 4,
        1 << 40 if stored == "bytes" else int(before is not None),  # What is beyond isn't read.
    )  # fmt: skip
    assert (c[most] == SENTINEL).all()
    assert (c[:, PANEL:] == SENTINEL).all()
    return c[:rows, :PANEL]


def near(got, a, matrix, stored, before=None):
    """Exact but for the order of float32 sums, and what bytes round."""
    a, matrix = a[: len(got)], matrix.double()
    if stored == "bytes" and VNNI:
        a = reference.quantise_inputs(reference.hadamard(a))
    wanted = a.double() @ matrix + (0 if before is None else before[: len(got)])
    return bool(((got - wanted).abs() <= 1e-6 * a.double().abs() @ matrix.abs() + 1e-3).all())


@pytest.mark.parametrize(
    ("stored", "adds"), [(s, adds) for s in STORED for adds in (False, True)[: 2 - (s == "bytes")]]
)
def test_integers(stored, adds):
    for rows in range(1, MOST[stored] + 1):
        torch.manual_seed(rows)
        for steps in range(1, 41) if per_step(stored) < 64 else range(1, 6):
            inputs = steps * per_step(stored)
            a = torch.randint(-127, 128, (ROWS, inputs)).float()
            matrix = torch.randint(-127, 128, (inputs, PANEL)).float()
            before = torch.randint(-999, 999, (ROWS, PANEL)).float() if adds else None
            got = multiply(a, matrix, stored, rows, before)
            assert near(got, a, matrix, stored, before), (rows, steps)
            if not (stored == "bytes" and VNNI):
                wanted = a[:rows] @ matrix + (0 if before is None else before[:rows])
                assert torch.equal(got, wanted), (rows, steps)


@pytest.mark.parametrize("stored", STORED)
def test_fractions(stored):
    torch.manual_seed(0)
    a = torch.randn(ROWS, 128).bfloat16().float()
    matrix = torch.randn(128, PANEL).bfloat16().float()
    if stored == "bytes":
        matrix = (matrix * 40).clamp(-127, 127).round()
    assert near(multiply(a, matrix, stored, MOST[stored]), a, matrix, stored)


@pytest.mark.parametrize("stored", STORED)
def test_what_is_not_finite_stays_in_its_row(stored):
    torch.manual_seed(0)
    most = MOST[stored]
    a, matrix = torch.ones(ROWS, 64), torch.randint(1, 9, (64, PANEL)).float()
    sound = multiply(a, matrix, stored, most)
    a[1, 3], a[2, 0] = float("nan"), float("inf")
    got = multiply(a, matrix, stored, most)
    assert got[1].isnan().all()
    assert not got[2].isfinite().any()
    others = torch.tensor([0, *range(3, most)])
    assert torch.equal(got[others], sound[others])
