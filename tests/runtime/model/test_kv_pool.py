import torch

from ramet.runtime.model.kv_pool import KVPool
from ramet.runtime.model.spec import ModelSpec
from ramet.runtime.model.tiny import tiny_config


def test_shapes_and_bytes():
    spec = ModelSpec.from_config(tiny_config())
    pool = KVPool(spec, 48, torch.bfloat16, "cpu")
    assert len(pool.k) == len(pool.v) == 2
    assert {tensor.shape for tensor in (*pool.k, *pool.v)} == {(48, 2, 16)}
    assert pool.hidden.shape == (48, 64)
    tensors = (*pool.k, *pool.v, pool.hidden)
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    assert total == 48 * KVPool.bytes_per_token(spec, torch.bfloat16)
    assert {tensor.dtype for tensor in tensors} == {torch.bfloat16}
