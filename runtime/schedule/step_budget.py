"""StepBudget: how many rows of prompts a step may have beside decodes, to keep a target time.

The scheduler asks it when it fills a step, and the engine tells it what the step then took. Chunks
of prompts mixed with decodes, sized by a bound on the time between tokens, are Sarathi-Serve's
(Agrawal et al. 2024); here the size follows what steps take on this machine, now.
"""

from __future__ import annotations

import bisect
import itertools
import statistics
from collections import deque
from collections.abc import Iterable

FLOOR_ROWS = 16
"""Rows of prompts that a step may always have, so that prompts come on whatever the target is."""
GROWTH = 4
"""How many times more rows of prompts a step may have than any of the last few mixed ones had: what
few rows take is too near the noise to say what many would."""
WINDOW = 5
"""Steps of a kind that are remembered. Medians over them pass over two slow ones."""


class StepBudget:
    """What steps take, as seconds = decodes + rows of prompts * seconds of one; learnt.

    The part of the decodes is the median of recent steps without prompts and with about as many
    decodes, the price of a row of prompts the weighted median of what recent mixed steps took
    beyond it. So a mistaken part of the decodes is put right by the price: where the size
    settles, steps take the target. A target that no size can keep leaves `FLOOR_ROWS`.
    """

    def __init__(self, target_seconds: float, chunk_tokens: int) -> None:
        """`target_seconds`: of a step in which somebody decodes; `chunk_tokens`: most rows."""
        self.target_seconds = target_seconds
        self.chunk_tokens = chunk_tokens
        self._decodes: dict[int, deque[float]] = {}
        """Seconds of steps without prompts, by the bit length of their number of decodes."""
        self._mixed: deque[tuple[int, int, float]] = deque(maxlen=WINDOW)
        """(bit length of the decodes, rows of prompts, seconds) of steps with both."""
        self._alone: deque[tuple[int, float]] = deque(maxlen=WINDOW)
        """(rows, seconds) of steps with prompts only: a first guess."""

    def note(self, decode_rows: int, prefill_rows: int, seconds: float) -> None:
        """A step of so many rows took that long. One that took no time says nothing, nor does a
        piece of a prompt below the floor."""
        if seconds <= 0:
            return
        size = decode_rows.bit_length()
        if not prefill_rows:
            if size not in self._decodes:
                self._decodes[size] = deque(maxlen=WINDOW)
            self._decodes[size].append(seconds)
        elif prefill_rows >= self._floor:
            if size:
                self._mixed.append((size, prefill_rows, seconds))
            else:
                self._alone.append((prefill_rows, seconds))

    def prefill_rows(self, decode_rows: int) -> int:
        """Most rows of prompts beside so many decodes: at least the floor, at most what
        `chunk_tokens` leaves."""
        most = self.chunk_tokens - decode_rows
        return max(min(self._rows(max(decode_rows, 1).bit_length()), most), 0)

    @property
    def _floor(self) -> int:
        return min(FLOOR_ROWS, self.chunk_tokens)

    def _rows(self, size: int) -> int:
        base = self._decode_seconds(size)
        left = self.target_seconds - base
        if left <= 0:
            return self._floor
        if self._mixed:
            price = _price((rows, seconds - base) for _, rows, seconds in self._mixed)
            most = GROWTH * max(rows for _, rows, _ in self._mixed)
        elif self._alone:
            price, most = _price(self._alone), self.chunk_tokens
        else:
            return self._floor
        if left >= price * most:
            return max(most, self._floor)
        return max(int(left / price), self._floor)

    def _decode_seconds(self, size: int) -> float:
        """What about so many decodes take: as far as is known, at most what a recent step with as
        many and a prompt took. The next smaller known number stands for one that isn't."""
        known = self._decodes
        near = max((s for s in known if s <= size), default=min(known, default=0))
        found = statistics.median(known[near]) if known else 0.0
        return min([found, *(seconds for other, _, seconds in self._mixed if other >= size)])


def _price(pieces: Iterable[tuple[int, float]]) -> float:
    """Seconds of one row: the median over (rows, seconds), each piece as heavy as it has rows."""
    prices = sorted((max(seconds, 0.0) / rows, rows) for rows, seconds in pieces)
    up_to = list(itertools.accumulate(rows for _, rows in prices))
    return prices[bisect.bisect_left(up_to, up_to[-1] / 2)][0]
