"""Configs as they are published, and what is made of each field."""

from __future__ import annotations

import math

import pytest

from ramet.runtime.errors import InvalidArgument, UnsupportedFeature
from ramet.runtime.model.spec import ModelSpec, RopeSpec

LLAMA2 = {
    "_name_or_path": "meta-llama/Llama-2-7b-hf",
    "architectures": ["LlamaForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 11008,
    "max_length": 4096,
    "max_position_embeddings": 4096,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "pad_token_id": 0,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "transformers_version": "4.31.0.dev0",
    "use_cache": True,
    "vocab_size": 32000,
}
LLAMA3 = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0.dev0",
    "use_cache": True,
    "vocab_size": 128256,
}
SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 576,
    "initializer_range": 0.041666666666666664,
    "intermediate_size": 1536,
    "is_llama_config": True,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "pad_token_id": 2,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_interleaved": False,
    "rope_scaling": None,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}},
    "transformers_version": "4.42.3",
    "use_cache": True,
    "vocab_size": 49152,
}
MISTRAL = {
    "architectures": ["MistralForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "model_type": "mistral",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.34.0.dev0",
    "use_cache": True,
    "vocab_size": 32000,
}
QWEN2_5 = {
    "architectures": ["Qwen2ForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "hidden_act": "silu",
    "hidden_size": 3584,
    "initializer_range": 0.02,
    "intermediate_size": 18944,
    "max_position_embeddings": 32768,
    "max_window_layers": 28,
    "model_type": "qwen2",
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.43.1",
    "use_cache": True,
    "use_mrope": False,
    "use_sliding_window": False,
    "vocab_size": 152064,
}
QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "max_window_layers": 28,
    "model_type": "qwen3",
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.51.0",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
SMALL = {**LLAMA2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}


def test_llama2():
    spec = ModelSpec.from_config(LLAMA2)
    assert (spec.family, spec.head_dim, spec.max_context) == ("llama", 128, 4096)
    assert spec.rope == RopeSpec(theta=10000.0)
    assert (spec.tied_embeddings, spec.qkv_bias, spec.qk_norm) == (False, False, False)
    assert (spec.bos_id, spec.eos_ids, spec.dtype) == (1, (2,), "float16")
    assert spec.windows == (None,) * 32


def test_llama3():
    spec = ModelSpec.from_config(LLAMA3, {"eos_token_id": [128009, 128001], "temperature": 0.6})
    assert spec.rope.kind == "llama3"
    assert (spec.rope.factor, spec.rope.original_context) == (32.0, 8192)
    assert spec.max_context == 131072
    assert spec.eos_ids == (128009, 128001)
    assert ModelSpec.from_config(LLAMA3, {}).eos_ids == (128001, 128008, 128009)


def test_smollm2():
    spec = ModelSpec.from_config(SMOLLM2)
    assert (spec.num_heads, spec.num_kv_heads, spec.head_dim) == (9, 3, 64)
    assert spec.tied_embeddings
    assert spec.rope.theta == 100000.0


def test_mistral():
    assert ModelSpec.from_config(MISTRAL).windows == (4096,) * 32
    newer = {**MISTRAL, "sliding_window": None, "rope_theta": 1000000.0, "head_dim": 128}
    assert ModelSpec.from_config(newer).windows == (None,) * 32


def test_qwen():
    spec = ModelSpec.from_config(QWEN2_5)
    assert (spec.qkv_bias, spec.qk_norm) == (True, False)
    assert spec.windows == (None,) * 28
    spec = ModelSpec.from_config(QWEN3)
    assert (spec.qkv_bias, spec.qk_norm, spec.head_dim) == (False, True, 128)
    windowed = {**QWEN2_5, "use_sliding_window": True, "max_window_layers": 20}
    assert ModelSpec.from_config(windowed).windows == (None,) * 20 + (131072,) * 8


def test_layer_types():
    kinds = ["full_attention"] * 27 + ["sliding_attention"]
    config = {**QWEN3, "use_sliding_window": True, "sliding_window": 7, "layer_types": kinds}
    assert ModelSpec.from_config(config).windows == (None,) * 27 + (7,)
    with pytest.raises(InvalidArgument, match="27 entries for 28"):
        ModelSpec.from_config({**config, "layer_types": kinds[1:]})
    with pytest.raises(UnsupportedFeature, match="chunked_attention"):
        ModelSpec.from_config({**config, "layer_types": ["chunked_attention"] * 28})
    with pytest.raises(UnsupportedFeature, match="no sliding_window"):
        ModelSpec.from_config({**QWEN3, "layer_types": kinds})
    with pytest.raises(UnsupportedFeature, match="one kind of attention"):
        ModelSpec.from_config({**MISTRAL, "layer_types": ["full_attention"] * 32})


def test_new_style_rope_parameters():
    config = {k: v for k, v in LLAMA3.items() if k not in ("rope_scaling", "rope_theta")}
    config["rope_parameters"] = {**LLAMA3["rope_scaling"], "rope_theta": 500000.0}
    config["dtype"] = config.pop("torch_dtype")
    assert ModelSpec.from_config(config) == ModelSpec.from_config(LLAMA3)
    plain = {**LLAMA2, "rope_parameters": {"rope_type": "default", "rope_theta": 777.0}}
    assert ModelSpec.from_config(plain).rope == RopeSpec(theta=777.0)


def test_yarn():
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    spec = ModelSpec.from_config({**QWEN2_5, "rope_scaling": yarn})
    assert spec.max_context == 131072
    assert spec.rope.attention_factor == pytest.approx(0.1 * math.log(4) + 1)
    scales = {**yarn, "mscale": 1.0, "mscale_all_dim": 1.0}
    assert ModelSpec.from_config({**QWEN2_5, "rope_scaling": scales}).rope.attention_factor == 1.0
    given = {"type": "yarn", "factor": 2.0, "attention_factor": 1.5}
    spec = ModelSpec.from_config({**QWEN2_5, "rope_scaling": given})
    assert (spec.rope.attention_factor, spec.max_context) == (1.5, 32768)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_type", "gpt2"),
        ("model_type", None),
        ("architectures", ["LlamaForSequenceClassification"]),
        ("attention_bias", True),
        ("mlp_bias", True),
        ("hidden_act", "gelu"),
        ("rope_interleaved", True),
        ("quantization_config", {"quant_method": "gptq"}),
        ("num_local_experts", 8),
        ("attn_logit_softcapping", 50.0),
        ("partial_rotary_factor", 0.5),
        ("sliding_window", 4096),
        ("use_sliding_window", True),
        ("some_new_field", "on"),
        ("logits_scaling", 8.0),
        ("rope_scaling", {"type": "dynamic", "factor": 2.0}),
        ("rope_scaling", {"rope_type": "longrope", "short_factor": [1.0]}),
        ("rope_scaling", {"type": "linear", "factor": 2.0, "surprise": 1}),
        ("rope_parameters", {"full_attention": {"rope_type": "default"}}),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(field, value):
    with pytest.raises(UnsupportedFeature) as caught:
        ModelSpec.from_config({**SMALL, field: value})
    assert field.replace("parameters", "scaling") in str(caught.value)
    shown = next(iter(value)) if isinstance(value, dict) and "type" not in value else value
    if not isinstance(shown, dict) and field != "rope_scaling":
        assert str(shown) in str(caught.value)


@pytest.mark.parametrize("value", [None, False, "", [], {}])
def test_unknown_fields_that_say_nothing_are_ignored(value):
    assert ModelSpec.from_config({**SMALL, "some_new_field": value}).num_heads == 4


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_size", None),
        ("hidden_size", 65),
        ("vocab_size", 0),
        ("num_hidden_layers", "2"),
        ("num_attention_heads", True),
        ("num_key_value_heads", 3),
        ("head_dim", 15),
        ("rms_norm_eps", -1.0),
        ("rms_norm_eps", float("nan")),
        ("max_position_embeddings", 1.5),
        ("eos_token_id", [2, -1]),
        ("bos_token_id", "a"),
        ("rope_theta", 0),
        ("rope_scaling", "linear"),
        ("rope_scaling", {"type": "linear"}),
        ("rope_scaling", {"type": "llama3", "factor": 2.0}),
    ],
)
def test_nonsense_is_refused_by_name(field, value):
    with pytest.raises(InvalidArgument, match=field):
        ModelSpec.from_config({**SMALL, field: value})


def test_a_missing_field_is_named():
    config = dict(SMALL)
    del config["intermediate_size"]
    with pytest.raises(InvalidArgument, match="intermediate_size=None"):
        ModelSpec.from_config(config)


def test_weight_shapes():
    shapes = ModelSpec.from_config(QWEN3).weight_shapes()
    assert len(shapes) == 2 + 28 * 11
    assert shapes["model.layers.27.self_attn.q_proj.weight"] == (2048, 1024)
    assert shapes["model.layers.0.self_attn.k_norm.weight"] == (128,)
    shapes = ModelSpec.from_config(QWEN2_5).weight_shapes()
    assert shapes["lm_head.weight"] == (152064, 3584)
    assert shapes["model.layers.3.self_attn.v_proj.bias"] == (512,)
