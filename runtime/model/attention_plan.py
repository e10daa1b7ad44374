"""From the scheduler's batch, lists of integers, to the tensors that a forward pass reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from ramet.kernels.plan import AttentionPlan, IntArray

_LEAST_CAPACITY = 16


class Items(Protocol):
    """Work items as five lists of one length; what they mean is `AttentionPlan`'s to say."""

    @property
    def slot_start(self) -> Sequence[int]:
        """First pool slot of each item."""

    @property
    def length(self) -> Sequence[int]:
        """Slots of each item."""

    @property
    def row_start(self) -> Sequence[int]:
        """First row of each item."""

    @property
    def row_end(self) -> Sequence[int]:
        """One past the last row of each item."""

    @property
    def key_pos(self) -> Sequence[int]:
        """Position of each item's first slot."""


class Rows(Protocol):
    """What the model needs of one step's batch: its rows, depth-first, and its items."""

    @property
    def token_ids(self) -> Sequence[int]:
        """The token of each row."""

    @property
    def positions(self) -> Sequence[int]:
        """The position of each row's token on its path."""

    @property
    def slots(self) -> Sequence[int]:
        """The pool slot that each row fills."""

    @property
    def items(self) -> Items:
        """The segments that the rows attend to."""


def item_lines(items: Items) -> IntArray:
    """The items as int64 `[5, count]`: a line for each of their lists."""
    lists = (items.slot_start, items.length, items.row_start, items.row_end, items.key_pos)
    return np.array(lists, dtype=np.int64).reshape(5, -1)


def build_plan(
    items: Items,
    positions: Sequence[int],
    device: str | torch.device,
    gathered: list[tuple[int, int]] | None = None,
) -> AttentionPlan:
    """The plan of one step, padded with empty items to the next power of two.

    One copy to the device carries all of it. `gathered` is handed on to the plan.
    """
    host = item_lines(items)
    row_pos = np.array(positions, dtype=np.int64)
    count, rows = host.shape[1], len(row_pos)
    capacity = max(_LEAST_CAPACITY, 1 << max(count - 1, 0).bit_length())
    flat = np.zeros(5 * capacity + rows, dtype=np.int32)
    flat[: 5 * capacity].reshape(5, capacity)[:, :count] = host
    flat[5 * capacity :] = row_pos
    moved = torch.from_numpy(flat).to(device)
    slot_start, length, row_start, row_end, key_pos = moved[: 5 * capacity].view(5, capacity)
    return AttentionPlan(
        slot_start=slot_start,
        length=length,
        row_start=row_start,
        row_end=row_end,
        key_pos=key_pos,
        row_pos=moved[5 * capacity :],
        count=count,
        host_items=host,
        host_row_pos=row_pos,
        gathered=gathered,
    )
