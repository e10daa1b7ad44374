"""From a `.gguf` file to a Hugging Face model folder; never imports torch.

Called once per file by `builtin_model`. The folder has `config.json`, `generation_config.json`,
`tokenizer.json`, `tokenizer_config.json` and float32 weights that are exactly the dequantised
tensors of the file, in shards of bounded size.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from ramet.runtime.errors import InvalidArgument, UnsupportedFeature
from ramet.runtime.source import gguf_file
from ramet.runtime.source.gguf_file import Metadata, Tensor
from ramet.runtime.source.gguf_tokenizer import end_ids, tokenizer_files

SHARD_BYTES = 2 << 30
"""Most bytes of one weight file, and about the memory that a conversion holds."""

FloatArray = NDArray[np.float32]

_CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_ARCHITECTURES = ("llama", "qwen2", "qwen3")  # Mistral models call themselves llama
_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ROPE_FACTORS = "rope_freqs.weight"
_HONOURED = frozenset(
    (
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "vocab_size",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.layer_norm_rms_epsilon",
        "attention.sliding_window",
        "rope.dimension_count",
        "rope.freq_base",
        "rope.scaling.type",
        "rope.scaling.factor",
        "rope.scaling.original_context_length",
        "rope.scaling.finetuned",
    )
)


def convert(
    source: Path, folder: Path, on_tensor: Callable[[int, int], None] | None = None
) -> None:
    """Write the model in `source` into the existing, empty `folder`.

    `on_tensor(done, total)` is called after each tensor. Raises InvalidArgument for a file that is
    not a whole GGUF model, UnsupportedFeature naming what it has that is not supported.
    """
    try:
        metadata, tensors = gguf_file.read(source)
    except ValueError as error:
        raise InvalidArgument(f"is not a readable GGUF file: {error}") from error
    config = model_config(metadata, tensors)
    ids = {key: config[key] for key in config if key.endswith("_token_id")}
    documents = {
        "config.json": config,
        "generation_config.json": ids,
        **tokenizer_files(metadata),
    }
    _write_weights(tensors, config, metadata, folder, on_tensor or (lambda done, total: None))
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")


def model_config(metadata: Metadata, tensors: Mapping[str, Tensor]) -> Metadata:
    """The `config.json` of a file's metadata and its tensors by name.

    Raises UnsupportedFeature for an architecture or a key of it that is not honoured.
    """
    architecture = metadata.get("general.architecture")
    if architecture not in _ARCHITECTURES:
        raise UnsupportedFeature(
            f"general.architecture={architecture!r} in the GGUF file: known are "
            f"{', '.join(_ARCHITECTURES)}"
        )
    if metadata.get("split.count", 1) > 1:
        raise UnsupportedFeature("split.count: a GGUF model in several files; merge them first")
    values = _honoured_values(metadata, architecture)
    heads = _required(values, "attention.head_count")
    hidden = _required(values, "embedding_length")
    head_dim = int(values.get("attention.key_length", hidden // heads))
    for key in ("attention.value_length", "rope.dimension_count"):
        if values.get(key, head_dim) != head_dim:
            raise UnsupportedFeature(
                f"{architecture}.{key}={values[key]} in the GGUF file: must be the head size, "
                f"{head_dim}"
            )
    _check_tensors(tensors, architecture, _required(values, "block_count"))
    theta = float(values.get("rope.freq_base", 10000.0))
    epsilon = np.float32(values.get("attention.layer_norm_rms_epsilon", 1e-5))
    window = values.get("attention.sliding_window")
    model_type = "mistral" if architecture == "llama" and window else architecture
    config = {
        "architectures": [_CLASSES[model_type]],
        "model_type": model_type,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": _required(values, "feed_forward_length"),
        "num_hidden_layers": values["block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": int(values.get("attention.head_count_kv", heads)),
        "head_dim": head_dim,
        "max_position_embeddings": _required(values, "context_length"),
        # The file has the float32 nearest to the number that its author wrote.
        "rms_norm_eps": float(str(epsilon)),
        "rope_theta": theta,
        "vocab_size": tensors["token_embd.weight"].shape[0],
        "tie_word_embeddings": "output.weight" not in tensors,
        "torch_dtype": "float32",
    }
    if model_type == "mistral":
        config["sliding_window"] = window
    if scaling := _rope_scaling(values, tensors, theta, head_dim):
        config["rope_scaling"] = scaling
    for name, key in (("bos_token_id", "bos"), ("pad_token_id", "padding")):
        if f"tokenizer.ggml.{key}_token_id" in metadata:
            config[name] = metadata[f"tokenizer.ggml.{key}_token_id"]
    if ends := end_ids(metadata):
        config["eos_token_id"] = ends if len(ends) > 1 else ends[0]
    return config


def _honoured_values(metadata: Metadata, architecture: str) -> Metadata:
    start = f"{architecture}."
    values = {key[len(start) :]: value for key, value in metadata.items() if key.startswith(start)}
    for key, value in values.items():
        window = key == "attention.sliding_window" and architecture != "llama" and value
        if key not in _HONOURED or window or isinstance(value, list):
            raise UnsupportedFeature(f"{start}{key}={value!r} in the GGUF file is not supported")
    return values


def _required(values: Metadata, key: str) -> int:
    if key not in values:
        raise InvalidArgument(f"the GGUF file has no {key!r}: it is not a whole model")
    return int(values[key])


def _check_tensors(tensors: Mapping[str, Tensor], architecture: str, num_blocks: int) -> None:
    for name in tensors:
        if name != _ROPE_FACTORS:
            hf_name(name, architecture)
    parts = [f"{part}.weight" for part in _BLOCK if not part.endswith(("q_norm", "k_norm"))]
    wanted = ["token_embd.weight", "output_norm.weight"]
    wanted += [f"blk.{block}.{part}" for block in range(num_blocks) for part in parts]
    for name in wanted:
        if name not in tensors:
            raise InvalidArgument(f"the GGUF file has no tensor {name!r}: it is not a whole model")


def hf_name(name: str, architecture: str) -> str:
    """The Hugging Face name of a GGUF tensor; UnsupportedFeature for one that is not known."""
    if name in _TOP:
        return _TOP[name]
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if match and match[2] in _BLOCK:
        biased = architecture == "qwen2" and match[2] in ("attn_q", "attn_k", "attn_v")
        normed = architecture == "qwen3" or not match[2].endswith(("q_norm", "k_norm"))
        if normed and (match[3] == "weight" or biased):
            return f"model.layers.{match[1]}.{_BLOCK[match[2]]}.{match[3]}"
    raise UnsupportedFeature(
        f"tensor {name!r} of a {architecture} model in the GGUF file is not supported"
    )


def _rope_scaling(
    values: Metadata, tensors: Mapping[str, Tensor], theta: float, head_dim: int
) -> Metadata | None:
    kind = values.get("rope.scaling.type", "none")
    factor = values.get("rope.scaling.factor")
    if _ROPE_FACTORS in tensors:
        stored = _dequantised(tensors[_ROPE_FACTORS])
        return _llama3_scaling(stored, theta, head_dim)
    if kind == "none" or not factor:
        return None
    scaling = {"rope_type": kind, "factor": float(factor)}
    if kind == "yarn":
        original = values.get("rope.scaling.original_context_length")
        if original:
            scaling["original_max_position_embeddings"] = int(original)
        return scaling
    if kind == "linear":
        return scaling
    raise UnsupportedFeature(
        f"rope.scaling.type={kind!r} in the GGUF file: known are none, linear and yarn"
    )


def _llama3_scaling(stored: FloatArray, theta: float, head_dim: int) -> Metadata | None:
    """Llama 3's scaling, which the file keeps as one divisor per frequency, from its parameters.

    Only the factor varies between the published models; the divisors are computed again from the
    parameters and must agree.
    """
    factor = float(stored.max())
    if factor == 1.0:
        return None
    scaling = {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    frequencies = theta ** -(np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    turns = 8192 * frequencies / (2 * math.pi)  # of each frequency over the original context
    smooth = np.clip((turns - 1.0) / (4.0 - 1.0), 0.0, 1.0)
    expected = 1.0 / ((1.0 - smooth) / factor + smooth)
    if stored.shape != expected.shape or not np.allclose(stored, expected, rtol=1e-3):
        raise UnsupportedFeature(f"{_ROPE_FACTORS} in the GGUF file are not Llama 3's rope scaling")
    return scaling


def _dequantised(tensor: Tensor) -> FloatArray:
    try:
        values = gguf.dequantize(tensor.data, tensor.kind)
    except NotImplementedError as error:
        raise UnsupportedFeature(
            f"tensor {tensor.name!r} in the GGUF file has type {tensor.kind.name}, "
            "which is not supported"
        ) from error
    return np.ascontiguousarray(values, dtype=np.float32)


def unpermuted(weight: FloatArray, num_heads: int) -> FloatArray:
    """A query or key projection with its rows in Hugging Face's order.

    llama.cpp keeps the two halves of each head interleaved, (head, pair, half); Hugging Face has
    (head, half, pair).
    """
    shape = weight.shape
    split = weight.reshape(num_heads, shape[0] // num_heads // 2, 2, *shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2).reshape(shape))


def _write_weights(
    tensors: Mapping[str, Tensor],
    config: Metadata,
    metadata: Metadata,
    folder: Path,
    on_tensor: Callable[[int, int], None],
) -> None:
    architecture = metadata["general.architecture"]
    names = [name for name in tensors if name != _ROPE_FACTORS]
    shards: list[list[str]] = []
    pending: dict[str, FloatArray] = {}
    for done, name in enumerate(names, start=1):
        weight = _dequantised(tensors[name])
        if architecture == "llama" and ".attn_q." in name:
            weight = unpermuted(weight, config["num_attention_heads"])
        if architecture == "llama" and ".attn_k." in name:
            weight = unpermuted(weight, config["num_key_value_heads"])
        pending[hf_name(name, architecture)] = weight
        if sum(part.nbytes for part in pending.values()) >= SHARD_BYTES or done == len(names):
            _save(pending, folder / f"shard-{len(shards)}")
            shards.append(list(pending))
            pending = {}
        on_tensor(done, len(names))
    _name_shards(shards, folder)


def _save(tensors: dict[str, FloatArray], path: Path) -> None:
    save_file(tensors, path, metadata={"format": "pt"})


def _name_shards(shards: list[list[str]], folder: Path) -> None:
    if len(shards) == 1:
        (folder / "shard-0").rename(folder / "model.safetensors")
        return
    weight_map: dict[str, str] = {}
    for index, names in enumerate(shards):
        file = f"model-{index + 1:05d}-of-{len(shards):05d}.safetensors"
        (folder / f"shard-{index}").rename(folder / file)
        weight_map |= dict.fromkeys(names, file)
    document = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(document), encoding="utf-8")
