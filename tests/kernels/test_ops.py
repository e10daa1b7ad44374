"""Every operator behind the door equals its reference."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from ramet.kernels import ops, reference


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_rms_norm_equals_reference(dtype):
    x, weight = torch.randn(5, 24).to(dtype), torch.randn(24).to(dtype)
    got = ops.rms_norm(x, weight, 1e-3)
    assert got.dtype == dtype
    torch.testing.assert_close(got, reference.rms_norm(x, weight, 1e-3))


def test_add_rms_norm_equals_reference():
    x, update, weight = torch.randn(5, 24), torch.randn(5, 24), torch.randn(24)
    total, normed = ops.add_rms_norm(x, update, weight, 1e-3)
    assert torch.equal(total, x + update)
    torch.testing.assert_close(normed, reference.rms_norm(x + update, weight, 1e-3))


def test_rows_and_embed():
    table, index = torch.randn(9, 4), torch.tensor([8, 0, 8])
    assert torch.equal(ops.embed(index, table), table[index])
    assert torch.equal(ops.take_rows(table, index), table[index])


def test_rope_write_equals_reference():
    pools = [torch.zeros(2, 7, 2, 6) for _ in range(2)]
    q, k, v = torch.randn(3, 4, 6), torch.randn(3, 2, 6), torch.randn(3, 2, 6)
    cos, sin = torch.randn(3, 6), torch.randn(3, 6)
    slots = torch.tensor([6, 2, 3])
    got = ops.rope_write(q, k, v, cos, sin, *pools[0], slots)
    reference.write_kv(*pools[1], reference.rope(k, cos, sin), v, slots)
    assert torch.equal(*pools)
    torch.testing.assert_close(got, reference.rope(q, cos, sin))


@pytest.mark.parametrize("rows", [1, 2, 64, 65])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_linear_and_gated_mlp_equal_reference(rows, dtype):
    torch.manual_seed(rows)
    x, weight, bias = (torch.randn(size).to(dtype) for size in ((rows, 8), (12, 8), (12,)))
    down = torch.randn(8, 6).to(dtype)
    for each in (None, bias):
        wanted = torch.nn.functional.linear(x, weight, each)
        torch.testing.assert_close(ops.linear(x, weight, each), wanted)
    wanted = reference.gated_mlp(x, weight, down)
    torch.testing.assert_close(ops.gated_mlp(x, weight, down), wanted)
    assert ops.linear(x, weight).is_contiguous()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_head_logits_keep_float32(dtype):
    hidden, weight = torch.randn(3, 32).to(dtype), torch.randn(50, 32).to(dtype)
    got = ops.head_logits(hidden, ops.head_weight(weight))
    assert got.dtype == reference.wide_dtype(dtype)
    wanted = (hidden.double() @ weight.double().T).to(got.dtype)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


def test_tree_attention_equals_reference(make_plan):
    plan = make_plan([(2, 5, 0, 3, 0), (9, 1, 1, 2, 5)], [4, 5, 2])
    q, k, v = torch.randn(3, 4, 8), torch.randn(12, 2, 8), torch.randn(12, 2, 8)
    torch.testing.assert_close(
        ops.tree_attention(q, k, v, plan, 0.3), reference.tree_attention(q, k, v, plan, 0.3)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_apply_bitmask_equals_reference(dtype):
    logits = torch.randn(2, 70).to(dtype)
    logits[0, :5] = torch.tensor([float("inf"), -float("inf"), 3e38, -3e38, 0.0])
    bitmask = torch.randint(-(2**31), 2**31 - 1, (2, 3), dtype=torch.int32)
    wanted = logits.clone()
    reference.apply_bitmask(wanted, bitmask)
    ops.apply_bitmask(logits, bitmask)
    assert torch.equal(logits, wanted)
    assert torch.isinf(logits).any()


def test_a_cpu_loads_no_triton():
    code = (
        "import sys, torch; from ramet.kernels import ops; "
        "ops.rms_norm(torch.ones(1, 4), torch.ones(4), 1e-5); "
        "print(*(name for name in sys.modules if name.startswith(('triton', 'ramet.kernels.gpu'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
