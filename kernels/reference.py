"""Plain torch, slow and obvious: the specification that every backend is tested against.

Shapes: rows are the tokens of one step, `[rows, ...]`; `k_pool` and `v_pool` are one layer's pool,
`[slots, kv_heads, head_dim]`. Nothing here reads the environment or keeps state.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ramet.kernels.draws import Draws
from ramet.kernels.plan import AttentionPlan


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Root-mean-square norm over the last dimension (Zhang and Sennrich 2019).

    Computed in float32, or in float64 for float64 input; the result has `x`'s dtype.
    """
    wide = x.to(wide_dtype(x.dtype))
    scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (scaled * weight.to(wide.dtype)).to(x.dtype)


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding (Su et al. 2021), Llama's half-split layout, of `x` `[rows, heads, dim]`.

    `cos` and `sin` are `[rows, dim]`: the rows' own entries, each half repeating the other.
    """
    first, second = x.chunk(2, dim=-1)
    rotated = torch.cat((-second, first), dim=-1)
    return x * cos.unsqueeze(1) + rotated * sin.unsqueeze(1)


def write_kv(
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Write `k` and `v`, `[rows, kv_heads, head_dim]`, to the pool at `slots`, int64 `[rows]`.

    The slots are distinct.
    """
    k_pool[slots] = k
    v_pool[slots] = v


def hadamard(x: torch.Tensor) -> torch.Tensor:
    """`x`, `[..., n]`, filled up with zeros to whole blocks of 64, each turned: multiplied by
    Sylvester's Hadamard matrix of order 64 over 8, which is orthogonal and its own inverse.

    Products of turned rows are those of the rows, and no value of a block is far larger than the
    others (QuaRot, Ashkboos et al. 2024). By the fast Walsh-Hadamard transform, in `x`'s dtype.
    """
    filled = torch.nn.functional.pad(x, (0, -x.shape[-1] % 64))
    values = filled
    for apart in (1, 2, 4, 8, 16, 32):
        first, second = values.reshape(-1, 2, apart).unbind(1)
        values = torch.stack((first + second, first - second), 1)
    return values.reshape(filled.shape) / 8


def quantise(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A float matrix `[out, in]`, turned, as int8 values `[out, in]`, `in` filled up to whole
    blocks, and float32 scales, one for each output `[out]`.

    Symmetric, per channel, round to nearest: the largest magnitude of a turned row becomes 127.
    """
    wide = hadamard(weight.float())
    largest = wide.abs().amax(1, keepdim=True)
    factor = torch.where(largest > 0, torch.full_like(largest, 127.0) / largest, 0.0)
    return (wide * factor).round().to(torch.int8), (largest / 127.0).squeeze(1)


def quantise_inputs(x: torch.Tensor) -> torch.Tensor:
    """Rows, `[rows, in]`, turned and rounded as the products of bytes have them, float32 `[rows,
    in]`, `in` filled up: each block to 127 steps of its largest magnitude, ties to even."""
    wide = hadamard(x.float())
    blocks = wide.view(len(x), -1, 64)
    largest = blocks.abs().amax(-1, keepdim=True)
    factor = torch.where(largest >= 2.0**-103, torch.full_like(largest, 127.0) / largest, 0.0)
    return ((blocks * factor).round() * (largest / 127.0)).view(wide.shape)


def quantised_linear(x: torch.Tensor, values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """`x @ w.T` in float32, for `x` `[rows, in]`, turned (`hadamard` or `quantise_inputs`), and the
    values and scales that `quantise` gives for `w`."""
    return x.float() @ values.float().t() * scales


def gated_mlp(x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """`down(silu(gate(x)) * up(x))` (Shazeer 2020, SwiGLU); `gate_up` is gate's rows, then up's."""
    gate, up = torch.nn.functional.linear(x, gate_up).chunk(2, dim=-1)
    return torch.nn.functional.linear(torch.nn.functional.silu(gate) * up, down)


def tree_attention(
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    plan: AttentionPlan,
    scale: float,
    window: int | None = None,
) -> torch.Tensor:
    """Attention of `q`, `[rows, heads, head_dim]`, over the segments of the plan.

    One matrix product per item serves all rows under it; an item's rows keep a running maximum,
    sum and weighted value, so that merging the items is exact (the log-sum-exp merge of Milakov
    and Gimelshein 2018). Accumulates in float32, or in float64 for float64 input. Returns
    `[rows, heads, head_dim]` in `q`'s dtype. Raises ValueError if a row sees no key.
    """
    rows, heads, dim = q.shape
    kv_heads = k_pool.shape[1]
    group = heads // kv_heads
    wide = wide_dtype(q.dtype)
    queries = q.to(wide).view(rows, kv_heads, group, dim).transpose(0, 1)
    best = queries.new_full((kv_heads, rows, group), -torch.inf)
    total = torch.zeros_like(best)
    value = queries.new_zeros((kv_heads, rows, group, dim))
    for start, length, first, last, key_pos in plan.items.T.tolist():
        if length == 0 or first == last:
            continue
        if plan.gathered is not None:
            plan.gathered.append((start, length))
        k = k_pool[start : start + length].to(wide).transpose(0, 1)
        v = v_pool[start : start + length].to(wide).transpose(0, 1)
        mine = queries[:, first:last].reshape(kv_heads, -1, dim)
        scores = (mine @ k.transpose(1, 2) * scale).view(kv_heads, last - first, group, length)
        visible = _visible(plan, first, last, key_pos, length, window)
        if visible is not None:
            hidden = ~visible.to(scores.device)
            scores = scores.masked_fill(hidden[None, :, None, :], -torch.inf)
        old = best[:, first:last]
        new = torch.maximum(old, scores.amax(-1))
        # A row that has seen no key yet has a maximum of -inf, and -inf minus -inf is no number.
        base = new.masked_fill(new == -torch.inf, 0.0)
        weights = torch.exp(scores - base.unsqueeze(-1))
        shrink = torch.exp(old - base)
        part = (weights.reshape(kv_heads, -1, length) @ v).view(kv_heads, -1, group, dim)
        best[:, first:last] = new
        total[:, first:last] = total[:, first:last] * shrink + weights.sum(-1)
        value[:, first:last] = value[:, first:last] * shrink.unsqueeze(-1) + part
    if rows and not bool((total > 0).all()):
        raise ValueError("attention plan: a row sees no key")
    merged = value / total.unsqueeze(-1)
    return merged.transpose(0, 1).reshape(rows, heads, dim).to(q.dtype)


def apply_bitmask(logits: torch.Tensor, bitmask: torch.Tensor) -> None:
    """Set to -inf, in place, every logit whose bit is 0.

    `logits` `[rows, vocab]` of a float dtype; `bitmask` int32 `[rows, ceil(vocab / 32)]`, where
    bit `i % 32` of word `i // 32` stands for token `i`. Raises ValueError for another shape.
    """
    rows, vocab = logits.shape
    if bitmask.dtype != torch.int32 or bitmask.shape != (rows, (vocab + 31) // 32):
        raise ValueError(
            f"bitmask: {bitmask.dtype} {list(bitmask.shape)} for logits {list(logits.shape)}"
        )
    shifts = torch.arange(32, dtype=torch.int32, device=bitmask.device)
    bits = (bitmask.unsqueeze(-1) >> shifts) & 1
    logits.masked_fill_(bits.flatten(1)[:, :vocab] == 0, float("-inf"))


def greedy(
    logits: torch.Tensor, rows: Sequence[int], masks: Sequence[bytes] = ()
) -> tuple[list[int], list[float]]:
    """The likeliest token, the lowest id among ties, and the largest logit of each of some `rows`
    of `logits` `[n, vocab]`, or of those tokens of it that a mask leaves.

    There is a mask for each of `rows`, little-endian words as `apply_bitmask` has them, or none at
    all. A row with a NaN has NaN for its largest, whatever the mask says, and any token.
    """
    work = logits[torch.tensor(rows, dtype=torch.long, device=logits.device)]
    if masks:
        broken = work.isnan()
        words = torch.frombuffer(bytearray().join(masks), dtype=torch.int32)
        apply_bitmask(work, words.view(len(rows), -1).to(work.device))
        work[broken] = torch.nan
    best, tokens = work.max(-1)  # the first of equals
    return tokens.tolist(), best.tolist()


def draw(logits: torch.Tensor, draws: Draws) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens, int64 `[n, m]`, drawn from distributions over rows of `logits` `[rows, vocab]`, and
    the largest logits, `[n]`, that bans and masks leave.

    In float64: bans and masks, `softmax(logits / temperature)`, top-k, top-p (the smallest set of
    the likeliest with that mass, Holtzman et al. 2020), min-p (at least that fraction of the
    likeliest's weight); ranks are of logits, of equals the lowest id comes first. Then the first
    token in order of ids whose cumulative weight exceeds uniform * sum. Where the largest is not
    finite, or the temperature 0, the tokens are its. A NaN stays one, whatever the masks say.
    """
    work = logits[draws.rows].double()
    work[draws.bans[:, 0], draws.bans[:, 1]] += -torch.inf
    broken = work.isnan()
    if draws.masks is not None:
        apply_bitmask(work, draws.masks)
    work[broken] = torch.nan
    best, likeliest = work.max(-1)
    tokens = likeliest.unsqueeze(1).repeat(1, draws.uniforms.shape[1])
    for n, (temperature, top_k, top_p, fraction) in enumerate(draws.asked.tolist()):
        if temperature <= 0 or not bool(best[n].isfinite()):
            continue
        heat = max(temperature, torch.finfo(torch.float64).tiny)
        weights = ((work[n] - best[n]) / heat).exp()
        order = work[n].argsort(descending=True, stable=True)
        kept = len(order) if top_k <= 0 else min(int(top_k), len(order))
        if top_p < 1:
            mass = weights[order[:kept]].cumsum(0)
            kept = min(kept, int((mass < top_p * mass[-1]).sum()) + 1)
        weights[order[kept:]] = 0
        weights[weights < fraction] = 0
        cumulative = weights.cumsum(0)
        # Rounding may lift the goal to the sum itself, which no token would exceed.
        below = cumulative[-1].nextafter(cumulative.new_zeros(()))
        goals = (draws.uniforms[n] * cumulative[-1]).minimum(below)
        tokens[n] = torch.searchsorted(cumulative, goals, right=True)
    return tokens, best.to(logits.dtype)


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums over `dtype` are kept: float64 for float64, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _visible(
    plan: AttentionPlan, first: int, last: int, key_pos: int, length: int, window: int | None
) -> torch.Tensor | None:
    """bool `[rows, keys]` of an item, or None where every row sees every key."""
    rows = torch.from_numpy(plan.row_pos[first:last])
    lowest, highest = int(rows.min()), int(rows.max())
    if key_pos + length - 1 <= lowest and (window is None or key_pos > highest - window):
        return None
    keys = torch.arange(key_pos, key_pos + length)
    visible = keys <= rows.unsqueeze(1)
    if window is not None:
        visible &= keys > rows.unsqueeze(1) - window
    return visible
