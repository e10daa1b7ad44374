"""Frequencies bit-equal to transformers', and its cos and sin rows."""

from __future__ import annotations

import torch

from ramet.runtime.model.rope import inverse_frequencies, rope_rows
from ramet.runtime.model.spec import ModelSpec, RopeSpec


def test_rows_equal_transformers(family_config):
    from transformers import AutoConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    spec = ModelSpec.from_config(family_config)
    name = family_config.pop("model_type")
    theirs = LlamaRotaryEmbedding(AutoConfig.for_model(name, **family_config))
    frequencies = inverse_frequencies(spec.rope, spec.head_dim)
    assert torch.equal(frequencies, theirs.inv_freq)
    positions = torch.tensor([0, 1, 63, 200, 255])
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        cos, sin = rope_rows(positions, frequencies, spec.rope, dtype)
        wanted = theirs(torch.zeros(1, dtype=dtype), positions[None])
        assert torch.equal(cos, wanted[0][0])
        assert torch.equal(sin, wanted[1][0])


def test_linear_divides_the_angle():
    plain, scaled = RopeSpec(), RopeSpec("linear", factor=4.0)
    ratio = inverse_frequencies(plain, 8) / inverse_frequencies(scaled, 8)
    assert torch.equal(ratio, torch.full((4,), 4.0))
