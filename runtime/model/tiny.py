"""The `tiny` model: random weights and no file, for tests that take milliseconds.

Its vocabulary is the byte tokenizer's: 256 bytes, then `<|endoftext|>`, `<|im_start|>` and
`<|im_end|>`.
"""

from __future__ import annotations

from typing import Any

import torch

from ramet.runtime.model.spec import ModelSpec

TINY_VOCAB_SIZE = 259


def tiny_config(vocab_size: int = TINY_VOCAB_SIZE) -> dict[str, Any]:
    """The `config.json` of the tiny model: a Llama of two layers with a context of 16,384."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 16384,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": [258, 256],
        "dtype": "float32",
    }


def tiny_weights(
    spec: ModelSpec,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    seed: int = 0,
) -> dict[str, torch.Tensor]:
    """Seeded random weights for any spec, by their Hugging Face names.

    Drawn in float64 and then cast, so that every dtype holds the same model. The scales keep
    attention sharp enough to depend on the context, and spread the logits by a few units, so that
    a greedy token is rarely decided by rounding.
    """
    generator = torch.Generator().manual_seed(seed)
    weights: dict[str, torch.Tensor] = {}
    for name, shape in spec.weight_shapes().items():
        draw = torch.randn(shape, generator=generator, dtype=torch.float64)
        if name.endswith("norm.weight"):
            draw = 1.0 + 0.1 * draw
        elif name.endswith(".bias"):
            draw = 0.2 * draw
        elif name in ("model.embed_tokens.weight", "lm_head.weight"):
            draw = draw * (2.5 / shape[1] ** 0.5)
        else:
            draw = draw * (1.2 / shape[1] ** 0.5)
        weights[name] = draw.to(device=device, dtype=dtype)
    return weights
