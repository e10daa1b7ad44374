"""What is done to single rows, against the references."""

from __future__ import annotations

import pytest
import torch

from ramet.kernels import reference
from ramet.kernels.cpu.fused import rows as rows_file
from ramet.kernels.cpu.fused.jit import jit
from ramet.kernels.cpu.fused.lanes import DOT
from ramet.kernels.cpu.fused.tile import PAIR
from ramet.kernels.cpu.fused.weights import pack

ACTIVATIONS = torch.bfloat16 if DOT else torch.float32
EPS = 1e-5
SENTINEL = 77.0


@jit
def _embed(x, values, scales, hidden, token):
    rows_file.embed(x, values, scales, hidden, token)


@jit
def _norm(x, weight, size, eps, out):
    rows_file.norm(x, weight, size, eps, out)


@jit
def _query_row(qkv, heads, dim, padded, group, weight, eps, cos, sin, q, stride):
    rows_file.query_row(qkv, heads, dim, padded, group, weight, eps, cos, sin, q, stride)


@jit
def _key_value_row(
    qkv, heads, kv_heads, dim, padded, weight, eps, cos, sin, k, v, blocks, slot
):  # fmt: skip
    rows_file.key_value_row(
        qkv, heads, kv_heads, dim, padded, weight, eps, cos, sin, k, v, blocks, slot
    )


def one_bfloat16(got, wanted):
    """The same, or the next bfloat16."""
    torch.testing.assert_close(got.float(), wanted.float(), rtol=2**-7, atol=1e-6)
    same = (got.float() == wanted.bfloat16().float()).float().mean()
    assert got.numel() < 200 or same > 0.98


@pytest.mark.parametrize("vocab", [1, 16, 17, 61, 259])
def test_embed(vocab):
    torch.manual_seed(vocab)
    for hidden in (1, 2, 30, 64, 66, 130):
        table = torch.randn(vocab, hidden)
        values, scales = reference.quantise(table)
        matrix = pack(table)
        for token in {0, 1 % vocab, 15 % vocab, 16 % vocab, vocab - 1}:
            x = torch.full((hidden + 1,), SENTINEL)
            _embed(x.data_ptr(), matrix.values.data_ptr(), matrix.scales.data_ptr(), hidden, token)
            wanted = reference.hadamard(values[token].float() * scales[token])[:hidden]
            assert torch.equal(x[:hidden], wanted)
            assert x[hidden] == SENTINEL


@pytest.mark.parametrize("size", [2, 16, 30, 64, 130, 577])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0, 0.0])
def test_norms(size, scale):
    torch.manual_seed(size)
    x, weight = torch.randn(size) * scale, torch.randn(size)
    wanted = reference.rms_norm(x.unsqueeze(0), weight, EPS)[0]
    out = torch.full((size + 1,), SENTINEL)
    _norm(x.data_ptr(), weight.data_ptr(), size, EPS, out.data_ptr())
    torch.testing.assert_close(out[:size], wanted, rtol=1e-5, atol=1e-6)
    assert out[size] == SENTINEL


def test_norm_of_what_is_not_finite():
    for value in (float("nan"), float("inf"), 3e38):
        x, weight = torch.ones(64), torch.ones(64)
        x[7] = value
        out = torch.zeros(64)
        _norm(x.data_ptr(), weight.data_ptr(), 64, EPS, out.data_ptr())
        wanted = reference.rms_norm(x.unsqueeze(0), weight, EPS)[0]
        torch.testing.assert_close(out, wanted, equal_nan=True)


def turned(x, weight, cos, sin):
    """Heads `[heads, dim]` after norm and rotary embedding."""
    if weight is not None:
        x = reference.rms_norm(x, weight, EPS)
    both = torch.cat((cos, cos)).unsqueeze(0), torch.cat((sin, sin)).unsqueeze(0)
    return reference.rope(x.unsqueeze(0), *both)[0]


SIZES = [(4, 2, 6), (9, 3, 8), (4, 4, 16), (3, 1, 30), (8, 2, 64), (4, 1, 80), (2, 1, 128)]


@pytest.mark.parametrize("with_norm", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), SIZES)
def test_queries(heads, kv_heads, dim, with_norm):
    torch.manual_seed(dim)
    qkv = torch.randn((heads + 2 * kv_heads) * dim)
    weight = torch.rand(dim) + 0.5 if with_norm else None
    angle = torch.rand(dim // 2) * 6
    wanted = turned(qkv[: heads * dim].view(heads, dim), weight, angle.cos(), angle.sin())
    group, padded, apart = heads // kv_heads, -(-dim // 32) * 32, 5
    out = torch.full((kv_heads, group + apart, padded), SENTINEL, dtype=ACTIVATIONS)
    rest = qkv[heads * dim :].clone()
    cos, sin = angle.cos(), angle.sin()
    _query_row(
        qkv.data_ptr(), heads, dim, padded, group, 0 if weight is None else weight.data_ptr(), EPS,
        cos.data_ptr(), sin.data_ptr(), out.data_ptr(), out.stride(0) * out.itemsize,
    )  # fmt: skip
    one_bfloat16(out[:, :group, :dim].reshape(heads, dim), wanted)
    assert (out[:, group:] == SENTINEL).all()
    assert (out[:, :, dim:] == SENTINEL).all()
    assert torch.equal(qkv[heads * dim :], rest)


def at_slot(keys, values, slot, dim):
    """Keys and values `[kv_heads, dim]` of a slot, from the pool's layout."""
    kv_heads, blocks = keys.shape[0], keys.shape[1]
    k = keys[:, slot // 16, :, slot % 16].reshape(kv_heads, -1)[:, :dim]
    v = values.view(kv_heads, -1, blocks * 16 // PAIR, 16, PAIR)
    return k, v[:, :, slot // PAIR, :, slot % PAIR].reshape(kv_heads, -1)[:, :dim]


@pytest.mark.parametrize("with_norm", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), SIZES)
def test_keys_and_values(heads, kv_heads, dim, with_norm):
    torch.manual_seed(dim)
    weight = torch.rand(dim) + 0.5 if with_norm else None
    padded, blocks = -(-dim // 32) * 32, 3
    keys = torch.full((kv_heads, blocks, padded // PAIR, 16, PAIR), SENTINEL).bfloat16()
    values = torch.full((kv_heads, padded * blocks * 16), SENTINEL).bfloat16()
    found = []
    for slot in (0, 1, 15, 16, 31, 47):
        qkv = torch.randn((heads + 2 * kv_heads) * dim)
        angle = torch.rand(dim // 2) * 6
        cos, sin = angle.cos(), angle.sin()
        k, v = qkv[heads * dim :].view(2, kv_heads, dim).clone()
        found.append((slot, turned(k, weight, cos, sin), v))
        _key_value_row(
            qkv.data_ptr(), heads, kv_heads, dim, padded,
            0 if weight is None else weight.data_ptr(), EPS, cos.data_ptr(), sin.data_ptr(),
            keys.data_ptr(), values.data_ptr(), blocks, slot,
        )  # fmt: skip
    for slot, k, v in found:
        got_k, got_v = at_slot(keys, values, slot, dim)
        one_bfloat16(got_k, k)
        assert torch.equal(got_v, v.bfloat16())
    # Nothing else was written.
    count = len(found) * kv_heads * dim
    assert int((keys != SENTINEL).sum()) <= count
    assert int((values != SENTINEL).sum()) <= count


def test_a_value_that_is_not_finite_marks_its_keys():
    qkv = torch.ones(3 * 16)
    qkv[40] = float("inf")
    cos, sin = torch.ones(8), torch.zeros(8)
    keys = torch.zeros(1, 1, 32 // PAIR, 16, PAIR).bfloat16()
    values = torch.full((1, 32 * 16), SENTINEL).bfloat16()
    _key_value_row(
        qkv.data_ptr(), 1, 1, 16, 32, 0, EPS, cos.data_ptr(), sin.data_ptr(), keys.data_ptr(),
        values.data_ptr(), 1, 3,
    )  # fmt: skip
    k, v = at_slot(keys, values, 3, 16)
    assert k.isnan().all()
    assert not v.any()
