"""The model's shape, as its `config.json` states it: read once, checked, frozen, free of torch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from ramet.runtime.errors import InvalidArgument, UnsupportedFeature
from ramet.runtime.model.config_fields import (
    FAMILY_DEFAULTS,
    check_fields,
    integer,
    number,
    require_keys,
)


@dataclasses.dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary frequencies: a base `theta` and at most one rule that rescales them.

    `kind` is "default", "linear" (position interpolation), "llama3" (Llama 3.1's by wavelength)
    or "yarn" (Peng et al. 2023); the fields that a kind doesn't read keep their defaults.
    """

    kind: str = "default"
    theta: float = 10000.0
    factor: float = 1.0
    original_context: int = 0
    """Context in tokens that the unscaled model was trained for ("llama3", "yarn")."""
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float = 1.0
    """Multiplies cos and sin."""


@dataclasses.dataclass(frozen=True, slots=True)
class ModelSpec:
    """A Llama-shaped decoder: every number that its forward pass needs.

    Families differ in `qkv_bias` (qwen2), `qk_norm` (qwen3), `windows` (mistral, qwen2, qwen3)
    and in the rotary rule; nothing else.
    """

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    max_context: int
    """Longest path in tokens."""
    rope: RopeSpec
    windows: tuple[int | None, ...]
    """Per layer, the tokens that a row sees, itself included; None is all of them."""
    qkv_bias: bool
    qk_norm: bool
    tied_embeddings: bool
    """Whether the head is the embedding table."""
    bos_id: int | None
    eos_ids: tuple[int, ...]
    """Tokens that end a call."""
    dtype: str | None
    """The dtype that the config names, such as "bfloat16"."""

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], generation_config: Mapping[str, Any] | None = None
    ) -> ModelSpec:
        """Read a Hugging Face `config.json`; the generation config's end ids go before its own.

        Raises UnsupportedFeature naming a field that isn't honoured, InvalidArgument naming a
        field that is missing or makes no sense.
        """
        family = check_fields(config)
        values = {**FAMILY_DEFAULTS[family], **config}
        heads = integer("num_attention_heads", values.get("num_attention_heads"))
        hidden = integer("hidden_size", values.get("hidden_size"))
        layers = integer("num_hidden_layers", values.get("num_hidden_layers"))
        kv_heads = values["num_key_value_heads"]
        kv_heads = integer("num_key_value_heads", heads if kv_heads is None else kv_heads)
        if heads % kv_heads:
            raise InvalidArgument(
                f"config field num_key_value_heads={kv_heads}: must divide "
                f"num_attention_heads={heads}"
            )
        max_context = integer("max_position_embeddings", values["max_position_embeddings"])
        rope = _rope(values, max_context)
        if rope.kind == "yarn" and "original_max_position_embeddings" in _rope_dict(values):
            max_context = max(max_context, int(rope.factor * rope.original_context))
        return cls(
            family=family,
            vocab_size=integer("vocab_size", values.get("vocab_size")),
            hidden_size=hidden,
            intermediate_size=integer("intermediate_size", values.get("intermediate_size")),
            num_layers=layers,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=_head_dim(values.get("head_dim"), hidden, heads),
            rms_norm_eps=number("rms_norm_eps", values.get("rms_norm_eps", 1e-6)),
            max_context=max_context,
            rope=rope,
            windows=_windows(family, values, layers),
            qkv_bias=family == "qwen2",
            qk_norm=family == "qwen3",
            tied_embeddings=bool(values.get("tie_word_embeddings", False)),
            bos_id=_bos_id(values.get("bos_token_id")),
            eos_ids=_eos_ids(values, generation_config),
            dtype=_dtype_name(values),
        )

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor of a checkpoint, by its Hugging Face name, with its shape."""
        hidden, inner = self.hidden_size, self.intermediate_size
        q_size, kv_size = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (self.vocab_size, hidden)
        }
        for layer in range(self.num_layers):
            prefix = f"model.layers.{layer}."
            for name, size in (("q", q_size), ("k", kv_size), ("v", kv_size)):
                shapes[f"{prefix}self_attn.{name}_proj.weight"] = (size, hidden)
                if self.qkv_bias:
                    shapes[f"{prefix}self_attn.{name}_proj.bias"] = (size,)
            shapes[f"{prefix}self_attn.o_proj.weight"] = (hidden, q_size)
            if self.qk_norm:
                shapes[f"{prefix}self_attn.q_norm.weight"] = (self.head_dim,)
                shapes[f"{prefix}self_attn.k_norm.weight"] = (self.head_dim,)
            shapes[f"{prefix}mlp.gate_proj.weight"] = (inner, hidden)
            shapes[f"{prefix}mlp.up_proj.weight"] = (inner, hidden)
            shapes[f"{prefix}mlp.down_proj.weight"] = (hidden, inner)
            shapes[f"{prefix}input_layernorm.weight"] = (hidden,)
            shapes[f"{prefix}post_attention_layernorm.weight"] = (hidden,)
        shapes["model.norm.weight"] = (hidden,)
        if not self.tied_embeddings:
            shapes["lm_head.weight"] = (self.vocab_size, hidden)
        return shapes


def _head_dim(value: object, hidden: int, heads: int) -> int:
    if value is None and hidden % heads:
        raise InvalidArgument(
            f"config field hidden_size={hidden}: must be a multiple of "
            f"num_attention_heads={heads} where head_dim is not given"
        )
    dim = integer("head_dim", hidden // heads if value is None else value)
    if dim % 2:
        raise InvalidArgument(f"config field head_dim={dim}: must be even")
    return dim


def _windows(family: str, values: Mapping[str, Any], layers: int) -> tuple[int | None, ...]:
    """Each layer's sliding window, as transformers decides it for the family."""
    if family == "llama":
        return (None,) * layers
    window = values.get("sliding_window")
    if window is not None and values.get("use_sliding_window", True):
        window = integer("sliding_window", window)
    else:
        window = None
    types = values.get("layer_types")
    if types is None:
        first = values.get("max_window_layers", 0) if family != "mistral" else 0
        return tuple(window if layer >= (first or 0) else None for layer in range(layers))
    if len(types) != layers:
        raise InvalidArgument(
            f"config field layer_types has {len(types)} entries for {layers} layers"
        )
    known = ("full_attention", "sliding_attention", "attention")
    for kind in types:
        if kind not in known:
            raise UnsupportedFeature(f"config field layer_types has {kind!r}; known are {known}")
        if kind == "sliding_attention" and window is None:
            raise UnsupportedFeature(
                "config field layer_types has 'sliding_attention', but no sliding_window is in use"
            )
    windows = tuple(window if kind == "sliding_attention" else None for kind in types)
    if family == "mistral" and len({window, *windows}) > 1:
        raise UnsupportedFeature(
            f"config field layer_types={types!r}: a mistral model has one kind of attention, "
            f"here with sliding_window={window}"
        )
    return windows


_ROPE_KEYS: dict[str, frozenset[str]] = {
    "default": frozenset(),
    "linear": frozenset({"factor"}),
    "llama3": frozenset(
        {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}
    ),
    "yarn": frozenset(
        {
            "factor",
            "original_max_position_embeddings",
            "attention_factor",
            "beta_fast",
            "beta_slow",
            "mscale",
            "mscale_all_dim",
            "truncate",
        }
    ),
}
_ROPE_COMMON = frozenset({"rope_type", "type", "rope_theta", "finetuned"})


def _rope_dict(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rotary rule, under its old name or its new one; as in transformers the old one wins."""
    for name in ("rope_scaling", "rope_parameters"):
        given = values.get(name)
        if given:
            if not isinstance(given, Mapping):
                raise InvalidArgument(f"config field {name}={given!r}: must be a dict or null")
            return given
    return {}


def _rope(values: Mapping[str, Any], max_context: int) -> RopeSpec:
    given = dict(_rope_dict(values))
    kind = given.get("rope_type") or given.get("type") or "default"
    if kind not in _ROPE_KEYS:
        raise UnsupportedFeature(
            f"config field rope_scaling: type {kind!r} is not one of {', '.join(_ROPE_KEYS)}"
        )
    if given.get("partial_rotary_factor") == 1.0:
        del given["partial_rotary_factor"]
    require_keys("rope_scaling", given, _ROPE_COMMON | _ROPE_KEYS[kind])
    theta = given.get("rope_theta")
    theta = values.get("rope_theta") if theta is None else theta
    theta = number("rope_theta", 10000.0 if theta is None else theta)
    if kind == "default":
        return RopeSpec(theta=theta)
    if kind == "linear":
        return RopeSpec(kind, theta, number("rope_scaling.factor", given.get("factor")))
    original = values.get("original_max_position_embeddings")
    if original is None:
        original = given.get("original_max_position_embeddings", max_context)
    original = integer("original_max_position_embeddings", original)
    if kind == "llama3":
        low = number("rope_scaling.low_freq_factor", given.get("low_freq_factor"))
        high = number("rope_scaling.high_freq_factor", given.get("high_freq_factor"))
        factor = number("rope_scaling.factor", given.get("factor"))
        return RopeSpec(kind, theta, factor, original, low, high)
    return _yarn(given, theta, original, max_context)


def _yarn(given: Mapping[str, Any], theta: float, original: int, max_context: int) -> RopeSpec:
    factor = given.get("factor")
    factor = number("rope_scaling.factor", max_context / original if factor is None else factor)
    attention = given.get("attention_factor")
    if attention is None:
        mscale, everywhere = given.get("mscale"), given.get("mscale_all_dim")
        if mscale and everywhere:
            attention = _mscale(factor, mscale) / _mscale(factor, everywhere)
        else:
            attention = _mscale(factor, 1.0)
    return RopeSpec(
        kind="yarn",
        theta=theta,
        factor=factor,
        original_context=original,
        beta_fast=number("rope_scaling.beta_fast", given.get("beta_fast") or 32),
        beta_slow=number("rope_scaling.beta_slow", given.get("beta_slow") or 1),
        truncate=bool(given.get("truncate", True)),
        attention_factor=number("rope_scaling.attention_factor", attention),
    )


def _mscale(factor: float, mscale: float) -> float:
    """YaRN's attention temperature for a context `factor` times as long."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def _bos_id(value: object) -> int | None:
    return None if value is None else integer("bos_token_id", value, low=0)


def _eos_ids(
    values: Mapping[str, Any], generation_config: Mapping[str, Any] | None
) -> tuple[int, ...]:
    given = (generation_config or {}).get("eos_token_id")
    given = values.get("eos_token_id") if given is None else given
    ids = given if isinstance(given, (list, tuple)) else [] if given is None else [given]
    return tuple(dict.fromkeys(integer("eos_token_id", each, low=0) for each in ids))


def _dtype_name(values: Mapping[str, Any]) -> str | None:
    name = values.get("dtype") or values.get("torch_dtype")
    return None if name is None else str(name).removeprefix("torch.")
