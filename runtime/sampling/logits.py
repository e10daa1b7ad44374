"""The processing steps between a model's logits and a draw, each a small torch function.

Order: repetition penalty, frequency and presence penalties, bias, bans, the constraint's mask ->
temperature -> top-k -> top-p -> min-p. The repetition penalty multiplies, so it comes first, on the
model's own logits; the others add and commute. Each filter acts on what the ones before it left.

Names that end in `_` change their first argument in place. Ties are broken by the lowest token id
everywhere.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

CANDIDATES = 256
"""How many of the likeliest tokens top-p looks at first; eight times as many wherever they don't
have the mass. Of 49,152 logits the 256 largest are found in 0.2 ms, 8,192 in 1.2, all sorted in
4.8."""

_SMALLEST = torch.finfo(torch.float64).tiny


def working_copy(logits: Tensor, rows: list[int]) -> Tensor:
    """Rows of `logits` [n, vocab], any float type, as a private float64 copy [len(rows), vocab]."""
    index = torch.tensor(rows, dtype=torch.long, device=logits.device)
    return logits.index_select(0, index).to(torch.float64)


def repetition_penalty_(logits: Tensor, rows: Tensor, tokens: Tensor, penalty: Tensor) -> None:
    """Divide the positive and multiply the negative logits by `penalty` (CTRL, Keskar et al. 2019).

    `rows`, `tokens` (int64) and `penalty` (logits' dtype) are of one length; no pair occurs twice.
    """
    values = logits[rows, tokens]
    logits[rows, tokens] = torch.where(values > 0, values / penalty, values * penalty)


def add_(logits: Tensor, rows: Tensor, tokens: Tensor, amounts: Tensor) -> None:
    """Add `amounts` at (`rows`, `tokens`), pairs unique; -inf bans.

    The frequency and presence penalties are this with -(frequency * count + presence).
    """
    logits[rows, tokens] += amounts


def weights(logits: Tensor, best: Tensor, temperatures: Tensor) -> Tensor:
    """exp((logits - best) / temperature): probabilities up to a factor, the likeliest exactly 1.

    `logits` [n, vocab] float64, `best` [n] their finite maxima, `temperatures` [n] above 0.
    """
    # Subtracting first keeps the smallest temperatures finite: 0 / t = 0, the rest -> -inf.
    scaled = logits - best[:, None]
    return scaled.div_(temperatures.clamp_min(_SMALLEST)[:, None]).exp_()


class Filters(NamedTuple):
    """Rows to filter by rank, all of one length n and float64 unless said otherwise."""

    logits: Tensor
    """[n, vocab]"""
    best: Tensor
    """Each row's largest logit, finite."""
    temperatures: Tensor
    """Above 0."""
    total: Tensor
    """The sums of the rows' `weights`."""
    top_k: Tensor
    """int64, in 1..vocab; vocab is off."""
    top_p: Tensor
    """In (0, 1]; 1 is off."""


def rank(rows: Filters) -> tuple[Tensor, Tensor]:
    """How many of the likeliest tokens top-k, then top-p keep: (counts [n], thresholds [n]).

    Top-p keeps the smallest set whose mass, among what top-k left, is at least `top_p` (Holtzman
    et al. 2020). A threshold is the logit of the last token kept. Ranks are of logits, not of
    weights, which rounding can make equal.
    """
    vocab = rows.logits.shape[1]
    size = min(vocab, int(torch.where(rows.top_k < vocab, rows.top_k, CANDIDATES).max()))
    counts, thresholds, found = _rank(rows, size)
    while not bool(found.all()):
        size = min(vocab, 8 * size)
        left = (~found).nonzero()[:, 0]
        counts[left], thresholds[left], found[left] = _rank(Filters(*(x[left] for x in rows)), size)
    return counts, thresholds


def _rank(rows: Filters, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """`rank` by the `size` largest logits, and which rows that was enough for."""
    ranked = rows.logits.topk(size, -1).values
    mass = weights(ranked, rows.best, rows.temperatures).cumsum(-1)
    last = rows.top_k.clamp_max(size) - 1
    kept = mass.gather(1, last[:, None])[:, 0]
    goal = rows.top_p * torch.where(rows.top_k < rows.logits.shape[1], kept, rows.total)
    found = (rows.top_k <= size) | (mass[:, -1] >= goal)
    counts = torch.minimum((mass < goal[:, None]).sum(-1), last) + 1
    counts = torch.where(rows.top_p < 1, counts, last + 1)
    return counts, ranked.gather(1, counts[:, None] - 1)[:, 0], found


def keep_largest(logits: Tensor, counts: Tensor, thresholds: Tensor) -> Tensor:
    """A mask [n, vocab] of the `counts` [n] largest per row, the last of which is `thresholds`."""
    mask = logits >= thresholds[:, None]
    spare = mask.sum(-1) - counts  # equal logits to leave out: those of the highest ids
    if bool(spare.any()):
        equal = logits == thresholds[:, None]
        room = equal.sum(-1) - spare
        mask &= ~equal | (equal.cumsum(-1) <= room[:, None])
    return mask


def min_p(weights: Tensor, fractions: Tensor) -> Tensor:
    """A mask [n, vocab] of the tokens with at least `fractions` [n] of the likeliest's weight."""
    return weights >= fractions[:, None]


def draw(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Token ids [n, m] (int64), drawn from row i of `weights` [n, vocab] by `uniforms` [n, m].

    Weights are at least 0 with a positive finite sum per row, uniforms in [0, 1). Inverse CDF in
    token id order, in float64: the first token whose cumulative weight exceeds uniform * sum, so
    a zero weight is never drawn.
    """
    cdf = weights.cumsum(-1, dtype=torch.float64)
    total = cdf[:, -1:]
    # Rounding may lift the goal to the sum itself, which no token would exceed.
    goals = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cdf, goals, right=True)
