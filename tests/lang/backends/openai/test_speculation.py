from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stub_server import tokens_of

from ramet.lang.backends.openai.speculation import Ahead, can_speculate
from ramet.runtime.request import SamplingParams

TEXT = " Rome\nPopulation: 3 million\nRiver: Tiber\n"


def ahead(text: str = TEXT, *, ended: bool = False, **params: object) -> Ahead:
    found = Ahead.of(tokens_of(text), text, ended, SamplingParams.build(params))
    assert found is not None
    return found


def line(**params: object) -> SamplingParams:
    return SamplingParams.build({"stop": "\n", **params})


def test_values_are_read_between_the_literals_that_the_model_wrote_itself() -> None:
    first = ahead().take(line())
    assert first is not None
    assert (first.text, first.finish_reason, first.matched) == (" Rome", "stop", "\n")
    rest = first.rest.after("\nPopulation:")
    assert rest is not None
    second = rest.take(line())
    assert second is not None
    assert (second.text, second.num_tokens) == (" 3 million", 2)
    assert second.rest.after("\nMayor:") is None
    third = second.rest.after("\nRiver:")
    assert third is not None
    assert third.take(line()).text == " Tiber"  # type: ignore[union-attr]


def test_the_limit_counts_the_values_tokens_only() -> None:
    rest = ahead().after(" Rome\nPopulation:")
    assert rest is not None
    cut = rest.take(line(max_new_tokens=1))
    assert cut is not None
    assert (cut.text, cut.finish_reason, cut.num_tokens) == (" 3", "length", 1)
    # The stop is the third token, so that it is not reached within two.
    assert rest.take(line(max_new_tokens=2)).finish_reason == "length"  # type: ignore[union-attr]
    assert rest.take(line(max_new_tokens=3)).finish_reason == "stop"  # type: ignore[union-attr]


def test_text_that_is_too_short_says_nothing_unless_the_model_ended() -> None:
    assert ahead("a b").take(line()) is None
    found = ahead("a b", ended=True).take(line())
    assert found is not None
    assert (found.text, found.finish_reason) == ("a b", "eos")
    assert found.rest.after("") is not None
    assert found.rest.after("x") is None


def test_the_earliest_stop_counts() -> None:
    found = ahead("a, b; c").take(line(stop=[";", ","]))
    assert found is not None
    assert (found.text, found.matched) == ("a", ",")


def test_calls_that_sample_otherwise_need_their_own_text() -> None:
    text = ahead(temperature=0.5)
    assert text.take(line(temperature=0.5, max_new_tokens=7)) is not None
    assert text.take(line(temperature=0.6)) is None
    assert text.take(line(temperature=0.5, n=2)) is None


@pytest.mark.parametrize(
    "params",
    [
        {"n": 2},
        {"return_logprob": True},
        {"min_new_tokens": 2},
        {"regex": "a"},
        {"max_new_tokens": "context"},
    ],
)
def test_calls_whose_value_is_not_a_cut(params: dict[str, object]) -> None:
    assert not can_speculate(SamplingParams.build(params))
    assert can_speculate(SamplingParams())


def test_tokens_that_do_not_join_are_no_use() -> None:
    assert Ahead.of(["a", "\ufffd"], "aé", False, SamplingParams()) is None


@settings(deadline=None, max_examples=200)
@given(
    st.text("ab \n", max_size=30),
    st.lists(st.text("ab\n", min_size=1, max_size=2), max_size=2),
    st.integers(1, 8),
    st.booleans(),
)
def test_a_value_is_what_a_call_token_by_token_gives(
    text: str, stops: list[str], limit: int, ended: bool
) -> None:
    tokens = tokens_of(text)
    params = SamplingParams.build({"stop": stops, "max_new_tokens": limit})
    expected = None
    for written in itertools.accumulate(tokens[:limit], initial=""):
        found = [written.find(stop) for stop in stops if stop in written]
        if found:
            expected = (written[: min(found)], "stop")
            break
    if expected is None and len(tokens) >= limit:
        expected = ("".join(tokens[:limit]), "length")
    if expected is None and ended:
        expected = (text, "eos")
    taken = ahead(text, ended=ended).take(params)
    assert (taken and (taken.text, taken.finish_reason)) == expected
