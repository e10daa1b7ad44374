"""Pieces of the output head: what of it is computed where only some tokens may come next.

Reading the head takes a fifth of a step of a small model, and a grammar often allows a few tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ramet.kernels.cpu.fused.fields import Linear
from ramet.kernels.cpu.fused.lanes import LANES
from ramet.kernels.cpu.fused.tile import PANEL
from ramet.kernels.plan import IntArray

MOST_PIECES = 64
"""Of more, the head is computed whole: each is a phase of its own."""
_WORD = 32
"""Tokens of a mask's word."""


def pieces(head: IntArray, block_bytes: int, masks: Sequence[bytes]) -> IntArray | None:
    """The `Linear` lines of pieces that have all tokens that one of `masks` allows; None where the
    whole head, whose line is `head`, is as fast.

    A mask is little-endian 32-bit words with a bit for each token; `block_bytes` are those of 16
    outputs.
    """
    outputs = head[Linear.OUTPUTS]
    words = np.frombuffer(masks[0], dtype="<u4").copy()
    for mask in masks[1:]:
        words |= np.frombuffer(mask, dtype="<u4")
    used = np.flatnonzero(words)
    if not len(used) or 4 * _WORD * len(used) > outputs:
        return None
    # Runs of words that follow one another.
    starts = np.flatnonzero(np.diff(used, prepend=-2) > 1)
    if len(starts) > MOST_PIECES:
        return None
    ends = np.append(starts[1:], len(used)) - 1
    first = used[starts] * _WORD // PANEL * PANEL
    last = np.minimum(-(-(used[ends] + 1) * _WORD // PANEL) * PANEL, outputs)
    lines = np.repeat(head[None], len(first), axis=0)
    lines[:, Linear.VALUES] += first // LANES * block_bytes
    lines[:, Linear.SCALES] += 4 * first
    lines[:, Linear.TO] += 4 * first
    lines[:, Linear.OUTPUTS] = last - first
    return lines
