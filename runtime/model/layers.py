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
        self,
        x: torch.Tensor,
        update: torch.Tensor | None,
        k_pool: torch.Tensor,
        v_pool: torch.Tensor,
        step: Step,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The residual stream `[rows, hidden]` and what is still to be added to it after this
        layer, for the same before it; writes the rows' K/V."""
        own = self.tensors
        x, normed = added_norm(x, update, own.input_norm, self.eps)
        x, normed = added_norm(
            x, self._attention(normed, k_pool, v_pool, step), own.mlp_norm, self.eps
        )
        return x, ops.gated_mlp(normed, own.gate_up, own.down)

    def _attention(
        self, x: torch.Tensor, k_pool: torch.Tensor, v_pool: torch.Tensor, step: Step
    ) -> torch.Tensor:
        own, rows, heads, kv_heads = self.tensors, x.shape[0], self.num_heads, self.num_kv_heads
        qkv = ops.linear(x, own.qkv, own.qkv_bias).view(rows, -1, self.head_dim)
        q, k, v = qkv[:, :heads], qkv[:, heads : heads + kv_heads], qkv[:, heads + kv_heads :]
        if own.q_norm is not None and own.k_norm is not None:
            q = ops.rms_norm(q, own.q_norm, self.eps)
            k = ops.rms_norm(k, own.k_norm, self.eps)
        q = ops.rope_write(q, k, v, step.cos, step.sin, k_pool, v_pool, step.slots)
        attended = ops.tree_attention(q, k_pool, v_pool, step.plan, self.head_dim**-0.5, own.window)
        return ops.linear(attended.reshape(rows, -1), own.output)


def added_norm(
    x: torch.Tensor, update: torch.Tensor | None, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """`x` with `update`, if there is one, added, and the norm of that."""
    if update is None:
        return x, ops.rms_norm(x, weight, eps)
    return ops.add_rms_norm(x, update, weight, eps)
