"""Batch: the frozen plan of one step, in plain lists.

Rows are depth-first over the part of the tree that the step touches, so that every node covers a
contiguous range of rows and a shared segment is one attention item for all rows beneath it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence as Seq
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
        self._tails: dict[Node, int] = {}
        """Index of the item of each node's last segment, for nodes with rows."""
        self._lay_out(dict(ranges))

    def batch(self, ready: Seq[Sequence], prefill_rows: int = 0) -> Batch:
        """The step as it is laid out."""
        items = self._items
        frozen = AttentionItems(
            list(items.slot_start),
            list(items.length),
            list(items.row_start),
            list(items.row_end),
            list(items.key_pos),
        )
        return Batch(
            self._token_ids,
            self._positions,
            self._slots,
            frozen,
            self._ranges,
            tuple(ready),
            prefill_rows,
        )

    def advance(self, nodes: list[Node], version: int) -> bool:
        """Move on by one token per row; False, and nothing is done, if this isn't the layout of
        `nodes`, in that order and one token each, in a tree of that shape."""
        if version != self._version or nodes != self._nodes or len(nodes) != len(self._rows):
            return False
        items, tails = self._items, self._tails
        slots: list[int] = []
        for row, node in enumerate(self._rows):
            start, count = node.segments[-1]
            slots.append(start + count - 1)
            tail = tails[node]
            if items.slot_start[tail] == start:
                items.length[tail] = count
            else:
                tails[node] = len(items.length)
                items.slot_start.append(start)
                items.length.append(count)
                items.row_start.append(row)
                items.row_end.append(row + 1)
                items.key_pos.append(self._positions[row] + 2 - count)
        self._slots = slots
        self._token_ids = [node.tokens[node.computed] for node in self._rows]
        self._positions = [position + 1 for position in self._positions]
        return True

    def _lay_out(self, counts: dict[Node, int]) -> None:
        children, tops = _touched(counts)
        token_ids, items = self._token_ids, self._items
        # An entry is a node to enter, or (its first row, node) to leave.
        stack: list[tuple[int, Node]] = [(-1, top) for top in reversed(tops)]
        while stack:
            first, node = stack.pop()
            if first >= 0:
                own = counts.get(node, 0)
                _add_items(items, node, first, len(token_ids), own)
                if own:
                    self._tails[node] = len(items.length) - 1
                continue
            stack.append((len(token_ids), node))
            stack.extend((-1, child) for child in reversed(children.get(node, ())))
            if count := counts.get(node, 0):
                low, high = node.computed, node.computed + count
                token_ids += node.tokens[low:high]
                self._positions += range(node.start + low, node.start + high)
                self._slots += node.slots(low, high)
                self._rows += [node] * count


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
    new_at = node.start + node.computed
    pos = node.start
    for start, count in node.segments:
        hidden = min(max(pos - new_at, 0), own)  # own rows that stand before this segment
        if first + hidden < end:
            items.slot_start.append(start)
            items.length.append(count)
            items.row_start.append(first + hidden)
            items.row_end.append(end)
            items.key_pos.append(pos)
        pos += count
