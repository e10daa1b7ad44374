"""Waits: who waits to run at and below a node, kept on the tree so that finding one is a walk.

Whoever waits is counted at its own node and at every ancestor, so the tree itself says which
subtrees have work. Splits and merges keep the counts true. Costs the depth of the path per change,
however many wait.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ramet.runtime.cache.node import Node


@dataclasses.dataclass(slots=True)
class Waits:
    """The waiting of one lane at and below one node."""

    count: int = 0
    """How many wait at the node's end or below it."""
    here: dict[Any, None] = dataclasses.field(default_factory=dict)
    """Those whose path ends at the node, in the order in which they came."""
    below: dict[int, None] = dataclasses.field(default_factory=dict)
    """The children with waiting, by their first token, in the order in which they got some."""


def add_waiting(node: Node, lane: int, who: object) -> None:
    """Note that `who` waits at the end of `node`'s path."""
    waits = _of(node, lane)
    waits.here[who] = None
    waits.count += 1
    child, parent = node, node.parent
    while parent is not None:
        waits = _of(parent, lane)
        waits.below[child.tokens[0]] = None
        waits.count += 1
        child, parent = parent, parent.parent


def remove_waiting(node: Node, lane: int, who: object) -> None:
    """Note that `who` waits there no more."""
    del node.waits[lane].here[who]
    child: Node | None = None
    step: Node | None = node
    while step is not None:
        waits = step.waits[lane]
        waits.count -= 1
        if child is not None and lane not in child.waits:
            del waits.below[child.tokens[0]]
        if not waits.count:
            del step.waits[lane]
        child, step = step, step.parent


def split_waits(upper: Node, lower: Node) -> None:
    """`upper` has become the head of the edge `lower`: what waited there now waits below it."""
    for lane, waits in lower.waits.items():
        upper.waits[lane] = Waits(waits.count, below={lower.tokens[0]: None})


def nearest_waiting(node: Node, lane: int) -> Node | None:
    """The deepest node on the path to `node` at or below which somebody waits."""
    for step in node.ancestors():
        if lane in step.waits:
            return step
    return None


def _of(node: Node, lane: int) -> Waits:
    waits = node.waits.get(lane)
    if waits is None:
        waits = node.waits[lane] = Waits()
    return waits
