"""Tree attention on a CPU: torch's fused attention per part of the plan, merged by log-sum-exp.

Eager calls cost more than arithmetic when a step has many short private segments, so the plan is
turned, once per step and sliding window, into few *parts*, each one call of the fused kernel:

- a long segment, or any segment under many rows, is read in place as a slice of the pool;
- short segments under the same rows become one gathered group, and groups of like size are padded
  to one batched call.

Partial results are rounded to the model's dtype once each; scores, sums and the merge are float32
(float64 for float64).
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from ramet.kernels.plan import AttentionPlan, IntArray

# Measured on two cores with 3 KV heads of 64: a call costs as much as copying some hundred slots,
# and a padded copy beyond the L2 cache costs more than the calls that it saves.
LONG_SEGMENT = 128
MANY_ROWS = 32
PART_SLOTS = 2048
PART_ROWS = 512

_NEVER = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True)
class Group:
    """Segments `(slot, length, key_pos)` that the rows `first..last-1` attend to together."""

    first: int
    last: int
    masked: bool
    """Whether some row may not see some key."""
    segments: list[tuple[int, int, int]]

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self.last - self.first

    @property
    def num_keys(self) -> int:
        """Number of keys over all segments."""
        return sum(length for _, length, _ in self.segments)


@dataclasses.dataclass(frozen=True)
class Part:
    """One call of the fused kernel: `num_groups` groups, each padded to `num_rows` x `num_keys`."""

    num_groups: int
    num_rows: int
    num_keys: int
    rows: slice | torch.Tensor
    """The query rows: a range of them, or int64 `[groups * rows]`."""
    keys: slice | torch.Tensor
    """The pool slots: a range of them, or int64 `[groups * keys]`."""
    mask: torch.Tensor | None
    """Added to the scores, 0 or -inf: `[groups, 1, rows * query group, keys]` in q's dtype."""
    segments: list[tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class Layout:
    """A plan as parts, and for each row where its partial results lie in their concatenation."""

    parts: list[Part]
    depth: int
    """Most partial results of one row."""
    index: torch.Tensor | None
    """int64 `[rows * depth]` into the concatenated rows; None where they already are the rows."""
    bias: torch.Tensor | None
    """`[rows, depth, 1]`: 0 where a row has such a partial result, else -inf; None if all have."""


def tree_attention(
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    plan: AttentionPlan,
    scale: float,
    window: int | None = None,
) -> torch.Tensor:
    """As `reference.tree_attention`."""
    rows, heads, dim = q.shape
    kv_heads = k_pool.shape[1]
    group = heads // kv_heads
    layout = _layout(plan, window, group, q.dtype)
    # Rows of one KV head lie together, so that any range of rows is one matrix operand.
    queries = q.view(rows, kv_heads, group, dim).transpose(0, 1).contiguous()
    values, sums = [], []
    for part in layout.parts:
        if plan.gathered is not None:
            plan.gathered.extend(part.segments)
        value, log_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            _queries(queries, part),
            _keys(k_pool, part),
            _keys(v_pool, part),
            0.0,
            False,
            attn_mask=part.mask,
            scale=scale,
        )
        values.append(value.transpose(0, 1).reshape(kv_heads, -1, group, dim))
        sums.append(log_sum.transpose(0, 1).reshape(kv_heads, -1, group))
    merged = _merge(torch.cat(values, dim=1), torch.cat(sums, dim=1), layout)
    return merged.to(q.dtype).transpose(0, 1).reshape(rows, heads, dim)


def _queries(queries: torch.Tensor, part: Part) -> torch.Tensor:
    """A part's queries, `[groups, kv_heads, rows * query group, dim]`."""
    kv_heads, _, group, dim = queries.shape
    if isinstance(part.rows, slice):
        return queries[:, part.rows].reshape(1, kv_heads, part.num_rows * group, dim)
    picked = queries.index_select(1, part.rows)
    return picked.view(kv_heads, part.num_groups, part.num_rows * group, dim).transpose(0, 1)


def _keys(pool: torch.Tensor, part: Part) -> torch.Tensor:
    """A part's keys or values, `[groups, kv_heads, keys, dim]`: a view where it is one slice."""
    if isinstance(part.keys, slice):
        return pool[part.keys].transpose(0, 1).unsqueeze(0)
    picked = pool.index_select(0, part.keys)
    return picked.view(part.num_groups, part.num_keys, *pool.shape[1:]).transpose(1, 2)


def _merge(values: torch.Tensor, sums: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Weigh each row's partial results by the softmax of their log-sum-exps.

    `values` is `[kv_heads, partial rows, group, dim]`, `sums` the same without `dim`.
    """
    if layout.index is None:
        return values
    values = values.index_select(1, layout.index)
    if layout.depth == 1:
        return values
    kv_heads, _, group, dim = values.shape
    sums = sums.index_select(1, layout.index).view(kv_heads, -1, layout.depth, group)
    if layout.bias is not None:
        sums = sums + layout.bias
    weights = torch.softmax(sums, dim=2).unsqueeze(-1)
    return (values.view(kv_heads, -1, layout.depth, group, dim) * weights).sum(dim=2)


def _layout(plan: AttentionPlan, window: int | None, group: int, dtype: torch.dtype) -> Layout:
    """The plan's layout for layers of this window, built at the first of them."""
    key = ("cpu", window, group, dtype)
    found = plan.derived.get(key)
    if not isinstance(found, Layout):
        found = build_layout(plan, window, group, dtype)
        plan.derived[key] = found
    return found


def build_layout(plan: AttentionPlan, window: int | None, group: int, dtype: torch.dtype) -> Layout:
    """Turn a plan into parts; `group` is the number of query heads per KV head.

    Raises ValueError if a row sees no key.
    """
    parts: list[Part] = []
    rows: list[IntArray] = []
    places: list[IntArray] = []
    base = 0
    for groups, num_rows, num_keys in _batches(_groups(plan, window)):
        part, visible = _part(plan, groups, num_rows, num_keys, window, group, dtype)
        parts.append(part)
        first = np.array([g.first for g in groups])[:, None]
        owner = first + np.arange(num_rows)
        rows.append(owner[visible])
        places.append(base + np.flatnonzero(visible))
        base += len(groups) * num_rows
    return _placed(plan.num_rows, parts, rows, places, base, dtype)


def _groups(plan: AttentionPlan, window: int | None) -> list[Group]:
    """The live items, cut to the keys that some row sees; short ones under equal rows joined."""
    joined: dict[tuple[int, int], tuple[list[tuple[int, int, int]], list[bool]]] = {}
    groups: list[Group] = []
    spans: dict[tuple[int, int], tuple[int, int]] = {}
    positions = plan.row_pos
    for start, length, first, last, key_pos in plan.items.T.tolist():
        if length == 0 or first == last:
            continue
        span = spans.get((first, last))
        if span is None:
            mine = positions[first:last]
            span = spans[first, last] = (int(mine.min()), int(mine.max()))
        lowest, highest = span
        low = key_pos if window is None else max(key_pos, lowest - window + 1)
        high = min(key_pos + length - 1, highest)
        if high < low:
            continue
        masked = high > lowest or (window is not None and low <= highest - window)
        segment = (start + low - key_pos, high - low + 1, low)
        if segment[1] >= LONG_SEGMENT:
            groups.append(Group(first, last, masked, [segment]))
        else:
            segments, masks = joined.setdefault((first, last), ([], []))
            segments.append(segment)
            masks.append(masked)
    for (first, last), (segments, masks) in joined.items():
        groups.append(Group(first, last, any(masks), segments))
    return groups


def _batches(groups: list[Group]) -> list[tuple[list[Group], int, int]]:
    """Groups that share a call, with the rows and keys that each is padded to."""
    batches: list[tuple[list[Group], int, int]] = []
    alike: dict[tuple[int, int], list[Group]] = {}
    for group in groups:
        if group.num_rows > MANY_ROWS or group.num_keys >= LONG_SEGMENT:
            batches.append(([group], group.num_rows, group.num_keys))
        else:
            sizes = (_power_of_two(group.num_rows), _power_of_two(max(group.num_keys, 16)))
            alike.setdefault(sizes, []).append(group)
    for (num_rows, num_keys), members in alike.items():
        most = max(1, min(PART_SLOTS // num_keys, PART_ROWS // num_rows))
        for start in range(0, len(members), most):
            batch = members[start : start + most]
            if len(batch) == 1:
                batches.append((batch, batch[0].num_rows, batch[0].num_keys))
            else:
                batches.append((batch, num_rows, num_keys))
    return batches


def _part(
    plan: AttentionPlan,
    groups: list[Group],
    num_rows: int,
    num_keys: int,
    window: int | None,
    group: int,
    dtype: torch.dtype,
) -> tuple[Part, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
    """One part, and bool `[groups, rows]`: whether that padded row is real and sees a key."""
    alone = len(groups) == 1
    rows: slice | torch.Tensor = slice(groups[0].first, groups[0].last)
    row_pos = plan.row_pos[groups[0].first : groups[0].last]
    keys: slice | torch.Tensor = slice(0)
    visible = np.ones((len(groups), num_rows), dtype=np.bool_)
    mask = None
    segments = [(slot, length) for one in groups for slot, length, _ in one.segments]
    if alone and len(segments) == 1:
        keys = slice(segments[0][0], sum(segments[0]))
    else:
        slots = np.stack([_padded_slots(one, num_keys) for one in groups])
        keys = torch.from_numpy(slots.reshape(-1))
    if not alone:
        lines = np.stack(
            [np.minimum(one.first + np.arange(num_rows), one.last - 1) for one in groups]
        )
        rows = torch.from_numpy(lines.reshape(-1))
        row_pos = plan.row_pos[lines]
        counts = np.array([one.num_rows for one in groups])
        visible = np.arange(num_rows) < counts[:, None]
    if not alone or groups[0].masked:
        key_pos = np.stack([_padded_positions(one, num_keys) for one in groups])[:, None, :]
        positions = row_pos.reshape(len(groups), num_rows, 1)
        seen = key_pos <= positions
        if window is not None:
            seen &= key_pos > positions - window
        visible = visible & seen.any(-1)
        if not seen.all():
            hidden = torch.from_numpy(~seen).unsqueeze(1).repeat_interleave(group, dim=2)
            mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, -torch.inf)
    return Part(len(groups), num_rows, num_keys, rows, keys, mask, segments), visible


def _padded_slots(group: Group, num_keys: int) -> IntArray:
    """The group's slots, filled up with its first one: any slot that holds finite values."""
    slots = np.full(num_keys, group.segments[0][0], dtype=np.int64)
    at = 0
    for slot, length, _ in group.segments:
        slots[at : at + length] = np.arange(slot, slot + length)
        at += length
    return slots


def _padded_positions(group: Group, num_keys: int) -> IntArray:
    """The positions of the group's keys, filled up with one that no row ever sees."""
    positions = np.full(num_keys, _NEVER, dtype=np.int64)
    at = 0
    for _, length, key_pos in group.segments:
        positions[at : at + length] = np.arange(key_pos, key_pos + length)
        at += length
    return positions


def _placed(
    num_rows: int,
    parts: list[Part],
    rows: list[IntArray],
    places: list[IntArray],
    total: int,
    dtype: torch.dtype,
) -> Layout:
    """The layout of `parts`, whose concatenated results belong to `rows` at `places`."""
    owner = np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)
    place = np.concatenate(places) if places else np.empty(0, dtype=np.int64)
    counts = np.bincount(owner, minlength=num_rows)
    if num_rows and counts.min() == 0:
        raise ValueError(f"attention plan: row {int(counts.argmin())} sees no key")
    depth = int(counts.max()) if num_rows else 1
    order = np.argsort(owner, kind="stable")
    column = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    table = np.zeros((num_rows, depth), dtype=np.int64)
    table[owner[order], column] = place[order]
    if depth == 1 and total == num_rows and bool((table[:, 0] == np.arange(num_rows)).all()):
        return Layout(parts, 1, None, None)
    bias = None
    if counts.min() < depth:
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        missing = torch.from_numpy(np.arange(depth) >= counts[:, None])
        bias = torch.zeros(missing.shape, dtype=wide).masked_fill_(missing, -torch.inf)
        bias = bias.unsqueeze(-1)
    return Layout(parts, depth, torch.from_numpy(table.reshape(-1)), bias)


def _power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()
