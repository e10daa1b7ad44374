"""Booking: who asked first for the tokens of an edge, and whose the rows are that computed them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ramet.runtime.cache.node import DECODE, EVER, PROMPT, Node
from ramet.runtime.cache.origin import Origin, paint_runs, runs_between

UNASKED = re.compile(b"[\\x00\\x%02x]+" % EVER)
"""Finds, in the marks of tokens that aren't computed, those that nobody has asked for."""
_DEMAND_PROMPT = bytes(m if m & (PROMPT | DECODE) else m | PROMPT for m in range(256))


def demand_edge(node: Node, who: Origin | None) -> int:
    """Mark the edge's tokens that aren't computed as wanted; how many nobody had asked for yet,
    which are `who`'s from now on."""
    charged = 0
    wanted = node.marks[node.computed :]
    for found in UNASKED.finditer(wanted):
        charged += found.end() - found.start()
        low, high = node.computed + found.start(), node.computed + found.end()
        node.origins = paint_runs(node.origins, low, high, who)
    node.marks[node.computed :] = wanted.translate(_DEMAND_PROMPT)
    return charged


def book_decodes(ranges: Iterable[tuple[Node, int]]) -> list[tuple[Node, int]]:
    """Book the rows that are the last token of an edge, sampled and computed for the first time,
    as most rows are. Returns the other ranges."""
    others: list[tuple[Node, int]] = []
    for node, count in ranges:
        marks = node.marks
        if count == 1 and marks[-1] == DECODE and node.computed == len(marks) - 1:
            marks[-1] = EVER
            node.computed += 1
            who = node.origins[-1][1]
            if who is not None:
                who.account.computed_tokens += 1
        else:
            others.append((node, count))
    return others


def book_rows(node: Node, low: int, high: int) -> tuple[int, int]:
    """Book the rows of tokens `[low, high)`, which have just been computed, on their origins.

    Returns how many had been computed before, and how many of the others were prompt.
    """
    marks = node.marks[low:high]
    again = sum(marks.count(m) for m in (EVER, EVER | PROMPT, EVER | DECODE))
    prompt = marks.count(PROMPT)
    node.marks[low:high] = bytes([EVER]) * (high - low)
    whose = node.origins[-1:]
    if high < len(node.tokens) or high - low > whose[0][0]:
        whose = runs_between(node.origins, low, high)
    for length, who in whose:
        if who is not None:
            who.account.computed_tokens += min(length, high - low)
    return again, prompt
