"""The fused linear layers against the reference, on odd shapes, by several threads."""

from __future__ import annotations

import random

import pytest
import torch
from fused_linear import multiply

from ramet.kernels import reference
from ramet.kernels.cpu.fused.lanes import VNNI
from ramet.kernels.cpu.fused.outputs import ADD, BIAS, GATE, STORE
from ramet.kernels.cpu.fused.weights import pack, pack_gated

ROWS = [1, 2, 3, 6, 7, 13, 14, 15, 28, 29, 64, 255, 256, 257, 300]
OUTPUTS = [1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 80, 97, 100]
INPUTS = [1, 2, 5, 6, 30, 32, 64, 66, 130, 256, 574, 600]


def shapes(rows, count=3):
    source = random.Random(rows)
    return [(source.choice(OUTPUTS), source.choice(INPUTS)) for _ in range(count)]


def products(x, weight):
    """The products of what is stored in float64, and what the order of float32 sums may change."""
    values, scales = reference.quantise(weight)
    turned = (reference.quantise_inputs(x) if VNNI else reference.hadamard(x)).double()
    got = turned @ values.double().t() * scales
    return got, 3e-6 * turned.abs() @ values.double().abs().t() * scales + 1e-30


def close(got, wanted, slack):
    assert torch.isfinite(got).all()
    assert bool(((got - wanted).abs() <= slack).all())


@pytest.mark.parametrize("mode", [STORE, BIAS, ADD])
@pytest.mark.parametrize("rows", ROWS)
def test_products(rows, mode):
    for number, (outputs, inputs) in enumerate(shapes(rows + 1000 * mode)):
        torch.manual_seed(number)
        x, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs)
        more = torch.randn(outputs) if mode == BIAS else torch.randn(rows, outputs)
        wanted, slack = products(x, weight)
        if mode != STORE:
            wanted, slack = wanted + more, slack + 1e-6 * more.abs()
        bias, before = more if mode == BIAS else None, more if mode == ADD else None
        got = multiply(x, pack(weight), mode, bias, before, threads=number + 1)
        close(got, wanted, slack)


@pytest.mark.parametrize("rows", ROWS)
def test_gated_products(rows):
    for number, (inner, inputs) in enumerate(shapes(rows)):
        torch.manual_seed(number)
        x, weight = torch.randn(rows, inputs), torch.randn(2 * inner, inputs)
        (gate, up), (gate_slack, up_slack) = (t.chunk(2, dim=-1) for t in products(x, weight))
        wanted = torch.nn.functional.silu(gate) * up
        slack = wanted.abs() * 1e-5 + gate_slack * up.abs() * 1.1 + up_slack * gate.abs() + 1e-6
        close(multiply(x, pack_gated(weight), GATE, threads=number + 1), wanted, slack)


@pytest.mark.parametrize("rows", [1, 4, 15, 300])
def test_gates_that_are_wide_open_or_shut(rows):
    """There silu is the identity, or zero."""
    torch.manual_seed(rows)
    inner, inputs = 37, 66
    weight = torch.randint(-127, 128, (2 * inner, inputs)).float()
    weight[:, 0] = 127
    weight[:inner] = 127.0
    weight[5:9] = -127.0
    x = torch.randint(1, 8, (rows, inputs)).float()
    (gate, up), (_, slack) = (t.chunk(2, dim=-1) for t in products(x, weight))
    assert float(gate.abs().min()) > 130
    got = multiply(x, pack_gated(weight), GATE, threads=2)
    shut = gate < 0
    close(got[~shut], (gate * up)[~shut], (gate * slack + gate * up.abs() * 1e-4)[~shut])
    assert float(got[shut].abs().max()) < 1e-25


@pytest.mark.parametrize("inputs", [130, 1536])
def test_a_row_is_the_same_beside_any_others(inputs):
    torch.manual_seed(0)
    matrix = pack(torch.randn(70, inputs))
    x = torch.randn(300, inputs)
    whole = multiply(x, matrix, STORE)
    for rows in (1, 2, 5, 8, 29, 257):
        assert torch.equal(multiply(x[:rows], matrix, STORE), whole[:rows])


def test_a_product_is_the_same_by_any_number_of_threads():
    torch.manual_seed(0)
    matrix = pack(torch.randn(100, 130))
    for rows in (1, 15, 300):
        x = torch.randn(rows, 130)
        one = multiply(x, matrix, STORE)
        assert all(torch.equal(multiply(x, matrix, STORE, threads=t), one) for t in (2, 3, 8))


def test_a_row_that_is_not_finite_stays_alone():
    torch.manual_seed(0)
    weight = torch.randn(40, 64)
    for rows in (2, 14, 30):
        x = torch.randn(rows, 64)
        sound = multiply(x, pack(weight), STORE)
        x[1, 5] = float("nan")
        got = multiply(x, pack(weight), STORE)
        assert got[1].isnan().all()
        others = torch.arange(rows) != 1
        assert torch.equal(got[others], sound[others])
