"""The units of tree attention as tables on a device: packed on the host, uploaded with the step.

A captured graph reads its tables where they were when it was captured, so they have a capacity, and
what a step doesn't fill is empty. Each table begins at a multiple of 16 bytes: Triton compiles a
kernel anew for pointers that don't.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from ramet.kernels.gpu.attention_units import UNITS_EACH, Units, build_units
from ramet.kernels.gpu.configs import architecture, block_dim, num_processors, tiles
from ramet.kernels.plan import AttentionPlan

SEGMENTS_EACH = 16
"""Segments for each decoding row that a graph has room for."""
PARTIALS_EACH = 32
"""Partial rows for each decoding row that a graph has room for, and for `_SPARE` more."""
_SPARE = 16


@dataclasses.dataclass(frozen=True)
class Capacity:
    """How many entries the tables of one window have room for."""

    rows: int
    small: int
    small_segments: int
    large: int
    large_segments: int
    partials: int

    @classmethod
    def of(cls, units: Units, rows: int) -> Capacity:
        """Just enough."""
        return cls(
            rows,
            len(units.small.units),
            len(units.small.segments),
            len(units.large.units),
            len(units.large.segments),
            units.partials,
        )

    def holds(self, other: Capacity) -> bool:
        """Whether there is room for what the other has room for."""
        mine, theirs = dataclasses.astuple(self), dataclasses.astuple(other)
        return all(a >= b for a, b in zip(mine, theirs, strict=True))

    @property
    def sizes(self) -> list[int]:
        """Numbers of each table, in order, with what fills it up to 16 bytes."""
        plain = (
            self.rows,
            5 * self.small,
            3 * self.small_segments,
            5 * self.large,
            3 * self.large_segments,
            self.rows + 1,
            self.partials,
        )
        return [-(-size // 4) * 4 for size in plain]


@dataclasses.dataclass(frozen=True)
class Tables:
    """The tables of `Units`, int32 on a device; units beyond those of the step have no rows."""

    row_pos: torch.Tensor
    """`[rows]`: positions."""
    small: torch.Tensor
    """`[capacity, 5]`."""
    small_segments: torch.Tensor
    large: torch.Tensor
    """`[capacity, 5]`."""
    large_segments: torch.Tensor
    merge_start: torch.Tensor
    """`[rows + 1]`."""
    merge_from: torch.Tensor
    partials: int
    """Capacity for partial rows."""


def pack(
    units: Units, row_pos: npt.NDArray[np.int64], room: Capacity, out: npt.NDArray[np.int32]
) -> None:
    """Write the tables to `out`, `[sum(room.sizes)]`. Segments, partial rows and positions beyond
    those of the step, which nobody reads, are left as they were."""
    at = np.cumsum([0, *room.sizes])
    for start, table in (
        (at[0], row_pos),
        (at[1], units.small.units),
        (at[2], units.small.segments),
        (at[3], units.large.units),
        (at[4], units.large.segments),
        (at[5], units.merge_start),
        (at[6], units.merge_from),
    ):
        out[start : start + table.size] = table.reshape(-1)
    out[at[1] + units.small.units.size : at[2]] = 0
    out[at[3] + units.large.units.size : at[4]] = 0
    out[at[5] + units.merge_start.size : at[6]] = units.partials


def view(flat: torch.Tensor, room: Capacity) -> Tables:
    """The tables that lie in `flat`, int32 `[sum(room.sizes)]`."""
    parts = flat.split(room.sizes)
    return Tables(
        parts[0][: room.rows],
        parts[1][: 5 * room.small].view(-1, 5),
        parts[2][: 3 * room.small_segments].view(-1, 3),
        parts[3][: 5 * room.large].view(-1, 5),
        parts[4][: 3 * room.large_segments].view(-1, 3),
        parts[5][: room.rows + 1],
        parts[6][: room.partials],
        room.partials,
    )


Key = tuple[str, int | None]


def table_key(window: int | None) -> Key:
    """Where a plan keeps `(Units or None, Tables)` for layers of a window."""
    return ("gpu", window)


class PlanTables:
    """Makes the tables of one model's plans: one set for each window that a layer has."""

    def __init__(
        self,
        heads: int,
        kv_heads: int,
        head_dim: int,
        windows: Sequence[int | None],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        small, large = tiles(architecture(device), block_dim(head_dim), dtype)
        self._group, self._kv_heads = heads // kv_heads, kv_heads
        self._lines = small.lines, large.lines
        self._processors = num_processors(device)
        self.windows = tuple(dict.fromkeys(windows))
        """The windows, each once."""

    def cut(self, plan: AttentionPlan) -> list[Units]:
        """The units of a plan, for each window; also raises ValueError if a row sees no key."""
        return [
            build_units(plan, self._group, self._kv_heads, window, self._lines, self._processors)
            for window in self.windows
        ]

    def decode_room(self, rows: int) -> Capacity:
        """Room for what steps of so many decoding rows usually need, however long their contexts:
        what is split is split into about `UNITS_EACH` programs for each processor."""
        pieces = UNITS_EACH * self._processors // self._kv_heads + 1
        least = max(1, self._lines[0] // self._group)
        large = 0 if rows <= least else rows + pieces
        small = 2 * rows + pieces
        return Capacity(
            rows,
            small,
            small + SEGMENTS_EACH * rows,
            large,
            large + SEGMENTS_EACH * rows if large else 0,
            PARTIALS_EACH * (rows + _SPARE),
        )

    def attach(
        self,
        plan: AttentionPlan,
        units: Sequence[Units | None],
        rooms: Sequence[Capacity],
        flat: torch.Tensor,
    ) -> None:
        """Let layers find in `plan` the tables that lie in `flat`, int32 on the device, one window
        after the other."""
        sizes = [sum(room.sizes) for room in rooms]
        for window, found, room, part in zip(
            self.windows, units, rooms, flat.split(sizes), strict=True
        ):
            plan.derived[table_key(window)] = (found, view(part, room))
