"""One decoder layer: its tensors, and its forward pass over the rows of a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch

from ramet.kernels import ops
from ramet.kernels.decoder import LayerTensors
from ramet.kernels.plan import AttentionPlan
from ramet.runtime.model.spec import ModelSpec


@dataclasses.dataclass(frozen=True)
class Step:
    """What all layers of one forward pass share."""

    slots: torch.Tensor
    """int64 `[rows]`: the pool slot that each row fills."""
    cos: torch.Tensor
    """`[rows, head_dim]`."""
    sin: torch.Tensor
    """`[rows, head_dim]`."""
    plan: AttentionPlan


def layer_tensors(spec: ModelSpec, layer: int, weights: Mapping[str, torch.Tensor]) -> LayerTensors:
    """Layer number `layer` of a checkpoint's tensors, by their Hugging Face names."""

    def get(name: str) -> torch.Tensor:
        return weights[f"model.layers.{layer}.{name}"]

    def fused(kind: str) -> torch.Tensor:
        return torch.cat([get(f"self_attn.{name}_proj.{kind}") for name in "qkv"])

    return LayerTensors(
        input_norm=get("input_layernorm.weight"),
        qkv=fused("weight"),
        qkv_bias=fused("bias") if spec.qkv_bias else None,
        q_norm=get("self_attn.q_norm.weight") if spec.qk_norm else None,
        k_norm=get("self_attn.k_norm.weight") if spec.qk_norm else None,
        output=get("self_attn.o_proj.weight"),
        mlp_norm=get("post_attention_layernorm.weight"),
        gate_up=torch.cat((get("mlp.gate_proj.weight"), get("mlp.up_proj.weight"))),
        down=get("mlp.down_proj.weight"),
        window=spec.windows[layer],
    )


@dataclasses.dataclass(frozen=True)
class DecoderLayer:
    """One layer of a model that is run operator by operator."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    eps: float
    tensors: LayerTensors

    @classmethod
    def from_weights(
        cls, spec: ModelSpec, layer: int, weights: Mapping[str, torch.Tensor]
    ) -> DecoderLayer:
        """Layer number `layer` of a checkpoint's tensors, by their Hugging Face names."""
        tensors = layer_tensors(spec, layer, weights)
        return cls(spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.rms_norm_eps, tensors)

    def forward(
        self, x: torch.Tensor, k_pool: torch.Tensor, v_pool: torch.Tensor, step: Step
    ) -> torch.Tensor:
        """The residual stream `[rows, hidden]` after this layer; writes the rows' K/V."""
        own = self.tensors
        x = x + self._attention(ops.rms_norm(x, own.input_norm, self.eps), k_pool, v_pool, step)
        normed = ops.rms_norm(x, own.mlp_norm, self.eps)
        return x + ops.gated_mlp(normed, own.gate_up, own.down)

    def _attention(
        self, x: torch.Tensor, k_pool: torch.Tensor, v_pool: torch.Tensor, step: Step
    ) -> torch.Tensor:
        own, rows, heads, kv_heads = self.tensors, x.shape[0], self.num_heads, self.num_kv_heads
        qkv = ops.linear(x, own.qkv, own.qkv_bias).view(rows, -1, self.head_dim)
        qk, v = qkv[:, : heads + kv_heads], qkv[:, heads + kv_heads :]
        if own.q_norm is not None and own.k_norm is not None:
            q = ops.rms_norm(qk[:, :heads], own.q_norm, self.eps)
            k = ops.rms_norm(qk[:, heads:], own.k_norm, self.eps)
            qk = torch.cat((q, k), dim=1)
        qk = ops.rope(qk, step.cos, step.sin)
        ops.write_kv(k_pool, v_pool, qk[:, heads:], v, step.slots)
        attended = ops.tree_attention(
            qk[:, :heads], k_pool, v_pool, step.plan, self.head_dim**-0.5, own.window
        )
        return ops.linear(attended.reshape(rows, -1), own.output)
