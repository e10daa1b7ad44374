from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.runtime.sampling import logits as steps


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def filters(
    logits: torch.Tensor, temperature: float, top_k: list[int], top_p: list[float]
) -> steps.Filters:
    best = logits.amax(-1)
    temperatures = torch.full((len(logits),), temperature, dtype=torch.float64)
    total = steps.weights(logits, best, temperatures).cumsum(-1)[:, -1]
    fractions = torch.tensor(top_p, dtype=torch.float64)
    return steps.Filters(logits, best, temperatures, total, torch.tensor(top_k), fractions)


def kept(logits: torch.Tensor, temperature: float, top_k: int, top_p: float) -> list[list[int]]:
    rows = filters(logits, temperature, [top_k] * len(logits), [top_p] * len(logits))
    mask = steps.keep_largest(logits, *steps.rank(rows))
    return [row.nonzero()[:, 0].tolist() for row in mask]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_working_copy_is_private_and_float64(dtype: torch.dtype) -> None:
    logits = torch.randn(3, 5).to(dtype)
    before = logits.clone()
    work = steps.working_copy(logits, [2, 0, 2])
    assert work.dtype == torch.float64
    assert torch.equal(work, logits[[2, 0, 2]].double())
    work += 1
    assert torch.equal(logits, before)


def test_the_repetition_penalty_divides_positive_and_multiplies_negative_logits() -> None:
    logits = torch.tensor([[2.0, -2.0, 0.0, 3.0], [1.0, 1.0, 1.0, 1.0]]).double()
    rows, tokens = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 1, 2, 3])
    steps.repetition_penalty_(logits, rows, tokens, column(2, 2, 2, 4))
    assert logits.tolist() == [[1.0, -4.0, 0.0, 3.0], [1.0, 1.0, 1.0, 0.25]]


def test_add_adds_and_bans() -> None:
    logits = torch.zeros(2, 3).double()
    steps.add_(
        logits, torch.tensor([0, 0, 1]), torch.tensor([0, 2, 1]), column(1.5, float("-inf"), -1)
    )
    assert logits.tolist() == [[1.5, 0.0, float("-inf")], [0.0, -1.0, 0.0]]


@pytest.mark.parametrize("temperature", [5e-324, 1e-45, 1e-6, 0.7, 1.0, 3.0, 1e300])
def test_weights_are_probabilities_up_to_a_factor(temperature: float) -> None:
    logits = torch.tensor([[1.0, 3.0, float("-inf"), 3.0, -2.0]]).double()
    got = steps.weights(logits, logits.amax(-1), column(temperature))[0]
    assert got[1] == got[3] == 1
    assert got[2] == 0
    expected = torch.softmax(logits[0] / max(temperature, 1e-3), 0)
    if temperature >= 1e-3:
        assert torch.allclose(got / got.sum(), expected, rtol=1e-12, atol=0)
    else:
        assert got.tolist() == [0, 1, 0, 1, 0]


def test_top_k_keeps_the_lowest_ids_of_equals() -> None:
    logits = torch.tensor([[1.0, 2.0, 2.0, 2.0, 0.0]]).double()
    assert kept(logits, 1.0, 2, 1.0) == [[1, 2]]
    assert kept(logits, 1.0, 3, 1.0) == [[1, 2, 3]]
    assert kept(logits, 1.0, 4, 1.0) == [[0, 1, 2, 3]]


def test_a_high_temperature_makes_no_ties() -> None:
    logits = torch.tensor([[1.0, 1.0 + 1e-12]], dtype=torch.float64)
    assert kept(logits, 1e9, 1, 1.0) == [[1]]


def test_top_p_keeps_the_smallest_set_with_the_mass() -> None:
    logits = torch.tensor([[0.1, 0.4, 0.3, 0.2]]).double().log()
    assert kept(logits, 1.0, 4, 0.39) == [[1]]
    assert kept(logits, 1.0, 4, 0.41) == [[1, 2]]
    assert kept(logits, 1.0, 4, 0.71) == [[1, 2, 3]]
    assert kept(logits, 1.0, 4, 1e-9) == [[1]]
    assert kept(logits, 1.0, 4, 1 - 1e-16) == [[0, 1, 2, 3]]


def test_top_p_is_of_what_top_k_left() -> None:
    logits = torch.tensor([[0.1, 0.4, 0.3, 0.2]]).double().log()
    assert kept(logits, 1.0, 2, 0.56) == [[1]]  # 0.4 / 0.7 = 0.571
    assert kept(logits, 1.0, 2, 0.58) == [[1, 2]]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(-20, 20), min_size=1, max_size=12),
    st.integers(1, 12),
    st.floats(0.01, 1.0),
    st.sampled_from([0.3, 1.0, 4.0]),
)
def test_rank_against_a_sort(values: list[int], top_k: int, top_p: float, heat: float) -> None:
    logits = torch.tensor([values]).double() / 4
    top_k = min(top_k, len(values))
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))[:top_k]
    probabilities = torch.softmax(logits[0, order] / heat, 0).tolist()
    expected: list[int] = []
    mass = 0.0
    for token, probability in zip(order, probabilities, strict=True):
        if top_p < 1 and mass >= top_p - 1e-12:
            if mass < top_p + 1e-12:
                return  # a border case of rounding
            break
        expected.append(token)
        mass += probability
    assert kept(logits, heat, top_k, top_p) == [sorted(expected)]


def test_a_flat_row_needs_more_than_the_candidates() -> None:
    vocab = 5 * steps.CANDIDATES
    generator = torch.Generator().manual_seed(3)
    flat = torch.randn(vocab, generator=generator).double() / 100
    sharp = torch.randn(vocab, generator=generator).double() * 9
    logits = torch.stack([flat, sharp, flat])
    top_k = [vocab, vocab, 3 * steps.CANDIDATES]
    counts, thresholds = steps.rank(filters(logits, 1.0, top_k, [0.9, 0.9, 0.9]))
    for i, row in enumerate(logits):
        ranked = row.sort(descending=True).values[: top_k[i]]
        mass = torch.softmax(ranked, 0).cumsum(0)
        expected = int((mass < 0.9).sum()) + 1
        assert counts[i] == expected
        assert thresholds[i] == ranked[expected - 1]
        alone = steps.rank(filters(logits[i : i + 1], 1.0, top_k[i : i + 1], [0.9]))
        assert (alone[0][0], alone[1][0]) == (counts[i], thresholds[i])
    assert int(counts[0]) > steps.CANDIDATES > int(counts[1])


def test_min_p_is_a_fraction_of_the_likeliest() -> None:
    weights = torch.tensor([[1.0, 0.5, 0.49, 0.0], [0.2, 1.0, 0.1, 0.0]]).double()
    assert steps.min_p(weights, column(0.5, 0.0)).tolist() == [
        [True, True, False, False],
        [True, True, True, True],
    ]


def test_draw_inverts_the_cumulative_weights() -> None:
    weights = torch.tensor([[0.0, 1.0, 0.0, 3.0, 0.0], [2.0, 0.0, 0.0, 0.0, 2.0]]).double()
    below_one = 1 - 2.0**-53
    uniforms = [[0.0, 0.2499, 0.25, below_one], [0.0, 0.4999, 0.5, below_one]]
    got = steps.draw(weights, torch.tensor(uniforms, dtype=torch.float64))
    assert got.tolist() == [[1, 1, 3, 3], [0, 0, 4, 4]]


def test_a_weightless_token_is_never_drawn_at_the_end() -> None:
    weights = torch.full((1, 1001), 0.1).double()
    weights[0, 900:] = 0
    below_one = torch.tensor([[1 - 2.0**-53]], dtype=torch.float64)
    assert steps.draw(weights, below_one).item() == 899
