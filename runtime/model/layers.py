"""One decoder layer: its tensors, and its forward pass over the rows of a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch

from ramet.kernels import ops
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


@dataclasses.dataclass(frozen=True)
class DecoderLayer:
    """The tensors of one layer; projections that read the same input are one matrix."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    eps: float
    window: int | None
    input_norm: torch.Tensor
    qkv: torch.Tensor
    """`[(heads + 2 * kv_heads) * head_dim, hidden]`: queries, keys, values."""
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    output: torch.Tensor
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    """`[2 * intermediate, hidden]`: gate, then up."""
    down: torch.Tensor

    @classmethod
    def from_weights(
        cls, spec: ModelSpec, layer: int, weights: Mapping[str, torch.Tensor]
    ) -> DecoderLayer:
        """Layer number `layer` of a checkpoint's tensors, by their Hugging Face names."""

        def get(name: str) -> torch.Tensor:
            return weights[f"model.layers.{layer}.{name}"]

        def fused(kind: str) -> torch.Tensor:
            return torch.cat([get(f"self_attn.{name}_proj.{kind}") for name in "qkv"])

        return cls(
            num_heads=spec.num_heads,
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            eps=spec.rms_norm_eps,
            window=spec.windows[layer],
            input_norm=get("input_layernorm.weight"),
            qkv=fused("weight"),
            qkv_bias=fused("bias") if spec.qkv_bias else None,
            q_norm=get("self_attn.q_norm.weight") if spec.qk_norm else None,
            k_norm=get("self_attn.k_norm.weight") if spec.qk_norm else None,
            output=get("self_attn.o_proj.weight"),
            mlp_norm=get("post_attention_layernorm.weight"),
            gate_up=torch.cat((get("mlp.gate_proj.weight"), get("mlp.up_proj.weight"))),
            down=get("mlp.down_proj.weight"),
        )

    def forward(
        self, x: torch.Tensor, k_pool: torch.Tensor, v_pool: torch.Tensor, step: Step
    ) -> torch.Tensor:
        """The residual stream `[rows, hidden]` after this layer; writes the rows' K/V."""
        x = x + self._attention(ops.rms_norm(x, self.input_norm, self.eps), k_pool, v_pool, step)
        normed = ops.rms_norm(x, self.mlp_norm, self.eps)
        return x + ops.gated_mlp(normed, self.gate_up, self.down)

    def _attention(
        self, x: torch.Tensor, k_pool: torch.Tensor, v_pool: torch.Tensor, step: Step
    ) -> torch.Tensor:
        rows, heads, kv_heads = x.shape[0], self.num_heads, self.num_kv_heads
        qkv = ops.linear(x, self.qkv, self.qkv_bias).view(rows, -1, self.head_dim)
        qk, v = qkv[:, : heads + kv_heads], qkv[:, heads + kv_heads :]
        if self.q_norm is not None and self.k_norm is not None:
            q = ops.rms_norm(qk[:, :heads], self.q_norm, self.eps)
            k = ops.rms_norm(qk[:, heads:], self.k_norm, self.eps)
            qk = torch.cat((q, k), dim=1)
        qk = ops.rope(qk, step.cos, step.sin)
        ops.write_kv(k_pool, v_pool, qk[:, heads:], v, step.slots)
        attended = ops.tree_attention(
            qk[:, :heads], k_pool, v_pool, step.plan, self.head_dim**-0.5, self.window
        )
        return ops.linear(attended.reshape(rows, -1), self.output)
