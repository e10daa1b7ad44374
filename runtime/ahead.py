"""Ahead: the next step is planned and launched before the tokens of the last one are known.

A runner on a device draws tokens by itself, so the device goes on with them while the host still
plans, and never waits for it. What depends on a token's value is settled when the host has it. Who
turns out to have ended has computed a row too many: the tree keeps it as cache.

Sequences that need the host for each token (constraints, penalties, log-probabilities), choices
that are scored, and who shares its edge with others, as after a prompt or a fork, aren't planned
ahead; where they are more than half of a step, nothing is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ramet.runtime.cache.expected import Expected
from ramet.runtime.room import DrawingRunner, EngineRoom
from ramet.runtime.sampling.rows import Drawn, DrawOrder, Sampled
from ramet.runtime.sampling.streams import uniform
from ramet.runtime.schedule.batch import Batch
from ramet.runtime.schedule.sequence import Generation
from ramet.runtime.schedule.sequence import Sequence as Running

NOBODY: frozenset[Generation] = frozenset()


@dataclasses.dataclass(slots=True)
class Flight:
    """A step that has been launched, and whose tokens nobody has looked at yet."""

    batch: Batch
    drawn: Drawn | None
    """Its tokens, one for each of `batch.ready`; None where the host samples."""
    expected: frozenset[Generation] = NOBODY
    """Those whose token is in the step after it already."""


class Ahead:
    """Launches steps on a runner that draws."""

    def __init__(self, room: EngineRoom, runner: DrawingRunner) -> None:
        self._room = room
        self._runner = runner
        self._expected = Expected(room.tree)

    def launch(self, batch: Batch, after: Flight | None = None) -> Flight:
        """Start a batch; `after` is the flight that it was planned on. If the model fails, the
        rows' slots are given back."""
        try:
            order = self._order(batch, after.expected if after else NOBODY)
            self._room.counters.head_rows += len(order.slots)
            drawn = self._runner.launch(batch, order)
            return Flight(batch, drawn if order.rows else None)
        except Exception:
            self._undo(batch)
            raise

    def plan(self, flight: Flight) -> Batch | None:
        """The batch after a flight, or None where its tokens have to be known first."""
        ready = flight.batch.ready
        if ready and flight.drawn is None:
            return None
        sampling = [
            s for s in ready if isinstance(s, Generation)
        ]  # Tokens are drawn for no others.
        grown = self._expected.plan(
            (index, s.node, s.origin)
            for index, s in enumerate(sampling)
            if s.alive and len(s.output_ids) + 1 < s.limit  # else this token is its last
        )
        expected = frozenset(sampling[index] for index in grown)
        batch = None
        if 2 * len(expected) >= len(ready):
            waiting: frozenset[Running] = frozenset(ready) - expected
            batch = self._room.scheduler.plan_ahead(waiting)
        if batch is None:
            self._expected.cancel()
            return None
        flight.expected = expected
        return batch

    def settle(self, flight: Flight, following: Batch | None) -> list[Sampled] | None:
        """Wait for a flight's tokens, and write them where they are expected; None where the host
        samples. If they don't come, the rows of the batch that was planned on them are given
        back."""
        try:
            tokens, best = flight.drawn.wait() if flight.drawn is not None else ([], [])
        except Exception:
            if following is not None:
                self._undo(following)
            raise
        self._expected.settle(tokens)
        return None if flight.drawn is None else self._room.arithmetic.greedy(tokens, best)

    def _undo(self, batch: Batch) -> None:
        self._room.scheduler.rollback(batch)
        self._expected.cancel()

    def _order(self, batch: Batch, expected: frozenset[Generation]) -> DrawOrder:
        """What to draw for those that are ready: nothing where the host has to for one of them."""
        ready = batch.ready
        drawable = [s for s in ready if isinstance(s, Generation) and s.drawable]
        if len(drawable) < len(ready):
            return DrawOrder([], [], [], [])
        if batch.last_slots is not None:
            slots, rows = batch.last_slots, list(range(len(ready)))
        else:
            nodes = {s.node: None for s in drawable}
            places = {node: row for row, node in enumerate(nodes)}
            slots = [node.last_slot() for node in nodes]
            rows = [places[s.node] for s in drawable]
        return DrawOrder(slots, rows, [_asked(s) for s in drawable], _uniforms(drawable, expected))


def _asked(sequence: Generation) -> tuple[float, int, float, float]:
    p = sequence.params
    return (p.temperature, p.top_k, p.top_p, p.min_p)


def _uniforms(sequences: Sequence[Generation], expected: frozenset[Generation]) -> list[float]:
    """Each one's number for its next token, or for the one after where that is expected."""
    return [
        uniform(s.key, len(s.output_ids) + (s in expected)) if s.params.temperature > 0 else 0.0
        for s in sequences
    ]
