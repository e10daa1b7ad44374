"""The references against the textbook, written another way."""

from __future__ import annotations

import pytest
import torch

from ramet.kernels import reference


def naive(q, k_pool, v_pool, items, row_pos, scale, window=None):
    """Row by row: gather every visible key, one softmax."""
    group = q.shape[1] // k_pool.shape[1]
    out = torch.zeros_like(q)
    for row, position in enumerate(row_pos):
        slots = [
            slot + j
            for slot, length, first, last, key_pos in items
            if first <= row < last
            for j in range(length)
            if key_pos + j <= position and (window is None or key_pos + j > position - window)
        ]
        for head in range(q.shape[1]):
            k, v = k_pool[slots, head // group], v_pool[slots, head // group]
            out[row, head] = torch.softmax(k @ q[row, head] * scale, 0) @ v
    return out


ITEMS = [(50, 9, 0, 6, 0), (7, 4, 0, 3, 9), (30, 2, 1, 3, 13), (90, 3, 3, 6, 9), (0, 0, 0, 6, 0)]
ROW_POS = [12, 13, 14, 9, 10, 11]


@pytest.mark.parametrize("window", [None, 3, 7])
def test_tree_attention_is_a_softmax_over_the_path(make_plan, window):
    torch.manual_seed(0)
    q = torch.randn(6, 4, 8, dtype=torch.float64)
    k, v = torch.randn(2, 100, 2, 8, dtype=torch.float64)
    got = reference.tree_attention(q, k, v, make_plan(ITEMS, ROW_POS), 0.4, window)
    wanted = naive(q, k, v, ITEMS, ROW_POS, 0.4, window)
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


def test_tree_attention_counts_reads(make_plan):
    gathered = []
    q, k = torch.randn(6, 2, 4), torch.randn(100, 1, 4)
    reference.tree_attention(q, k, k, make_plan(ITEMS, ROW_POS, gathered), 1.0)
    assert gathered == [(50, 9), (7, 4), (30, 2), (90, 3)]


def test_a_row_without_keys_is_refused(make_plan):
    q, k = torch.randn(2, 2, 4), torch.randn(8, 1, 4)
    with pytest.raises(ValueError, match="sees no key"):
        reference.tree_attention(q, k, k, make_plan([(0, 3, 0, 1, 0)], [2, 3]), 1.0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_rms_norm(dtype):
    x = torch.randn(3, 16).to(dtype)
    weight = torch.randn(16).to(dtype)
    wide = x.double()
    wanted = wide / (wide.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    got = reference.rms_norm(x, weight, 1e-5)
    assert got.dtype == dtype
    tolerance = {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 1e-2}[dtype]
    torch.testing.assert_close(got.double(), wanted, rtol=tolerance, atol=tolerance)


def test_rope_turns_pairs():
    angles = torch.tensor([[0.3, 1.1], [2.0, -0.5]], dtype=torch.float64)
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    cos, sin = torch.cat((angles.cos(),) * 2, 1), torch.cat((angles.sin(),) * 2, 1)
    pairs = (
        torch.complex(x[..., :2], x[..., 2:])
        * torch.polar(torch.ones_like(angles), angles)[:, None]
    )
    wanted = torch.cat((pairs.real, pairs.imag), -1)
    torch.testing.assert_close(reference.rope(x, cos, sin), wanted)


def test_write_kv_and_gated_mlp():
    k_pool, v_pool = torch.zeros(2, 5, 1, 2)
    k, v = torch.randn(2, 2, 1, 2)
    reference.write_kv(k_pool, v_pool, k, v, torch.tensor([4, 1]))
    assert torch.equal(k_pool[[4, 1]], k)
    assert torch.equal(v_pool[[4, 1]], v)
    assert k_pool[[0, 2, 3]].abs().sum() == 0
    x, gate, up, down = torch.randn(3, 4), torch.randn(6, 4), torch.randn(6, 4), torch.randn(4, 6)
    inner = x @ gate.T * torch.sigmoid(x @ gate.T) * (x @ up.T)
    torch.testing.assert_close(reference.gated_mlp(x, torch.cat((gate, up)), down), inner @ down.T)


def test_wide_dtype():
    assert reference.wide_dtype(torch.bfloat16) == torch.float32
    assert reference.wide_dtype(torch.float64) == torch.float64


@pytest.mark.parametrize("vocab", [1, 31, 32, 33, 100])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_apply_bitmask(vocab, dtype):
    generator = torch.Generator().manual_seed(vocab)
    keep = torch.rand(3, vocab, generator=generator) < 0.5
    words = torch.zeros(3, (vocab + 31) // 32, dtype=torch.int64)
    for row, token in keep.nonzero().tolist():
        words[row, token // 32] |= 1 << token % 32
    bitmask = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
    logits = torch.randn(3, vocab, generator=generator).to(dtype)
    wanted = torch.where(keep, logits, torch.tensor(float("-inf"), dtype=dtype))
    reference.apply_bitmask(logits, bitmask)
    assert torch.equal(logits, wanted)


def test_apply_bitmask_refuses_another_shape():
    with pytest.raises(ValueError, match="bitmask"):
        reference.apply_bitmask(torch.zeros(2, 33), torch.zeros(2, 1, dtype=torch.int32))
    with pytest.raises(ValueError, match="bitmask"):
        reference.apply_bitmask(torch.zeros(1, 32), torch.zeros(1, 1, dtype=torch.int64))
