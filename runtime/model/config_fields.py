"""Which fields of a Hugging Face `config.json` are read, which do nothing, and which are refused.

`check_fields` is called by `spec.py` before it reads anything: a field that would change the
model's output, and that nothing here honours, must not be passed over in silence.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ramet.runtime.errors import InvalidArgument, UnsupportedFeature

FAMILY_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {
        "num_key_value_heads": None,
        "max_position_embeddings": 2048,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "mistral": {
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "qwen2": {
        "num_key_value_heads": 32,
        "max_position_embeddings": 32768,
        "use_sliding_window": False,
        "sliding_window": 4096,
        "max_window_layers": 28,
    },
    "qwen3": {
        "num_key_value_heads": 32,
        "max_position_embeddings": 32768,
        "head_dim": 128,
        "use_sliding_window": False,
        "sliding_window": 4096,
        "max_window_layers": 28,
    },
}
"""The supported families, with what transformers assumes where the config is silent."""

_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}

_HONOURED = frozenset(
    [
        "model_type",
        "architectures",
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "max_position_embeddings",
        "original_max_position_embeddings",
        "rms_norm_eps",
        "rope_theta",
        "rope_scaling",
        "rope_parameters",
        "tie_word_embeddings",
        "bos_token_id",
        "eos_token_id",
        "dtype",
        "torch_dtype",
    ]
)
_HONOURED_WINDOWS = {
    "llama": frozenset[str](),
    "mistral": frozenset({"sliding_window", "layer_types"}),
    "qwen2": frozenset(
        {"sliding_window", "layer_types", "use_sliding_window", "max_window_layers"}
    ),
    "qwen3": frozenset(
        {"sliding_window", "layer_types", "use_sliding_window", "max_window_layers"}
    ),
}

_ONLY: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "rope_interleaved": (False,),
    "partial_rotary_factor": (1.0,),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "chunk_size_feed_forward": (0,),
    "attention_multiplier": (1.0,),
    "embedding_multiplier": (1.0,),
    "residual_multiplier": (1.0,),
    "logits_scaling": (1.0,),
}
"""Fields that are known and have one meaning here; None is always allowed."""

_HARMLESS = frozenset(
    [
        "transformers_version",
        "_name_or_path",
        "name_or_path",
        "_commit_hash",
        "use_cache",
        "pretraining_tp",
        "initializer_range",
        "attention_dropout",
        "hidden_dropout",
        "resid_pdrop",
        "pad_token_id",
        "sep_token_id",
        "cls_token_id",
        "decoder_start_token_id",
        "tokenizer_class",
        "is_decoder",
        "is_llama_config",
        "transformers.js_config",
        "task_specific_params",
        "return_dict",
        "output_attentions",
        "output_hidden_states",
        "_attn_implementation",
        "attn_implementation",
        "unsloth_version",
        "unsloth_fixed",
        "use_bfloat16",
        "torchscript",
        "tie_encoder_decoder",
        "id2label",
        "label2id",
        "num_labels",
        "finetuning_task",
        "max_length",
        "min_length",
        "do_sample",
        "early_stopping",
        "num_beams",
        "num_beam_groups",
        "diversity_penalty",
        "temperature",
        "top_k",
        "top_p",
        "typical_p",
        "repetition_penalty",
        "length_penalty",
        "no_repeat_ngram_size",
        "encoder_no_repeat_ngram_size",
        "num_return_sequences",
        "output_scores",
        "return_dict_in_generate",
        "remove_invalid_values",
    ]
)
"""Provenance, training, and defaults of `generate` that a call states for itself."""


def check_fields(config: Mapping[str, Any]) -> str:
    """The config's family, once every field of it is known to be honoured or to do nothing.

    Raises UnsupportedFeature naming the first field that is neither, with its value.
    """
    family = config.get("model_type")
    if not isinstance(family, str) or family not in FAMILY_DEFAULTS:
        raise UnsupportedFeature(
            f"model_type={family!r}: supported families are {', '.join(FAMILY_DEFAULTS)}"
        )
    architectures = config.get("architectures")
    if architectures and _ARCHITECTURES[family] not in architectures:
        raise UnsupportedFeature(
            f"architectures={architectures!r}: a {family} model must be {_ARCHITECTURES[family]}"
        )
    for name, value in config.items():
        _check_field(family, name, value)
    return family


def _check_field(family: str, name: str, value: Any) -> None:
    if name in _HONOURED or name in _HARMLESS or name in _HONOURED_WINDOWS[family]:
        return
    if value is None or value is False:
        return
    if isinstance(value, (str, list, dict, tuple)) and not value:
        return
    if name in _ONLY:
        if value in _ONLY[name]:
            return
        allowed = " or ".join(repr(each) for each in _ONLY[name])
        raise UnsupportedFeature(f"config field {name}={value!r}: only {allowed} is supported")
    raise UnsupportedFeature(
        f"config field {name}={value!r} is not honoured for model_type {family!r}"
    )


def require_keys(name: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise UnsupportedFeature if the dict field `name` has a key, not None, that isn't known."""
    for key, value in given.items():
        if key not in known and value is not None:
            raise UnsupportedFeature(f"config field {name}.{key}={value!r} is not honoured")


def integer(name: str, value: object, low: int = 1) -> int:
    """`value` if it is an int of at least `low`; else InvalidArgument naming the field."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InvalidArgument(f"config field {name}={value!r}: must be an int of at least {low}")
    return value


def number(name: str, value: object) -> float:
    """`value` as a float if it is finite and above 0; else InvalidArgument naming the field."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e30:
        raise InvalidArgument(f"config field {name}={value!r}: must be a finite number above 0")
    return float(value)
