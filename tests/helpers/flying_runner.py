"""A scripted model on a device of its own: the engine sees the tokens only when it asks."""

from __future__ import annotations

import dataclasses

import torch
from scripted_engine import ScriptedRunner

from ramet.kernels import reference
from ramet.kernels.draws import Draws
from ramet.runtime.sampling.rows import DrawOrder
from ramet.runtime.schedule.batch import Batch


class FlyingTokens:
    """What one launch draws."""

    def __init__(self, tokens: list[int], best: list[float]) -> None:
        self.tokens, self.best = tokens, best
        self.waited = False

    def wait(self) -> tuple[list[int], list[float]]:
        assert not self.waited, "a step's tokens are taken twice"
        self.waited = True
        return self.tokens, self.best


class FlyingRunner(ScriptedRunner):
    """`ScriptedRunner` as a `DrawingRunner`."""

    num_ahead = 0
    """Launches with tokens of the launch before that nobody had seen."""
    _last: FlyingTokens | None = None

    def forward(self, batch: Batch) -> None:
        assert min(batch.token_ids, default=0) >= 0, "an unknown token"
        super().forward(batch)

    def launch(self, batch: Batch, order: DrawOrder) -> FlyingTokens:
        ids = list(batch.token_ids)
        if min(ids, default=0) < 0:
            assert self._last is not None
            assert not self._last.waited, "the tokens were known"
            self.num_ahead += 1
            ids = [i if i >= 0 else self._last.tokens[-1 - i] for i in ids]
        if batch.ranges:
            self.forward(dataclasses.replace(batch, token_ids=ids))
        self._last = self._draw(order)
        return self._last

    def _draw(self, order: DrawOrder) -> FlyingTokens:
        assert len(set(order.slots)) == len(order.slots)
        if not order.rows:
            return FlyingTokens([], [])
        draws = Draws(
            torch.tensor(order.rows),
            torch.tensor(order.asked, dtype=torch.float64),
            torch.tensor(order.uniforms, dtype=torch.float64).unsqueeze(1),
            torch.empty((0, 2), dtype=torch.long),
        )
        tokens, best = reference.draw(self.logits(order.slots), draws)
        return FlyingTokens(tokens[:, 0].tolist(), best.tolist())
