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

    def __bool__(self) -> bool:
        return bool(self.ranges or self.ready)


def build_batch(ranges: Seq[tuple[Node, int]], ready: Seq[Sequence]) -> Batch:
    """Lay out rows and items for nodes whose next tokens already have their slots."""
    counts = dict(ranges)
    children: dict[Node, list[Node]] = {}
    tops: list[Node] = []
    seen: set[Node] = set()
    for node in counts:
        child: Node | None = None
        for step in node.ancestors():
            known = step in seen
            seen.add(step)
            if child is not None:
                children.setdefault(step, []).append(child)
            if known:
                break
            child = step
            if step.parent is None:
                tops.append(step)
    token_ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    items = AttentionItems([], [], [], [], [])
    # An entry is a node to enter, or (its first row, node) to leave.
    stack: list[tuple[int, Node]] = [(-1, top) for top in reversed(tops)]
    while stack:
        first, node = stack.pop()
        if first >= 0:
            _add_items(items, node, first, len(token_ids), counts.get(node, 0))
            continue
        stack.append((len(token_ids), node))
        stack.extend((-1, child) for child in reversed(children.get(node, ())))
        if count := counts.get(node, 0):
            low, high = node.computed, node.computed + count
            token_ids += node.tokens[low:high]
            positions += range(node.start + low, node.start + high)
            slots += node.slots(low, high)
    return Batch(token_ids, positions, slots, items, tuple(ranges), tuple(ready))


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
