"""The attention plan of one step: which rows read which stretch of the KV pool.

Built once per step from the scheduler's batch, then read by every layer and by every backend.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class AttentionPlan:
    """Flat work items: rows `row_start..row_end-1` attend to `length` consecutive pool slots.

    Visibility is positional: a row at position `t` sees a key at position `p` when `p <= t`, and in
    a layer with a sliding window of `w` tokens when also `p > t - w`. Rows are in depth-first order
    of the tree, so a shared node is one item over a contiguous range of rows; every row is covered
    by an item with a visible key, and every slot of an item holds computed K/V once the step's own
    rows are written.

    On the host; what a device needs of it, its backend derives.
    """

    items: IntArray
    """int64 `[5, count]`, a line each: first pool slot; slots; first row that attends to them; one
    past the last; position of the first slot. Slot `start + j` stands at `position + j`."""
    row_pos: IntArray
    """int64 `[rows]`: the position of each row."""
    gathered: list[tuple[int, int]] | None = None
    """Where a list is given, each layer appends `(first slot, length)` for every read of a segment
    of the pool: a test counts there that a shared segment is read once per step."""
    derived: dict[Hashable, object] = dataclasses.field(default_factory=dict)
    """What a backend derives from the plan once for all layers, under the backend's own key."""

    @property
    def num_rows(self) -> int:
        """Number of rows of the step."""
        return len(self.row_pos)
