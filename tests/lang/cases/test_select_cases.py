"""Reported cases of `select`: B01, B03, B05, B06 and B07."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_runtime import leans, random_model, words

import ramet.lang as rm
from ramet.runtime.runtime import Runtime

Start = Callable[..., Runtime]
LONG = "yes it is quite so indeed"
METHODS = [
    rm.token_length_normalized,
    rm.greedy_token_selection,
    rm.unconditional_likelihood_normalized,
    rm.exact_likelihood,
]


def choose(runtime: Runtime, prompt: str, choices: list[str], **options: Any) -> rm.ProgramState:
    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += prompt + rm.select("v", choices, **options)

    return program.run(backend=runtime)


@pytest.mark.parametrize(
    ("method", "winner"),
    [
        (rm.token_length_normalized, LONG),
        (rm.greedy_token_selection, "ok"),
        (rm.exact_likelihood, "ok"),
    ],
)
def test_the_scoring_rule_is_the_users_and_shows_its_reasons(
    start: Start, tmp_path: Path, method: Any, winner: str
) -> None:
    """B01: averaging favours a long choice whose tail follows from its head."""
    tokens = ["ok", "yes", " it", " is", " quite", " so", " indeed"]
    table = {"Well:": {"ok": -1.2, "yes": -5.0}}
    for i in range(1, 6):
        table["Well:" + "".join(tokens[1 : i + 1])] = {tokens[i + 1]: -0.01}
    runtime = start(leans(table), words(tmp_path, tokens))

    state = choose(runtime, "Well:", ["ok", LONG], choices_method=method)

    assert state["v"] == winner
    ok, long = state.meta("v")["choices"]
    assert ok["logprobs"] == pytest.approx([-1.2])
    assert long["logprobs"] == pytest.approx([-5.0, *[-0.01] * 5])
    assert long["tokens"] == tokens[1:]
    assert state.meta("v")["scores"] == [ok["score"], long["score"]]


@pytest.mark.parametrize("method", METHODS)
def test_a_choice_is_scored_by_its_own_tokens_alone(
    start: Start, tmp_path: Path, method: Any
) -> None:
    """B03: the last token of the prompt was part of every score, and not an equal one."""
    tokens = [" everyone", " search", "everyone", "search", "web", "wiki"]
    runtime = start(random_model, words(tmp_path, tokens))
    choices = ["everyone", "search_web", "search_wiki"]

    inside = choose(runtime, "=> ", choices, choices_method=method)
    outside = choose(runtime, "=>", [f" {choice}" for choice in choices], choices_method=method)

    ours = inside.meta("v")["choices"]
    assert ["".join(choice["tokens"]) for choice in ours] == choices
    assert [len(choice["logprobs"]) for choice in ours] == [1, 3, 3]
    constants, others = [], []
    for mine, theirs in zip(ours, outside.meta("v")["choices"], strict=True):
        assert mine["logprobs"][1:] == pytest.approx(theirs["logprobs"][1:])
        constants.append(mine["logprobs"][0] - theirs["logprobs"][0])
        others += mine["logprobs"]
    assert constants == pytest.approx([constants[0]] * 3)
    assert max(others) <= 1e-9
    assert inside.text() == f"=> {inside['v']}"


@pytest.mark.parametrize(
    "method", [rm.token_length_normalized, rm.greedy_token_selection, rm.exact_likelihood]
)
@pytest.mark.parametrize(
    ("winner", "after_c", "after_car"),
    [("c", -3.0, -3.0), ("car", -0.1, -3.0), ("cart", -0.1, -0.01)],
)
def test_a_choice_that_is_a_prefix_of_another_can_win(
    start: Start, method: Any, winner: str, after_c: float, after_car: float
) -> None:
    """B05 (2): of c, car and cart each can win."""
    table = {
        "A ": {"c": -0.5},
        "A c": {"a": after_c},
        "A ca": {"r": -0.1 if after_c > -1 else after_c},
        "A car": {"t": after_car},
    }
    state = choose(start(leans(table)), "A ", ["c", "car", "cart"], choices_method=method)
    assert state["v"] == winner
    assert state.text() == f"A {winner}"


def test_ending_early_has_the_probability_that_the_longer_choices_leave(start: Start) -> None:
    """B05 (2): ending is possible at c and at car, and the probabilities add up."""
    table = {"A ": {"c": 0.0}, "A c": {"a": -0.5}, "A ca": {"r": 0.0}, "A car": {"t": -0.7}}
    runtime = start(leans(table))
    meta = choose(runtime, "A ", ["c", "car", "cart"], choices_method=rm.exact_likelihood).meta("v")
    goes_on, ends = math.exp(-0.5), math.exp(-0.7)
    expected = [1 - goes_on, goes_on * (1 - ends), goes_on * ends]
    assert meta["probabilities"] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    "method", [rm.token_length_normalized, rm.greedy_token_selection, rm.exact_likelihood]
)
def test_the_empty_choice_is_a_value(start: Start, method: Any) -> None:
    """B06: picking "" lost the variable."""
    runtime = start(leans({"The dog ": {"<|im_end|>": -0.1, "N": -4.0, "V": -4.0}}))
    state = choose(runtime, "The dog ", ["NOUN", "VERB", ""], choices_method=method)
    assert "v" in state
    assert state["v"] == ""
    assert state.text() == "The dog "


@pytest.mark.parametrize("count", [10_000, 100_000])
def test_thousands_of_choices_share_their_prefixes(start: Start, count: int) -> None:
    """B07: each prefix of the numbers is computed once, in a pool that holds few of them."""
    digits = {str(digit): -2.4 for digit in range(10)}
    table = {"n=": {**digits, "7": -1.0}, "n=7": {**digits, "3": -1.0}}
    runtime = start(leans(table), pool_tokens=512, chunk_tokens=128)
    state = choose(
        runtime, "n=", [str(i) for i in range(count)], choices_method=rm.exact_likelihood
    )
    assert state["v"].startswith("73")
    inner = count // 10 - 1  # The numbers that longer ones begin with; 0 begins none.
    stats = runtime.stats()
    assert stats["computed_tokens"] - stats["recomputed_tokens"] == len("n=") + inner
    assert stats["recomputed_tokens"] <= inner


def test_choices_that_cannot_be_told_apart_are_refused_before_any_model_call(start: Start) -> None:
    """B07: what can't work says so: here two equal choices among ten thousand."""
    runtime = start(leans({}))
    choices = [str(i) for i in range(10_000)] + ["4711"]
    with pytest.raises(rm.InvalidArgument, match="4711"):
        choose(runtime, "n=", choices)
    assert runtime.stats()["calls"] == 0
