"""From the scheduler's batch, lists of integers, to the plan that a forward pass reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ramet.kernels.plan import AttentionPlan, IntArray


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


def build_plan(batch: Rows, gathered: list[tuple[int, int]] | None = None) -> AttentionPlan:
    """The plan of one step; `gathered` is handed on to it."""
    positions = np.array(batch.positions, dtype=np.int64)
    return AttentionPlan(item_lines(batch.items), positions, gathered)
