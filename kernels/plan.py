"""The attention plan of one step: which rows read which stretch of the KV pool.

Built once per step from the scheduler's batch, then read by every layer and by every backend.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable

import numpy as np
import numpy.typing as npt
import torch

IntArray = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class AttentionPlan:
    """Flat work items: rows `row_start..row_end-1` attend to `length` consecutive pool slots.

    The five item tensors are int32 `[capacity]`; the first `count` entries are live, the others
    have length zero, so that a plan of a given capacity can be replayed. Visibility is positional:
    a row at position `t` sees a key at position `p` when `p <= t`, and in a layer with a sliding
    window of `w` tokens when also `p > t - w`. Rows are in depth-first order of the tree, so a
    shared node is one item over a contiguous range of rows; every row is covered by an item with
    a visible key, and every slot of a live item holds computed K/V once the step's own rows are
    written.
    """

    slot_start: torch.Tensor
    """First pool slot of the item."""
    length: torch.Tensor
    """Number of slots of the item."""
    row_start: torch.Tensor
    """First row that attends to the item."""
    row_end: torch.Tensor
    """One past the last row that attends to the item."""
    key_pos: torch.Tensor
    """Position of the item's first slot; slot `slot_start + j` stands at `key_pos + j`."""
    row_pos: torch.Tensor
    """int32 `[rows]`: the position of each row."""
    count: int
    """Number of live items."""
    host_items: IntArray
    """int64 `[5, count]` on the host: the live items, one line per tensor in the order above."""
    host_row_pos: IntArray
    """int64 `[rows]` on the host: `row_pos`."""
    gathered: list[tuple[int, int]] | None = None
    """Where a list is given, each layer appends `(slot_start, length)` for every read of a
    segment of the pool: a test counts there that a shared segment is read once per step."""
    derived: dict[Hashable, object] = dataclasses.field(default_factory=dict)
    """What a backend derives from the plan once for all layers, under the backend's own key."""

    @property
    def num_rows(self) -> int:
        """Number of rows of the step."""
        return len(self.host_row_pos)
