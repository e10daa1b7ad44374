"""Prefix: how much of a path is there before a call asks for it, from whom, and why no more."""

from __future__ import annotations

from itertools import islice
from typing import Any

from ramet.runtime.cache.booking import UNASKED
from ramet.runtime.cache.node import DECODE, EVER, PROMPT, Node
from ramet.runtime.cache.origin import Run, append_run, names, runs_between
from ramet.runtime.cache.radix_tree import RadixTree

MAX_RUNS = 16
"""Most origins that a report names."""
MAX_NEAREST = 4
"""Most tokens shown beside the one that was missed."""
_MAX_LOOKED_AT = 64


def describe_prefix(tree: RadixTree, node: Node, salt: str | None = None) -> dict[str, Any]:
    """What `tree.demand(node)` would share and charge, as plain data, for a call of that namespace.

    - "cached", "charged": tokens of the path that are there or wanted by somebody, and the rest.
    - "from": whose the cached ones are, in path order: {"tokens", "call_site", "program",
      "program_id", "branch"}. The names are None in the entry that closes a list of too many.
    - "miss": None, or the first charged token: {"position", "token"} and, if it was computed
      before, "evicted_by" (the names of the call that needed its page; None if that was
      forgotten, or is another namespace's), else "nearest", the ids that cached paths have there,
      latest first.

    Costs a walk along the path's nodes.
    """
    runs: list[Run] = []
    charged = 0
    miss: dict[str, Any] | None = None
    for step in node.path():
        gaps: list[tuple[int, int]] = []
        if step.computed < len(step.tokens):
            gaps = [found.span() for found in UNASKED.finditer(step.marks, step.computed)]
        at = 0
        for low, high in gaps:
            charged += high - low
            miss = miss or _describe_miss(tree, step, low, salt)
            for count, who in runs_between(step.origins, at, low):
                append_run(runs, count, who)
            at = high
        for count, who in runs_between(step.origins, at, len(step.tokens)) if at else step.origins:
            append_run(runs, count, who)
    return {
        "cached": node.end - charged,
        "charged": charged,
        "from": _describe_runs(runs),
        "miss": miss,
    }


def _describe_runs(runs: list[Run]) -> list[dict[str, Any]]:
    if len(runs) > MAX_RUNS:
        rest = sum(count for count, _ in runs[MAX_RUNS - 1 :])
        runs = [*runs[: MAX_RUNS - 1], (rest, None)]
    return [{"tokens": count, **names(who)} for count, who in runs]


def _describe_miss(tree: RadixTree, node: Node, index: int, salt: str | None) -> dict[str, Any]:
    miss: dict[str, Any] = {"position": node.start + index, "token": node.tokens[index]}
    if node.marks[index] & EVER:
        who = tree.evictor(node, index)
        miss["evicted_by"] = names(who) if who is not None and who.salt == salt else None
    else:
        miss["nearest"] = [] if index else _nearest(node)
    return miss


def _nearest(node: Node) -> list[int]:
    """The first tokens of the node's siblings, of those that are there."""
    assert node.parent is not None
    looked_at = islice(reversed(node.parent.children.values()), _MAX_LOOKED_AT)
    there = (c for c in looked_at if c.computed or c.marks[0] & (PROMPT | DECODE))
    return [child.tokens[0] for child in islice(there, MAX_NEAREST)]
