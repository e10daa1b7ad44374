"""The only door of the kernels: every operator that a model runs, on whatever device.

An operator picks its backend by the device of its tensors and by nothing else. `reference.py`
says what each one means; shapes are as there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from ramet.kernels import reference
from ramet.kernels.cpu import bitmask as cpu_bitmask
from ramet.kernels.cpu import fused
from ramet.kernels.cpu import gated_mlp as cpu_gated_mlp
from ramet.kernels.cpu import linear as cpu_linear
from ramet.kernels.cpu import tree_attention as cpu_tree_attention
from ramet.kernels.decoder import Decoder, DecoderShape, LayerTensors, RopeRows
from ramet.kernels.draws import Draws
from ramet.kernels.plan import AttentionPlan

if TYPE_CHECKING:
    from ramet.kernels.gpu.attention_tables import PlanTables


def on_gpu(tensor: torch.Tensor) -> bool:
    """Whether operators run this tensor by the kernels for GPUs. Not float64, which is exact: that
    is computed as the references have it, wherever it lies."""
    return tensor.is_cuda and tensor.dtype != torch.float64


def embed(token_ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Rows of the embedding `table`, `[vocab, hidden]`, for int64 `token_ids`, `[rows]`."""
    return F.embedding(token_ids, table)


def take_rows(table: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Copies of the lines `indices`, int64 `[n]`, of a table `[slots, ...]`."""
    return table.index_select(0, indices)


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`x @ weight.T + bias` for `x` `[rows, in]` and `weight` `[out, in]`."""
    if x.device.type != "cpu" or on_gpu(x):
        return F.linear(x, weight, bias)
    return cpu_linear.linear(x, weight, bias)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Root-mean-square norm over the last dimension, in float32 or wider."""
    if on_gpu(x):
        from ramet.kernels.gpu import rms_norm as gpu

        return gpu.rms_norm(x, weight, eps)
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def add_rms_norm(
    x: torch.Tensor, update: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """`x + update`, both `[rows, n]`, and the norm of that."""
    if on_gpu(x):
        from ramet.kernels.gpu import rms_norm as gpu

        return gpu.add_rms_norm(x, update, weight, eps)
    x = x + update
    return x, rms_norm(x, weight, eps)


def rope_write(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    slots: torch.Tensor,
) -> torch.Tensor:
    """Rotary embedding of `q`, `[rows, heads, dim]`, after that of `k` and its write, with `v`, to
    the rows' distinct `slots` (int64) of one layer's pool; `cos` and `sin` are `[rows, dim]`."""
    if on_gpu(q):
        from ramet.kernels.gpu import rope_write as gpu

        return gpu.rope_write(q, k, v, cos, sin, k_pool, v_pool, slots)
    k_pool.index_copy_(0, slots, reference.rope(k, cos, sin))
    v_pool.index_copy_(0, slots, v)
    return reference.rope(q, cos, sin)


def tree_attention(
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    plan: AttentionPlan,
    scale: float,
    window: int | None = None,
) -> torch.Tensor:
    """Attention of `q`, `[rows, heads, head_dim]`, over the plan's segments; same shape back.

    Each segment is read once for all rows under it. Raises ValueError if a row sees no key.
    """
    if on_gpu(q):
        from ramet.kernels.gpu import tree_attention as gpu

        return gpu.tree_attention(q, k_pool, v_pool, plan, scale, window)
    if q.device.type == "cpu":
        return cpu_tree_attention.tree_attention(q, k_pool, v_pool, plan, scale, window)
    return reference.tree_attention(q, k_pool, v_pool, plan, scale, window)


def plan_tables(
    heads: int,
    kv_heads: int,
    head_dim: int,
    windows: Sequence[int | None],
    dtype: torch.dtype,
    device: torch.device,
) -> PlanTables:
    """What brings the plans of a model's steps to a GPU, at once for all layers; `windows` are
    those of its layers. `tree_attention` there makes what it doesn't find in a plan."""
    from ramet.kernels.gpu.attention_tables import PlanTables

    return PlanTables(heads, kv_heads, head_dim, windows, dtype, device)


def gated_mlp(x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """`down(silu(gate(x)) * up(x))`; `gate_up`, `[2 * inner, hidden]`, is gate's rows then up's."""
    if on_gpu(x):
        from ramet.kernels.gpu import silu_mul as gpu

        return gpu.gated_mlp(x, gate_up, down)
    if x.device.type == "cpu":
        return cpu_gated_mlp.gated_mlp(x, gate_up, down)
    return reference.gated_mlp(x, gate_up, down)


def apply_bitmask(logits: torch.Tensor, bitmask: torch.Tensor) -> None:
    """Set to -inf, in place, the logits `[rows, vocab]` of tokens whose bit is 0.

    `bitmask` is int32 `[rows, ceil(vocab / 32)]`, the lowest bit of a word its first token.
    """
    if on_gpu(logits):
        from ramet.kernels.gpu import bitmask as gpu

        gpu.apply_bitmask(logits, bitmask)
    elif logits.device.type == "cpu" and logits.dtype in (torch.float32, torch.float64):
        cpu_bitmask.apply_bitmask(logits, bitmask)
    else:
        reference.apply_bitmask(logits, bitmask)


def draws_fast(logits: torch.Tensor) -> bool:
    """Whether `greedy` and `draw` of such logits are kernels, not references."""
    if on_gpu(logits):
        return True
    return logits.is_cpu and logits.dtype == torch.float32 and fused.why_not() is None


def greedy(
    logits: torch.Tensor, rows: Sequence[int], masks: Sequence[bytes] = ()
) -> tuple[list[int], list[float]]:
    """The likeliest token, the lowest id among ties, and the largest logit of each of some `rows`
    of `logits` `[n, vocab]`; NaN is largest. With masks, one for each of `rows`, of the tokens
    whose bit in its little-endian 32-bit words is 1.
    """
    if on_gpu(logits):
        from ramet.kernels.gpu import sampling as gpu

        return gpu.greedy(logits, rows, masks)
    if draws_fast(logits):
        from ramet.kernels.cpu.fused import sampling

        return sampling.greedy(logits, rows, masks)
    return reference.greedy(logits, rows, masks)


def draw(logits: torch.Tensor, draws: Draws) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens, int64 `[n, m]`, drawn from rows of `logits` `[rows, vocab]`, and the largest logits,
    `[n]`, that bans and masks leave; where that is not finite the tokens mean nothing.

    A distribution's draws depend on nothing but its own row, fields and uniforms. On a GPU the
    host waits for nothing.
    """
    if on_gpu(logits):
        from ramet.kernels.gpu import draw as gpu

        return gpu.draw(logits, draws)
    if draws_fast(logits):
        from ramet.kernels.cpu.fused import sampling

        return sampling.draw(logits, draws)
    return reference.draw(logits, draws)


def head_weight(weight: torch.Tensor) -> torch.Tensor:
    """The form of an output head, `[vocab, hidden]`, that `head_logits` reads on its device.

    A CPU matrix product returns the dtype of its operands, and 8 bits of a bfloat16 logit make
    ties of what were differences, so there the head is kept in float32.
    """
    if weight.device.type == "cpu" and weight.dtype != torch.float64:
        return weight.float()
    return weight


def head_logits(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Logits `[rows, vocab]` of final hidden rows, never rounded below float32.

    float32, or float64 for float64 weights; `weight` comes from `head_weight`.
    """
    if weight.dtype in (torch.float32, torch.float64):
        return linear(hidden.to(weight.dtype), weight)
    return torch.mm(hidden, weight.t(), out_dtype=torch.float32)


def prepare(cache: Path) -> str | None:
    """Keep compiled kernels for CPUs below the folder `cache`, if it can be written.

    To be called before any operator. Why there are none on this machine, or None; the operators
    then do without.
    """
    return fused.prepare(cache)


def keeps_code() -> bool:
    """Whether `prepare` found a folder for compiled kernels; else every process compiles them."""
    return fused.keeps_code()


def compile_all() -> None:
    """Compile the kernels of this machine now, not when they are first used; after `prepare`, and
    only if that gave no reason against it. Processes that do so at once share the work."""
    fused.compile_all()


def why_no_decoder(shape: DecoderShape, device: torch.device) -> str | None:
    """Why `decoder` can't be had for such a model on such a device, or None if it can."""
    if device.type != "cpu":
        return f"they don't run on {device}"
    if shape.head_dim % 2:
        return f"the model's heads have an odd size, {shape.head_dim}"
    return fused.why_not()


def decoder(
    shape: DecoderShape,
    layers: Iterable[LayerTensors],
    embedding: torch.Tensor,
    final_norm: torch.Tensor,
    head: torch.Tensor | None,
    rope_rows: RopeRows,
    num_slots: int,
) -> Decoder:
    """A whole decoder as one kernel, with int8 weights: what a CPU runs fastest.

    To be asked for only if `why_no_decoder` gives no reason against it. `head` is None where it is
    the embedding. Raises ValueError for a weight that isn't finite.
    """
    from ramet.kernels.cpu.fused.decoder import Decoder as FusedDecoder

    threads = torch.get_num_threads()
    if hasattr(os, "sched_getaffinity"):
        threads = min(threads, len(os.sched_getaffinity(0)))
    return FusedDecoder(shape, layers, embedding, final_norm, head, rope_rows, num_slots, threads)
