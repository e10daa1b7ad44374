"""The sampler: rows of logits and what each sequence asks -> tokens and their log-probabilities.

Every row is drawn from its own logits, parameters and stream, so neighbours in the batch never
change it. Called by the engine once per step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ramet.kernels import ops
from ramet.kernels.draws import Draws
from ramet.runtime.errors import BackendError, InvalidArgument
from ramet.runtime.request import SamplingParams
from ramet.runtime.sampling import logits as steps
from ramet.runtime.sampling.logprobs import token_logprobs, top_logprobs
from ramet.runtime.sampling.rows import Sampled, SampleRow
from ramet.runtime.sampling.streams import uniform

BLOCK_ELEMENTS = 2**18
"""Logits processed at once: 2 MB in float64. On a CPU, blocks that stay in its caches took a third
less time than blocks of 2**22."""


def sample(logits: Tensor, rows: Sequence[SampleRow]) -> list[Sampled]:
    """One outcome per row, in order, from `logits` [n, vocab] of any float type and device.

    Temperature 0 takes the likeliest token, the lowest id among ties. Token ids in bias and bans
    must lie in the vocabulary (`SamplingParams.check_vocabulary`).
    """
    results: list[Sampled | None] = [None] * len(rows)
    plain = [i for i, row in enumerate(rows) if _is_plain_greedy(row)]
    # Apart, so that rows without a mask are computed as if there were none.
    for masked in (False, True):
        some = [i for i in plain if (rows[i].mask is not None) == masked]
        if some:
            masks = [mask for i in some if (mask := rows[i].mask) is not None]
            likeliest = greedy(logits, [rows[i].row for i in some], masks)
            for i, result in zip(some, likeliest, strict=True):
                results[i] = result
    if len(plain) < len(rows):
        others = [i for i, result in enumerate(results) if result is None]
        fast = ops.draws_fast(logits)
        for masked in (False, True):
            some = [i for i in others if (rows[i].mask is not None) == masked]
            simple = [i for i in some if _is_unedited(rows[i])] if fast else []
            for i, result in _draw(logits, rows, _distributions(rows, simple)):
                results[i] = result
            rest = [i for i in some if results[i] is None] if simple else some
            for group in _blocks(_distributions(rows, rest), logits.shape[1]):
                for i, result in _process(logits, rows, group):
                    results[i] = result
    done = [result for result in results if result is not None]
    return _with_logprobs(logits, rows, done)


def greedy(logits: Tensor, rows: Sequence[int], masks: Sequence[bytes] = ()) -> list[Sampled]:
    """The likeliest token, the lowest id among ties, of each of `rows`, for sequences that ask for
    nothing else (`always_greedy`) but that it is in their mask, if there are masks."""
    return outcomes(*ops.greedy(logits, rows, masks))


def outcomes(tokens: Sequence[int], best: Sequence[float]) -> list[Sampled]:
    """As `greedy`, of rows whose likeliest tokens and their logits are known."""
    return list(map(_chosen, best, tokens))


def _is_plain_greedy(row: SampleRow) -> bool:
    return (
        row.params.temperature == 0
        and not row.banned
        and not row.params.logit_bias
        and not _is_penalised(row)
    )


def _is_unedited(row: SampleRow) -> bool:
    """Whether its logits are the model's or minus infinity, which float32 holds."""
    return not row.params.logit_bias and not _is_penalised(row)


def _is_penalised(row: SampleRow) -> bool:
    params = row.params
    additive = bool(params.frequency_penalty or params.presence_penalty) and bool(row.counts)
    repeated = params.repetition_penalty != 1 and bool(row.counts or row.prompt_ids)
    return additive or repeated


def _chosen(best: float, token: int) -> Sampled:
    """The outcome `token`, or an error if the row's largest logit shows that it is unusable."""
    if best == float("-inf"):
        return Sampled(
            -1,
            error=InvalidArgument(
                "every token is banned (by logit_bias, by a constraint, or as an end id before "
                "min_new_tokens): there is nothing to sample"
            ),
        )
    if best != best or best == float("inf"):
        return Sampled(-1, error=BackendError(f"the logits are not finite (their maximum: {best})"))
    return Sampled(token)


def _distributions(rows: Sequence[SampleRow], others: Sequence[int]) -> list[list[int]]:
    """Group the rows that draw from one and the same distribution, as siblings of a fork do."""
    groups: dict[object, list[int]] = {}
    for i in others:
        row, p = rows[i], rows[i].params
        same: object = i
        if not _is_penalised(row):
            bans = (row.banned, row.mask, p.logit_bias)
            same = (row.row, bans, p.temperature, p.top_k, p.top_p, p.min_p)
        groups.setdefault(same, []).append(i)
    return list(groups.values())


def _blocks(groups: list[list[int]], vocab: int) -> list[list[list[int]]]:
    size = max(1, BLOCK_ELEMENTS // vocab)
    return [groups[start : start + size] for start in range(0, len(groups), size)]


def _draw(
    logits: Tensor, rows: Sequence[SampleRow], groups: list[list[int]]
) -> list[tuple[int, Sampled]]:
    """The outcomes of distributions that are unedited, all or none masked, as `_process`'."""
    if not groups:
        return []
    heads = [rows[group[0]] for group in groups]
    asked = [(p.temperature, p.top_k, p.top_p, p.min_p) for p in (head.params for head in heads)]
    bans = [(n, token) for n, head in enumerate(heads) for token in head.banned]
    draws = Draws(
        torch.tensor([head.row for head in heads], device=logits.device),
        torch.tensor(asked, dtype=torch.float64, device=logits.device),
        torch.tensor(_uniforms(rows, groups), dtype=torch.float64, device=logits.device),
        torch.tensor(bans, dtype=torch.long, device=logits.device).view(-1, 2),
        _words(heads, logits.device),
    )
    tokens, best = ops.draw(logits, draws)
    return [
        (i, _chosen(value, token))
        for group, drawn, value in zip(groups, tokens.tolist(), best.tolist(), strict=True)
        for i, token in zip(group, drawn, strict=False)
    ]


def _uniforms(rows: Sequence[SampleRow], groups: Sequence[list[int]]) -> list[list[float]]:
    """Each group's numbers, filled up to one length."""
    most = max(map(len, groups))
    return [
        [uniform(rows[i].key, rows[i].index) for i in group] + [0.0] * (most - len(group))
        for group in groups
    ]


def _words(heads: Sequence[SampleRow], device: torch.device) -> Tensor | None:
    """The masks of `heads`, all of which or none have one, int32 [n, words]."""
    masks = [head.mask for head in heads if head.mask is not None]
    if not masks:
        return None
    words = torch.frombuffer(bytearray().join(masks), dtype=torch.int32)
    return words.view(len(heads), -1).to(device)


def _process(
    logits: Tensor, rows: Sequence[SampleRow], groups: list[list[int]]
) -> list[tuple[int, Sampled]]:
    """The outcomes of a block of distributions, as (position in `rows`, outcome)."""
    heads = [rows[group[0]] for group in groups]
    work = steps.working_copy(logits, [head.row for head in heads])
    _edit(work, heads)
    best = work.amax(-1)
    bests: list[float] = best.tolist()
    tokens: dict[int, int] = {}
    random = [
        g for g, head in enumerate(heads) if head.params.temperature > 0 and _is_finite(bests[g])
    ]
    if random:
        index = torch.tensor(random, device=work.device)
        chosen = _weights(work[index], best[index], [heads[g].params for g in random])
        uniforms = _uniforms(rows, [groups[g] for g in random])
        drawn = steps.draw(chosen, torch.tensor(uniforms, dtype=chosen.dtype, device=chosen.device))
        for g, row in zip(random, drawn.tolist(), strict=True):
            tokens.update(zip(groups[g], row, strict=False))
    if len(random) < len(heads):
        likeliest: list[int] = work.argmax(-1).tolist()
        for g, group in enumerate(groups):
            for i in group:
                tokens.setdefault(i, likeliest[g])
    return [(i, _chosen(bests[g], tokens[i])) for g, group in enumerate(groups) for i in group]


def _is_finite(value: float) -> bool:
    return float("-inf") < value < float("inf")


def _edit(work: Tensor, heads: Sequence[SampleRow]) -> None:
    """Apply the penalties, biases, bans and masks of `heads` to their rows of `work` [n, vocab]."""
    repeated, added = _Edits(), _Edits()
    for g, head in enumerate(heads):
        p = head.params
        if p.repetition_penalty != 1:
            seen = (head.prompt_ids or frozenset()).union(head.counts)
            repeated.put(g, dict.fromkeys(seen, p.repetition_penalty))
        amounts = dict(p.logit_bias)
        if p.frequency_penalty or p.presence_penalty:
            for token, count in head.counts.items():
                penalty = p.frequency_penalty * count + p.presence_penalty
                amounts[token] = amounts.get(token, 0.0) - penalty
        bans = [token for token, amount in p.logit_bias if amount <= -100]
        amounts.update(dict.fromkeys((*bans, *head.banned), float("-inf")))
        added.put(g, amounts)
    if repeated.rows:
        steps.repetition_penalty_(work, *repeated.columns(work))
    if added.rows:
        steps.add_(work, *added.columns(work))
    words = _words(heads, work.device)
    if words is not None:
        ops.apply_bitmask(work, words)


class _Edits:
    """Single logits to change, as three columns: row, token, value."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.tokens: list[int] = []
        self.values: list[float] = []

    def put(self, row: int, values: Mapping[int, float]) -> None:
        self.rows.extend([row] * len(values))
        self.tokens.extend(values)
        self.values.extend(values.values())

    def columns(self, work: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return (
            torch.tensor(self.rows, device=work.device),
            torch.tensor(self.tokens, device=work.device),
            torch.tensor(self.values, dtype=work.dtype, device=work.device),
        )


def _weights(work: Tensor, best: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """The unnormalised probabilities [n, vocab] after temperature, top-k, top-p and min-p."""
    vocab, device = work.shape[1], work.device
    floats = torch.tensor(
        [(p.temperature, p.top_p, p.min_p) for p in params], dtype=torch.float64, device=device
    )
    temperatures, top_p, fractions = floats.unbind(1)
    weights = steps.weights(work, best, temperatures)
    ranked = [i for i, p in enumerate(params) if 0 < p.top_k < vocab or p.top_p < 1]
    if ranked:
        whole = len(ranked) == len(params)  # a slice copies nothing
        at = slice(None) if whole else torch.tensor(ranked, device=device)
        top_k = torch.tensor(
            [min(params[i].top_k, vocab) if params[i].top_k > 0 else vocab for i in ranked],
            device=device,
        )
        total = weights[at].cumsum(-1)[:, -1]
        filters = steps.Filters(work[at], best[at], temperatures[at], total, top_k, top_p[at])
        weights[at] *= steps.keep_largest(filters.logits, *steps.rank(filters))
    if any(p.min_p > 0 for p in params):
        weights *= steps.min_p(weights, fractions)
    return weights


def _with_logprobs(
    logits: Tensor, rows: Sequence[SampleRow], results: list[Sampled]
) -> list[Sampled]:
    wanted = [
        i for i, row in enumerate(rows) if row.params.return_logprob and results[i].error is None
    ]
    size = max(1, BLOCK_ELEMENTS // logits.shape[1])
    for start in range(0, len(wanted), size):
        block = wanted[start : start + size]
        index = torch.tensor([rows[i].row for i in block], dtype=torch.long, device=logits.device)
        raw = logits[index]
        values = token_logprobs(raw, [results[i].token for i in block])
        counts = [rows[i].params.top_logprobs_num for i in block]
        tops = top_logprobs(raw, counts) if any(counts) else [[] for _ in block]
        for i, value, top in zip(block, values, tops, strict=True):
            results[i] = results[i]._replace(logprob=value, top=top or None)
    return results
