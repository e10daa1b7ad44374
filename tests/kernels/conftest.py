"""Plans from explicit work items."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from ramet.kernels.plan import AttentionPlan


def _plan(
    items: Sequence[tuple[int, int, int, int, int]],
    row_pos: Sequence[int],
    gathered: list[tuple[int, int]] | None = None,
) -> AttentionPlan:
    """Items are (slot_start, length, row_start, row_end, key_pos)."""
    host = np.array(items, dtype=np.int64).reshape(-1, 5).T.copy()
    tensors = torch.from_numpy(host.astype(np.int32))
    positions = np.array(row_pos, dtype=np.int64)
    return AttentionPlan(
        slot_start=tensors[0],
        length=tensors[1],
        row_start=tensors[2],
        row_end=tensors[3],
        key_pos=tensors[4],
        row_pos=torch.from_numpy(positions.astype(np.int32)),
        count=host.shape[1],
        host_items=host,
        host_row_pos=positions,
        gathered=gathered,
    )


@pytest.fixture
def make_plan() -> Callable[..., AttentionPlan]:
    return _plan
