"""Pieces of the output head: all tokens that may come, and little else."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba")

from ramet.kernels.cpu.fused.fields import Linear
from ramet.kernels.cpu.fused.head import MOST_PIECES, pieces
from ramet.kernels.cpu.fused.tile import PANEL

VOCAB = 49_150


def head() -> np.ndarray:
    line = np.zeros(len(Linear), dtype=np.int64)
    line[Linear.VALUES], line[Linear.SCALES], line[Linear.TO] = 1 << 40, 1 << 30, 1 << 20
    line[Linear.OUTPUTS], line[Linear.INPUTS] = VOCAB, 576
    return line


def mask(*tokens: int) -> bytes:
    return sum(1 << token for token in set(tokens)).to_bytes((VOCAB + 31) // 32 * 4, "little")


def ranges(lines: np.ndarray) -> list[range]:
    """The outputs of each piece; its addresses say the same three times."""
    found = []
    for line in lines:
        first = (int(line[Linear.TO]) - (1 << 20)) // 4
        assert line[Linear.SCALES] == (1 << 30) + 4 * first
        assert line[Linear.VALUES] == (1 << 40) + first // 16 * 1000
        assert first % PANEL == 0
        assert line[Linear.INPUTS] == 576
        found.append(range(first, first + int(line[Linear.OUTPUTS])))
    return found


def test_each_token_is_in_a_piece():
    masks = [mask(0, 70, 71, 9000), mask(VOCAB - 1, 100, 9031)]
    lines = pieces(head(), 1000, masks)
    assert lines is not None
    found = ranges(lines)
    for token in (0, 70, 71, 9000, VOCAB - 1, 100, 9031):
        assert any(token in piece for piece in found)
    assert sum(map(len, found)) <= 6 * max(PANEL, 32)
    assert max(piece.stop for piece in found) == VOCAB


def test_neighbours_are_one_piece():
    lines = pieces(head(), 1000, [mask(*range(640, 1280))])
    assert lines is not None
    assert [(piece.start, piece.stop) for piece in ranges(lines)] == [(640, 1280)]


def test_of_many_tokens_the_head_is_computed_whole():
    assert pieces(head(), 1000, [mask(*range(VOCAB))]) is None
    assert pieces(head(), 1000, [mask(*range(VOCAB // 2))]) is None
    apart = [320 * number for number in range(MOST_PIECES + 1)]
    assert pieces(head(), 1000, [mask(*apart)]) is None
    lines = pieces(head(), 1000, [mask(*apart[:-1])])
    assert lines is not None
    assert len(lines) == MOST_PIECES


def test_of_no_tokens_the_head_is_computed_whole():
    assert pieces(head(), 1000, [mask()]) is None
