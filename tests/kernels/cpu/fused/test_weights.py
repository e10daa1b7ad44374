"""Packed weights: the reference's integers and scales, bit for bit, wherever they lie."""

from __future__ import annotations

import pytest
import torch

from ramet.kernels import reference
from ramet.kernels.cpu.fused.tile import PANEL
from ramet.kernels.cpu.fused.weights import pack, pack_gated


def unpacked(matrix):
    """The turned matrix, int8 `[16 * columns, inputs]`, inputs filled up, and the scales."""
    columns, zero = len(matrix.values), 128 if matrix.values.dtype == torch.uint8 else 0
    values = matrix.values.transpose(1, 2).reshape(16 * columns, -1).to(torch.int16) - zero
    return values.to(torch.int8), matrix.scales


def equal_to_reference(weight):
    wanted, scales = reference.quantise(weight)
    outputs = len(weight)
    matrix = pack(weight)
    got, got_scales = unpacked(matrix)
    assert (matrix.outputs, matrix.inputs) == tuple(weight.shape)
    assert len(got) == len(got_scales) == -(-outputs // PANEL) * PANEL
    assert torch.equal(got[:outputs], wanted)
    assert torch.equal(got_scales[:outputs], scales)
    assert not got[outputs:].any()
    assert not got_scales[outputs:].any()
    products = reference.hadamard(wanted.float() * scales.unsqueeze(1))
    assert torch.equal(matrix.dequantised()[:outputs], products[:, : weight.shape[1]])
    # A turned row has the length of the row, and no value above it.
    step = weight.float().norm(dim=1) / 127
    assert bool(((matrix.dequantised()[:outputs] - weight).norm(dim=1) <= 6 * step).all())


@pytest.mark.parametrize("outputs", [1, 2, 15, 16, 17, 31, 32, 33, 48, 64, 65, 100])
def test_pack(outputs):
    torch.manual_seed(outputs)
    for inputs in (1, 2, 30, 63, 64, 65, 600):
        equal_to_reference(torch.randn(outputs, inputs))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes_and_strides(dtype):
    torch.manual_seed(0)
    equal_to_reference(torch.randn(20, 40).to(dtype))
    equal_to_reference(torch.randn(40, 20).to(dtype).t())
    equal_to_reference(torch.randn(40, 80).to(dtype)[::2, ::2])


def test_ties_and_ends_are_rounded_as_by_the_reference():
    halves = torch.arange(-254, 255).float() / 2
    for scale in (1.0, 0.25, 3.0, 1e-30, 1e30):
        equal_to_reference(torch.stack([halves[:508], halves[1:]]) * scale)


def test_many_magnitudes():
    torch.manual_seed(1)
    exponents = torch.linspace(-36, 36, 100).unsqueeze(1)
    equal_to_reference((torch.rand(100, 64) * 2 - 1) * 10**exponents)


def test_a_row_of_zeros_stays_zero():
    weight = torch.randn(35, 10)
    weight[[0, 17, 34]] = 0
    equal_to_reference(weight)
    assert pack(weight).scales[17] == 0
    assert not unpacked(pack(torch.zeros(3, 4)))[0].any()


def test_one_huge_value():
    weight = torch.randn(18, 10)
    weight[3, 4], weight[17, 0] = 3.4e38, -3.4e38
    equal_to_reference(weight)
    values, scales = unpacked(pack(weight))
    assert values[3].abs().tolist() == [127] * 64
    assert torch.isfinite(scales).all()


@pytest.mark.parametrize("size", [1e-37, 1e-39, 1e-44])
def test_rows_next_to_nothing_are_next_to_nothing(size):
    weight = torch.linspace(-1, 1, 20).repeat(3, 1) * size
    values, scales = unpacked(pack(weight))
    product = values.float() * scales.unsqueeze(1)
    assert torch.isfinite(product).all()
    assert float(product.abs().max()) <= 8.8 * size


@pytest.mark.parametrize("inner", [1, 5, 16, 17, 31, 48, 50])
def test_pack_gated(inner):
    torch.manual_seed(inner)
    weight = torch.randn(2 * inner, 34)
    wanted, wanted_scales = reference.quantise(weight)
    matrix = pack_gated(weight)
    assert (matrix.outputs, matrix.inputs) == (2 * inner, 34)
    blocks = -(-inner // 16)
    assert len(matrix.values) == 2 * blocks
    values, scales = unpacked(matrix)
    values, scales = values.view(blocks, 2, 16, 64), scales.view(blocks, 2, 16)
    for half in range(2):
        rows = slice(half * inner, (half + 1) * inner)
        got, got_scales = values[:, half].reshape(-1, 64), scales[:, half].reshape(-1)
        assert torch.equal(got[:inner], wanted[rows])
        assert torch.equal(got_scales[:inner], wanted_scales[rows])
        assert not got[inner:].any()
        assert not got_scales[inner:].any()


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("packing", [pack, pack_gated])
def test_what_is_not_finite_is_refused_by_name(packing, broken):
    for place in ((0, 0), (19, 7), (9, 3)):
        weight = torch.randn(20, 8)
        weight[place] = broken
        with pytest.raises(ValueError, match=r"^layers\.3\.up: not all of its values are finite"):
            packing(weight, "layers.3.up")
    # Too large for float32, which the values are first rounded to.
    with pytest.raises(ValueError, match="finite"):
        packing(torch.full((4, 4), 1e300, dtype=torch.float64))


def test_values_that_turning_makes_too_large_are_refused():
    with pytest.raises(ValueError, match=r"^head: .*finite"):
        pack(torch.full((4, 64), 3e38), "head")
