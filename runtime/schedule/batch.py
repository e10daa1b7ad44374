"""Batch: the frozen plan of one step, in plain lists.

Rows are depth-first over the part of the tree that the step touches, so that every node covers a
contiguous range of rows and a shared segment is one attention item for all rows beneath it.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Sequence as Seq
from itertools import accumulate
from typing import TYPE_CHECKING

from ramet.runtime.cache.node import Node

if TYPE_CHECKING:
    from ramet.runtime.schedule.sequence import Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class AttentionItems:
    """The attention plan, flat: item i lets rows `[row_start, row_end)` see one segment.

    The segment is `length` consecutive pool slots from `slot_start`, holding the tokens at
    positions `key_pos …`; a row sees those up to its own position.
    """

    slot_start: list[int]
    length: list[int]
    row_start: list[int]
    row_end: list[int]
    key_pos: list[int]


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """What one step computes, and for whom its logits are.

    `token_ids`, `positions`, `slots`: one entry per row. `ranges`: (node, number of its next
    tokens), parents first. `ready`: running sequences whose whole path is computed after it.
    """

    token_ids: list[int]
    positions: list[int]
    slots: list[int]
    items: AttentionItems
    ranges: tuple[tuple[Node, int], ...]
    ready: tuple[Sequence, ...]
    prefill_rows: int = 0
    """Rows that are pieces of prompts; each of the others is the next token of a decode."""
    last_slots: list[int] | None = None
    """Slots of the last tokens of `ready`, where each has a row of its own."""

    def __bool__(self) -> bool:
        return bool(self.ranges or self.ready)


def build_batch(
    ranges: Seq[tuple[Node, int]], ready: Seq[Sequence], prefill_rows: int = 0
) -> Batch:
    """Lay out rows and items for nodes whose next tokens already have their slots."""
    return Layout(ranges).batch(ready, prefill_rows)


class Layout:
    """Where the rows and items of a step stand; kept from step to step while sequences only decode.

    Laying out costs the part of the tree that the rows stand on. When a step has the rows of the
    one before, each one token further, and the tree has kept its shape, `advance` moves the same
    layout on for a small cost per row.
    """

    def __init__(self, ranges: Seq[tuple[Node, int]], version: int = -1) -> None:
        self._ranges = tuple(ranges)
        self._nodes = [node for node, _ in ranges]
        self._version = version
        self._token_ids: list[int] = []
        self._positions: list[int] = []
        self._slots: list[int] = []
        self._items = AttentionItems([], [], [], [], [])
        self._rows: list[Node] = []
        self._tails: list[int] = []
        """Index of the item of its node's last segment, for the first row of each node."""
        self._lay_out(dict(ranges))
        self._order: list[int] | None = None
        """Index in `ranges` of each row, where it isn't the row itself and each has one."""
        if len(self._rows) == len(self._nodes) and self._rows != self._nodes:
            place = {node: index for index, node in enumerate(self._nodes)}
            self._order = [place[node] for node in self._rows]

    def batch(
        self, ready: Seq[Sequence], prefill_rows: int = 0, last_slots: list[int] | None = None
    ) -> Batch:
        """The step as it is laid out. Its lists never change: `advance` makes new ones."""
        return Batch(
            self._token_ids,
            self._positions,
            self._slots,
            self._items,
            self._ranges,
            tuple(ready),
            prefill_rows,
            last_slots,
        )

    def fits(self, nodes: list[Node], version: int) -> bool:
        """Whether this is the layout of `nodes`, in that order and one token each, in a tree of
        that shape."""
        return version == self._version and nodes == self._nodes and len(nodes) == len(self._rows)

    def advance(self, nodes: list[Node], slots: list[int], version: int) -> bool:
        """Move on by one token per row, the last ones of their nodes, which have got `slots`;
        False, and nothing is done, if it doesn't fit."""
        if not self.fits(nodes, version):
            return False
        if self._order is not None:
            slots = [slots[index] for index in self._order]
        following = [slot + 1 for slot in self._slots]
        self._slots = slots
        self._token_ids = [node.tokens[-1] for node in self._rows]
        self._positions = [position + 1 for position in self._positions]
        items = self._items
        length = items.length.copy()
        for tail in self._tails:
            length[tail] += 1
        self._items = AttentionItems(
            items.slot_start, length, items.row_start, items.row_end, items.key_pos
        )
        if slots != following:
            self._jump([row for row, slot in enumerate(slots) if slot != following[row]])
        return True

    def _jump(self, rows: list[int]) -> None:
        """Let the last token of each of `rows` begin a segment, instead of going on with one."""
        items, count = self._items, len(self._items.length)
        for index, row in enumerate(rows):
            items.length[self._tails[row]] -= 1
            self._tails[row] = count + index
        self._items = AttentionItems(
            items.slot_start + [self._slots[row] for row in rows],
            items.length + [1] * len(rows),
            items.row_start + rows,
            items.row_end + [row + 1 for row in rows],
            items.key_pos + [self._positions[row] for row in rows],
        )

    def _lay_out(self, counts: dict[Node, int]) -> None:
        children, tops = _touched(counts)
        token_ids, items = self._token_ids, self._items
        # An entry is a node to enter, or (its first row, node) to leave.
        stack: list[tuple[int, Node]] = [(-1, top) for top in reversed(tops)]
        while stack:
            first, node = stack.pop()
            own = counts.get(node, 0)
            if first < 0:
                first = len(token_ids)
                if own:
                    low, high = node.computed, node.computed + own
                    token_ids += node.tokens[low:high]
                    self._positions += range(node.start + low, node.start + high)
                    self._slots += node.slots(low, high) if own > 1 else [node.last_slot()]
                    self._rows += [node] * own
                    self._tails += [-1] * own
                if node in children:
                    stack.append((first, node))
                    stack += [(-1, child) for child in reversed(children[node])]
                    continue
            _add_items(items, node, first, len(token_ids), own)
            if own:
                self._tails[first] = len(items.length) - 1


def _touched(counts: dict[Node, int]) -> tuple[dict[Node, list[Node]], list[Node]]:
    """The part of the tree above the rows: children by node, and the roots."""
    children: dict[Node, list[Node]] = {}
    tops: list[Node] = []
    seen: set[Node] = set()
    for node in counts:
        step: Node | None = node
        child: Node | None = None
        while step is not None:
            known = step in seen
            if child is not None:
                children.setdefault(step, []).append(child)
            if known:
                break
            seen.add(step)
            child, step = step, step.parent
            if step is None:
                tops.append(child)
    return children, tops


def _add_items(items: AttentionItems, node: Node, first: int, end: int, own: int) -> None:
    """One item per segment of the node, for its own new rows that can see it and all below."""
    if len(node.segments) <= 1:
        for start, length in node.segments:
            items.slot_start.append(start)
            items.length.append(length)
            items.row_start.append(first)
            items.row_end.append(end)
            items.key_pos.append(node.start)
        return
    starts, lengths = zip(*node.segments, strict=True)
    positions = list(accumulate(lengths[:-1], initial=node.start))
    new_at = node.start + node.computed
    # An aged pool's nodes have many segments, and all rows see those before the first own row.
    seen = bisect_right(positions, new_at) if own else len(positions)
    items.slot_start.extend(starts[:seen])
    items.length.extend(lengths[:seen])
    items.row_start.extend([first] * seen)
    items.row_end.extend([end] * seen)
    items.key_pos.extend(positions[:seen])
    for index in range(seen, len(positions)):
        row = first + min(positions[index] - new_at, own)
        if row < end:
            items.slot_start.append(starts[index])
            items.length.append(lengths[index])
            items.row_start.append(row)
            items.row_end.append(end)
            items.key_pos.append(positions[index])
