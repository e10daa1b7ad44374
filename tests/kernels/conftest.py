"""Plans from explicit work items."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from ramet.kernels.plan import AttentionPlan


def _plan(
    items: Sequence[tuple[int, int, int, int, int]],
    row_pos: Sequence[int],
    gathered: list[tuple[int, int]] | None = None,
) -> AttentionPlan:
    """Items are (slot_start, length, row_start, row_end, key_pos)."""
    host = np.array(items, dtype=np.int64).reshape(-1, 5).T.copy()
    return AttentionPlan(host, np.array(row_pos, dtype=np.int64), gathered)


@pytest.fixture
def make_plan() -> Callable[..., AttentionPlan]:
    return _plan
