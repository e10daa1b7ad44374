from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.errors import BackendError, InvalidArgument
from ramet.runtime.sampling.scoring import (
    METHODS,
    check_method,
    decide,
    ending_score,
    longer_tokens,
)

OK_LONG = [[-1.2], [-5.0, -0.01, -0.01, -0.01, -0.01, -0.01]]


def test_b01_each_rule_as_documented() -> None:
    mean = decide("token_length_normalized", OK_LONG)
    assert mean.index == 1
    assert mean.scores == pytest.approx([-1.2, -5.05 / 6])
    assert mean.probabilities is None
    assert decide("greedy_token_selection", OK_LONG).index == 0
    exact = decide("exact_likelihood", OK_LONG)
    assert exact.index == 0
    assert exact.scores == pytest.approx([-1.2, -5.05])
    assert exact.probabilities is not None
    assert sum(exact.probabilities) == pytest.approx(1)
    odds = exact.probabilities[0] / exact.probabilities[1]
    assert odds == pytest.approx(math.exp(-1.2 + 5.05))


def test_greedy_pads_short_rows_with_their_mean() -> None:
    # Column 0 keeps all; column 1: -0.5 (mean of row 0), -0.6, -0.4.
    entries = [[-0.5], [-0.5, -0.6], [-0.5, -0.4, -9.0]]
    decision = decide("greedy_token_selection", entries)
    assert decision.index == 2
    assert decision.scores == [1, 1, 2]


def test_greedy_takes_the_first_survivor() -> None:
    decision = decide("greedy_token_selection", [[-2.0], [-1.0, -1.0], [-1.0, -1.0]])
    assert (decision.index, decision.scores) == (1, [0, 2, 2])


def test_unconditional_scores_compare_with_the_choice_alone() -> None:
    entries = [[-1.0, -2.0], [-1.5, -1.0]]
    alone: list[list[float | None]] = [[None, -3.0], [-9.0, -0.5]]  # the first of each counts 0
    decision = decide("unconditional_likelihood_normalized", entries, alone)
    assert decision.scores == pytest.approx([(-1.0 + 1.0) / 2, (-1.5 - 0.5) / 2])
    assert decision.index == 0


def test_an_impossible_choice_loses_everywhere() -> None:
    entries = [[-math.inf, -math.inf], [-50.0]]
    alone: list[list[float | None]] = [[None, -math.inf], [None]]
    for method in METHODS:
        assert decide(method, entries, alone).index == 1


@pytest.mark.parametrize("method", METHODS)
def test_of_equals_the_first_wins(method: str) -> None:
    assert decide(method, [[-1.0], [-1.0]], [[None], [None]]).index == 0


def test_exact_likelihood_is_a_distribution_over_what_is_written() -> None:
    # After the border: c 0.6, d 0.4. After c: a 0.5, else end. After ca: r 0.25, else end.
    texts = {"c": [0.6], "ca": [0.6, 0.5], "car": [0.6, 0.5, 0.25], "d": [0.4]}
    entries = [[math.log(p) for p in row] for row in texts.values()]
    appends = [[ord(letter) for letter in text] for text in texts]
    longer = longer_tokens(appends)
    assert longer == [[ord("a")], [ord("r")], [], []]
    ending = [ending_score(math.log(0.5)), ending_score(math.log(0.25)), None, None]
    decision = decide("exact_likelihood", entries, ending=ending)
    assert decision.probabilities == pytest.approx([0.3, 0.225, 0.075, 0.4])
    assert decision.index == 3
    drawn = [
        decide("exact_likelihood", entries, ending=ending, temperature=1.0, uniform=u).index
        for u in (0.0, 0.299, 0.301, 0.524, 0.526, 0.599, 0.601, 0.9999999999999999)
    ]
    assert drawn == [0, 0, 1, 1, 2, 2, 3, 3]


def test_the_temperature_sharpens_the_draw() -> None:
    entries = [[math.log(0.2)], [math.log(0.8)]]
    for heat, border in ((0.5, 0.04 / 0.68), (1.0, 0.2), (5e-324, 0.0)):
        for u, index in ((border - 1e-9, 0), (border + 1e-9, 1)):
            if u >= 0:
                got = decide("exact_likelihood", entries, temperature=heat, uniform=u)
                assert got.index == index
                assert got.probabilities == pytest.approx([0.2, 0.8])


def test_the_empty_choice_ends_where_no_longer_one_goes_on() -> None:
    # The end token has 0.1, the choices' first tokens together 0.7: "" has 1 - 0.7.
    end = math.log(0.1)
    ending = ending_score(math.log(0.7), end)
    decision = decide(
        "exact_likelihood", [[end], [math.log(0.7)]], ending=[ending, None], temperature=0
    )
    assert decision.scores[0] == pytest.approx(math.log(0.3))
    assert decision.probabilities == pytest.approx([0.3, 0.7])


def test_ending_is_impossible_where_longer_choices_take_all() -> None:
    assert ending_score(0.0) == -math.inf
    assert ending_score(1e-9) == -math.inf
    assert ending_score(-math.inf) == 0


@given(st.lists(st.lists(st.integers(0, 2), max_size=4), min_size=1, max_size=12))
def test_longer_tokens_against_all_pairs(appends: list[list[int]]) -> None:
    expected = [
        sorted({b[len(a)] for b in appends if len(b) > len(a) and b[: len(a)] == a})
        for a in appends
    ]
    assert longer_tokens(appends) == expected


@given(st.lists(st.lists(st.floats(-9, 0), min_size=1, max_size=4), min_size=1, max_size=5))
def test_the_chosen_one_has_the_largest_score(entries: list[list[float]]) -> None:
    alone: list[list[float | None]] = [[None, *row[:-1]] for row in entries]
    for method in METHODS:
        decision = decide(method, entries, alone)
        assert decision.scores[decision.index] == max(decision.scores)
        assert len(decision.scores) == len(entries)


@given(st.lists(st.lists(st.integers(-3, 0), min_size=1, max_size=4), min_size=1, max_size=5))
def test_greedy_is_a_walk_over_a_padded_matrix(entries: list[list[int]]) -> None:
    width = max(map(len, entries))
    padded = [
        list(map(float, row)) + [math.fsum(row) / len(row)] * (width - len(row)) for row in entries
    ]
    alive = list(range(len(entries)))
    for column in range(width):
        best = max(padded[i][column] for i in alive)
        alive = [i for i in alive if padded[i][column] == best]
    assert decide("greedy_token_selection", entries).index == alive[0]


@pytest.mark.parametrize(
    ("method", "temperature", "words"),
    [
        ("best", 0.0, "choices_method='best'"),
        ("exact_likelihood", math.nan, "temperature=nan"),
        ("exact_likelihood", -0.5, "temperature=-0.5"),
        ("exact_likelihood", math.inf, "temperature=inf"),
        ("exact_likelihood", True, "temperature=True"),
        ("exact_likelihood", "1", "temperature='1'"),
        ("greedy_token_selection", 0.7, "only choices_method=exact_likelihood"),
    ],
)
def test_bad_arguments(method: str, temperature: float, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        check_method(method, temperature)
    with pytest.raises(InvalidArgument, match=words):
        decide(method, [[-1.0]], temperature=temperature)


def test_good_arguments() -> None:
    for method, temperature in itertools.product(METHODS, (0, 0.0)):
        check_method(method, temperature)
    check_method("exact_likelihood", 3)


def test_misshapen_lists() -> None:
    misshapen: list[list[list[float]]] = [[], [[]], [[-1.0], []]]
    for entries in misshapen:
        with pytest.raises(ValueError, match="entries"):
            decide("token_length_normalized", entries)
    with pytest.raises(ValueError, match="unconditional"):
        decide("unconditional_likelihood_normalized", [[-1.0]])
    with pytest.raises(ValueError, match="unconditional"):
        decide("unconditional_likelihood_normalized", [[-1.0]], [[None, -1.0]])
    with pytest.raises(ValueError, match="ending"):
        decide("exact_likelihood", [[-1.0]], ending=[None, None])
    with pytest.raises(BackendError, match="NaN"):
        decide("token_length_normalized", [[-1.0], [math.nan]])
