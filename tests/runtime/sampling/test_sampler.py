from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from ramet.runtime.errors import BackendError, InvalidArgument
from ramet.runtime.request import SamplingParams
from ramet.runtime.sampling import logits as steps
from ramet.runtime.sampling import sampler
from ramet.runtime.sampling.sampler import Sampled, SampleRow, sample
from ramet.runtime.sampling.streams import stream_key

VOCAB = 14
LOGITS = torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(5)) * 1.5
COUNTS = {1: 2, 4: 1, 9: 3}
PROMPT = frozenset({0, 4, 11})


def row(index: int = 0, *, at: int = 0, key: int = 0, **fields: Any) -> SampleRow:
    names = {"counts", "prompt_ids", "banned", "mask"} & set(fields)
    extra = {name: fields.pop(name) for name in names}
    return SampleRow(at, SamplingParams(**fields), key, index, **extra)


def reference(logits: list[float], one: SampleRow) -> Any:
    """The distribution in float64, step by step as documented, by sorting."""
    p = one.params
    x = np.array(logits, dtype=np.float64)
    for token in range(len(x)):
        count = one.counts.get(token, 0)
        if count or token in (one.prompt_ids or ()):
            x[token] *= p.repetition_penalty if x[token] <= 0 else 1 / p.repetition_penalty
        if count:
            x[token] -= p.frequency_penalty * count + p.presence_penalty
        bias = dict(p.logit_bias).get(token, 0.0)
        x[token] += bias
        if bias <= -100 or token in one.banned:
            x[token] = -math.inf
    probability = np.exp((x - x.max()) / p.temperature)
    probability /= probability.sum()
    order = sorted(range(len(x)), key=lambda t: (-x[t], t))
    if p.top_k > 0:
        probability[order[p.top_k :]] = 0
        probability /= probability.sum()
    if p.top_p < 1:
        reached = np.cumsum(probability[order])
        probability[order[1 + int(np.searchsorted(reached, p.top_p)) :]] = 0
        probability /= probability.sum()
    probability[probability < p.min_p * probability.max()] = 0
    return probability / probability.sum()


CASES: list[dict[str, Any]] = [
    {},
    {"temperature": 0.4},
    {"temperature": 2.5},
    {"top_k": 1},
    {"top_k": 5},
    {"top_k": 1000},
    {"top_p": 0.3},
    {"top_p": 0.85},
    {"min_p": 0.2},
    {"top_k": 8, "top_p": 0.8, "min_p": 0.1, "temperature": 1.7},
    {"logit_bias": {3: 2.5, 7: -1.0, 5: -100, 2: -99.5}},
    {"banned": (0, 6, 9)},
    {"frequency_penalty": 0.7, "counts": COUNTS},
    {"presence_penalty": -1.1, "counts": COUNTS},
    {"repetition_penalty": 1.8, "counts": COUNTS, "prompt_ids": PROMPT},
    {"repetition_penalty": 0.6, "prompt_ids": PROMPT},
    {
        "repetition_penalty": 1.3,
        "frequency_penalty": 0.4,
        "presence_penalty": 0.5,
        "logit_bias": {4: 1.5, 9: 1.0, 12: -100.0},
        "counts": COUNTS,
        "prompt_ids": PROMPT,
        "banned": (2,),
        "temperature": 0.8,
        "top_k": 9,
        "top_p": 0.95,
        "min_p": 0.02,
    },
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_draws_follow_the_reference_distribution(case: int, dtype: torch.dtype) -> None:
    logits = LOGITS.to(dtype)
    key = stream_key(case, "0.1", 2, 0)
    head = row(at=1, key=key, **CASES[case])
    size = 2000 if head.counts or head.prompt_ids else 6000  # penalised rows share no work
    rows = [dataclasses.replace(head, index=i) for i in range(size)]
    results = sample(logits, rows)
    assert all(result.error is None for result in results)
    observed = np.bincount([result.token for result in results], minlength=VOCAB)
    expected = reference(logits[1].tolist(), rows[0]) * len(results)
    possible = expected > 0
    assert observed[~possible].sum() == 0
    if possible.sum() > 1:
        assert stats.chisquare(observed[possible], expected[possible]).pvalue > 1e-3


def test_draws_of_neighbouring_keys_follow_it_too() -> None:
    head = row(3)
    rows = [dataclasses.replace(head, key=stream_key(1, "", 0, s)) for s in range(6000)]
    observed = np.bincount([r.token for r in sample(LOGITS, rows)], minlength=VOCAB)
    expected = reference(LOGITS[0].tolist(), rows[0]) * len(rows)
    assert stats.chisquare(observed, expected).pvalue > 1e-3


# Determinism (B106)


def mixed_rows() -> list[SampleRow]:
    rows = [row(at=n % 4, key=n, temperature=0.0) for n in range(4)]
    for n, case in enumerate(CASES * 2):
        fields: Mapping[str, Any] = {"temperature": 0.9, **case}
        rows.append(row(n, at=n % 4, key=stream_key(n, "", 0, 0), return_logprob=True, **fields))
    return rows


def test_a_result_does_not_depend_on_the_batch() -> None:
    rows = mixed_rows()
    together = sample(LOGITS, rows)
    for one, result in zip(rows, together, strict=True):
        assert sample(LOGITS, [one]) == [result]
        moved = dataclasses.replace(one, row=0)
        assert sample(LOGITS[one.row : one.row + 1], [moved]) == [result]
    assert sample(LOGITS, rows[::-1]) == together[::-1]


def test_a_result_does_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    together = sample(LOGITS, mixed_rows())
    monkeypatch.setattr(sampler, "BLOCK_ELEMENTS", 3 * VOCAB)
    assert sample(LOGITS, mixed_rows()) == together


def test_wide_rows_do_not_depend_on_the_batch() -> None:
    vocab = 4 * steps.CANDIDATES
    logits = torch.randn(12, vocab, generator=torch.Generator().manual_seed(2))
    logits[::3] *= 8
    rows = [row(n, at=n, key=n, top_p=0.9, temperature=0.8 + n / 10) for n in range(12)]
    together = sample(logits, rows)
    assert [sample(logits, [one])[0] for one in rows] == together


def test_the_stream_and_the_index_decide() -> None:
    rows = [row(i, key=k) for k in (1, 2) for i in range(40)]
    tokens = [result.token for result in sample(LOGITS, rows)]
    assert tokens == [result.token for result in sample(LOGITS, rows)]
    assert tokens[:40] != tokens[40:]
    assert len(set(tokens[:40])) > 1


# Greedy


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_greedy_is_the_first_of_the_largest(dtype: torch.dtype) -> None:
    logits = torch.tensor([[1, 3, 3, 0], [5, 5, 5, 5], [0, 0, 0, 2]]).to(dtype)
    rows = [row(at=n, temperature=0) for n in (2, 0, 1, 0)]
    assert sample(logits, rows) == [Sampled(3), Sampled(1), Sampled(0), Sampled(1)]
    processed = [row(at=n, temperature=0, logit_bias={0: 0.0}, top_p=0.5) for n in (2, 0, 1, 0)]
    assert [result.token for result in sample(logits, processed)] == [3, 1, 0, 1]


def test_greedy_ignores_the_filters() -> None:
    got = sample(LOGITS, [row(at=2, temperature=0, top_k=3, top_p=0.1, min_p=0.9)])
    assert got == [Sampled(int(LOGITS[2].argmax()))]


def test_tiny_temperatures_approach_greedy() -> None:
    rows = [row(i, at=i % 4, temperature=5e-324) for i in range(8)]
    assert [r.token for r in sample(LOGITS, rows)] == (LOGITS.argmax(-1).tolist() * 2)


# B111, B118


def test_bias_bans_and_forces() -> None:
    favourite = int(LOGITS[0].argmax())
    for heat in (0.0, 1.0):
        rows = [
            row(i, key=i, temperature=heat, logit_bias={favourite: -100, 3: 100}) for i in range(20)
        ]
        assert {result.token for result in sample(LOGITS, rows)} == {3}
    mask = LOGITS.clone()
    mask[:, 3] = -math.inf
    rows = [row(i, key=i, logit_bias={3: 100}) for i in range(200)]
    assert 3 not in {result.token for result in sample(mask, rows)}


def write(prompt: frozenset[int] | None = None, **fields: Any) -> str:
    """Seven greedy tokens under constant logits a = 2.0, b = 1.2, everything else -50."""
    logits = torch.full((1, 5), -50.0)
    logits[0, :2] = torch.tensor([2.0, 1.2])
    counts: dict[int, int] = {}
    text = ""
    for index in range(7):
        one = row(index, temperature=0, counts=counts, prompt_ids=prompt, **fields)
        token = sample(logits, [one])[0].token
        counts[token] = counts.get(token, 0) + 1
        text += "abcde"[token]
    return text


def test_penalties_by_hand() -> None:
    assert write() == "aaaaaaa"
    # a: 2.0 1.5 1.0 | b: 1.2; then a 1.0 > b 0.7, a 0.5 < b 0.7, a 0.5 > b 0.2, a 0.0 < b 0.2
    assert write(frequency_penalty=0.5) == "aababab"
    assert write(presence_penalty=0.5) == "aaaaaaa"  # 1.5 > 1.2
    assert write(presence_penalty=1.0) == "abaaaaa"  # 1.0 < 1.2, then 1.0 > 0.2
    assert write(repetition_penalty=1.5) == "aaaaaaa"  # 1.33 > 1.2
    assert write(repetition_penalty=2.0) == "abaaaaa"  # 1.0 < 1.2, then 1.0 > 0.6


def test_only_the_repetition_penalty_sees_the_prompt() -> None:
    prompt = frozenset({0})
    assert write(prompt, repetition_penalty=2.0) == "baaaaaa"
    assert write(prompt, frequency_penalty=0.5) == "aababab"
    assert write(prompt, presence_penalty=1.0) == "abaaaaa"


# Log-probabilities


def test_logprobs_are_the_models_own() -> None:
    exact = torch.log_softmax(LOGITS.double(), -1)
    for fields in CASES:
        one = row(at=3, return_logprob=True, top_logprobs_num=4, **fields)
        (result,) = sample(LOGITS, [one])
        assert result.logprob == pytest.approx(float(exact[3, result.token]), abs=1e-5)
        assert result.top is not None
        best = exact[3].argsort(descending=True)[:4].tolist()
        assert [token for _, token in result.top] == best
        assert type(result.token) is int
        assert type(result.logprob) is float


def test_logprobs_are_reported_only_on_demand() -> None:
    rows = [row(), row(return_logprob=True), row(temperature=0, return_logprob=True)]
    results = sample(LOGITS, rows)
    assert [r.logprob is None for r in results] == [True, False, False]
    assert [r.top for r in results] == [None] * 3


# Errors belong to their row


def test_a_row_with_nothing_to_sample_fails_alone() -> None:
    everything = tuple(range(VOCAB))
    rows = [
        row(banned=everything),
        row(key=4),
        row(temperature=0, logit_bias=dict.fromkeys(everything, -100.0)),
        row(temperature=0),
    ]
    results = sample(LOGITS, rows)
    for result in (results[0], results[2]):
        assert result.token == -1
        assert isinstance(result.error, InvalidArgument)
        assert "every token is banned" in str(result.error)
    assert [results[1], results[3]] == sample(LOGITS, [rows[1], rows[3]])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("heat", [0.0, 1.0])
def test_broken_logits_fail_alone(bad: float, heat: float) -> None:
    logits = LOGITS.clone()
    logits[1, 6] = bad
    rows = [row(at=n, key=n, temperature=heat, return_logprob=True) for n in range(3)]
    results = sample(logits, rows)
    assert isinstance(results[1].error, BackendError)
    assert [results[0], results[2]] == sample(LOGITS, [rows[0], rows[2]])


def test_an_empty_batch() -> None:
    assert sample(LOGITS, []) == []
    assert sample(LOGITS[:0], []) == []


def mask_of(*tokens: int) -> bytes:
    return sum(1 << token for token in tokens).to_bytes(4, "little")


@pytest.mark.parametrize("temperature", [0, 1])
def test_only_what_the_mask_allows_is_sampled(temperature: float) -> None:
    allowed = (2, 7, 13)
    rows = [row(i, mask=mask_of(*allowed), temperature=temperature) for i in range(50)]
    tokens = {sampled.token for sampled in sample(LOGITS, rows)}
    best = max(allowed, key=lambda token: float(LOGITS[0, token]))
    assert tokens == ({best} if temperature == 0 else set(allowed))


def test_rows_without_a_mask_are_as_if_alone() -> None:
    """B60 of the bug reports."""
    free = [row(i, at=i % 4, key=i, top_p=0.8, return_logprob=True) for i in range(8)]
    masked = [row(i, at=i % 4, key=i, mask=mask_of(1, 2)) for i in range(8)]
    mixed = [one for pair in zip(masked, free, strict=True) for one in pair]
    assert sample(LOGITS, mixed)[1::2] == sample(LOGITS, free)
    assert sample(LOGITS, mixed)[::2] == sample(LOGITS, masked)


def test_a_logprob_is_the_models_own_under_a_mask_too() -> None:
    (sampled,) = sample(LOGITS, [row(mask=mask_of(5), return_logprob=True)])
    assert sampled.token == 5
    assert sampled.logprob == pytest.approx(float(LOGITS[0].log_softmax(-1)[5]))


def test_bias_and_bans_act_within_the_mask() -> None:
    banned, nothing = sample(
        LOGITS,
        [
            row(mask=mask_of(3, 4), banned=(3,), temperature=0),
            row(mask=mask_of(3), logit_bias={3: -100}),
        ],
    )
    assert banned.token == 4
    assert isinstance(nothing.error, InvalidArgument)
