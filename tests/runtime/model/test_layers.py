"""One layer against transformers' layer, given the same rows."""

from __future__ import annotations

import torch

from ramet.runtime.model.attention_plan import build_plan
from ramet.runtime.model.layers import DecoderLayer, Step, layer_tensors
from ramet.runtime.model.rope import inverse_frequencies, rope_rows
from ramet.runtime.model.spec import ModelSpec
from ramet.runtime.model.tiny import tiny_config, tiny_weights


def test_a_layer_equals_transformers(forest):
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    config = tiny_config()
    spec = ModelSpec.from_config(config)
    weights = tiny_weights(spec)
    theirs = LlamaDecoderLayer(LlamaConfig(**config, attn_implementation="eager"), 1)
    prefix = "model.layers.1."
    theirs.load_state_dict(
        {name.removeprefix(prefix): t for name, t in weights.items() if name.startswith(prefix)}
    )
    rows = 9
    x = torch.randn(rows, 64)
    positions = torch.arange(rows)
    cos, sin = rope_rows(positions, inverse_frequencies(spec.rope, 16), spec.rope, x.dtype)
    causal = torch.full((rows, rows), -torch.inf).triu(1)[None, None]
    with torch.no_grad():
        wanted = theirs(x[None], attention_mask=causal, position_embeddings=(cos[None], sin[None]))
    wanted = wanted[0] if isinstance(wanted, tuple) else wanted

    trees = forest(40)
    batch = trees.batch([(trees.grow(None, [0] * rows), 0, rows)])
    k_pool, v_pool = torch.full((2, 40, 2, 16), torch.nan)
    step = Step(torch.tensor(batch.slots), cos, sin, build_plan(batch))
    layer = DecoderLayer.from_weights(spec, 1, weights)
    stream, update = layer.forward(x, None, k_pool, v_pool, step)
    torch.testing.assert_close(stream + update, wanted.view(rows, 64), rtol=1e-5, atol=1e-5)
    written = ~k_pool.isnan().any(-1).any(-1)
    assert written.nonzero().flatten().tolist() == sorted(batch.slots)


def test_fused_matrices_keep_their_order():
    spec = ModelSpec.from_config({**tiny_config(), "model_type": "qwen2", "architectures": None})
    weights = tiny_weights(spec)
    layer = layer_tensors(spec, 0, weights)
    assert layer.qkv.shape == (128, 64)
    assert torch.equal(layer.qkv[64:96], weights["model.layers.0.self_attn.k_proj.weight"])
    assert layer.qkv_bias is not None
    assert torch.equal(layer.qkv_bias[96:], weights["model.layers.0.self_attn.v_proj.bias"])
    assert torch.equal(layer.gate_up[160:], weights["model.layers.0.mlp.up_proj.weight"])
