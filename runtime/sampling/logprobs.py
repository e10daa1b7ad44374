"""Log-probabilities read off a model's raw logits: what the model itself says.

That is before bias, penalties, temperature and masks. Computed row by row in float32, or in the
logits' own type if that is wider, so a row's values don't depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def log_probabilities(logits: Tensor) -> Tensor:
    """log softmax of `logits` [n, vocab], float32 or float64 [n, vocab]."""
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    return torch.log_softmax(logits, -1, dtype=dtype)


def token_logprobs(logits: Tensor, targets: Sequence[int]) -> list[float]:
    """The log-probability of token `targets[i]` under row i of `logits` [n, vocab]."""
    index = torch.tensor(targets, dtype=torch.long, device=logits.device)
    values: list[float] = log_probabilities(logits).gather(1, index[:, None])[:, 0].tolist()
    return values


def top_logprobs(logits: Tensor, counts: Sequence[int]) -> list[list[tuple[float, int]]]:
    """The `counts[i]` likeliest tokens of row i as (log-probability, id).

    Likeliest first, of equals the lowest id; the whole vocabulary if it has fewer.
    """
    result: list[list[tuple[float, int]]] = []
    for row, count in zip(log_probabilities(logits), counts, strict=True):
        size = min(count, row.shape[0])
        if not size:
            result.append([])
            continue
        ids = (row >= row.topk(size).values[-1]).nonzero()[:, 0]
        pairs = zip(row[ids].tolist(), ids.tolist(), strict=True)
        result.append(sorted(pairs, key=lambda pair: (-pair[0], pair[1]))[:size])
    return result


def log_masses(logits: Tensor, sets: Sequence[Sequence[int]]) -> list[float]:
    """The log of the total probability of the token ids `sets[i]` under row i; -inf if none."""
    result: list[float] = []
    for row, ids in zip(log_probabilities(logits), sets, strict=True):
        index = torch.tensor(ids, dtype=torch.long, device=logits.device)
        result.append(min(0.0, float(row[index].to(torch.float64).logsumexp(0))))
    return result


def pair_logprobs(logits: Tensor, tokens: Sequence[Sequence[int]]) -> list[list[float]]:
    """The log-probabilities of all of `tokens[i]` under row i of `logits` [n, vocab]."""
    index = [(row, token) for row, some in enumerate(tokens) for token in some]
    pairs = torch.tensor(index, dtype=torch.long, device=logits.device).reshape(-1, 2)
    values = iter(log_probabilities(logits)[pairs[:, 0], pairs[:, 1]].tolist())
    return [[next(values) for _ in some] for some in tokens]
