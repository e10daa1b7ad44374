from __future__ import annotations

import math
from typing import Any

import pytest

from ramet.lang.backends.openai import scoring
from ramet.lang.errors import UnsupportedFeature

NAME = "OpenAI(u, m)"


def reported(
    tokens: list[str], logprobs: list[float | None], *, offsets: list[int] | None = None
) -> dict[str, Any]:
    found: dict[str, Any] = {"tokens": tokens, "token_logprobs": logprobs}
    if offsets is not None:
        found["text_offset"] = offsets
    return found


def rows(texts: list[str], *found: dict[str, Any]) -> list[scoring.Row]:
    choices = [{"index": i, "text": "", "logprobs": item} for i, item in enumerate(found)]
    return scoring.rows_of({"choices": choices[::-1]}, texts, NAME)


def row(tokens: list[str], logprobs: list[float | None]) -> scoring.Row:
    return rows(["".join(tokens)], reported(tokens, logprobs))[0]


def test_the_generated_token_is_no_part_of_the_text() -> None:
    for extra in ([], ["!"], [""]):
        found = reported(["A", ":", " b", *extra], [None, -1, -2] + [-9.0] * len(extra))
        (one,) = rows(["A: b"], found)
        assert (one.tokens, one.logprobs) == (["A", ":", " b"], [None, -1.0, -2.0])
        assert one.begins == [0, 1, 2, 4]


def test_a_bos_that_is_written_out_is_no_part_of_the_text() -> None:
    (one,) = rows(["A"], reported(["<s>", "A", "x"], [None, -0.5, -1]))
    assert (one.tokens, one.logprobs) == (["A"], [-0.5])


def test_tokens_with_parts_of_characters_are_placed_by_their_offsets() -> None:
    tokens = ["A", ":", "bytes:\\xe6", "\ufffd", "x"]
    (one,) = rows(["A:日"], reported(tokens, [None, -1, -2, -3, -4], offsets=[0, 1, 2, 2, 3]))
    assert one.tokens == tokens[:4]
    assert one.begins == [0, 1, 2, 2, 3]
    (found,) = scoring.score([one], "A:", NAME)
    assert found.entries == [-2.0, -3.0]


@pytest.mark.parametrize(
    "found",
    [
        None,
        {},
        reported(["x"], [-1.0]),
        reported(["x"], [-1.0], offsets=[0]),
        reported(["x"], [-1.0], offsets=[3]),
        reported(["A", "b"], [-1.0]),
        {"content": []},
    ],
)
def test_an_endpoint_that_does_not_report_a_given_text(found: Any) -> None:
    with pytest.raises(UnsupportedFeature, match=r"select: OpenAI\(u, m\) doesn't report"):
        rows(["A:b"], found)
    with pytest.raises(UnsupportedFeature, match="doesn't report"):
        scoring.rows_of({}, ["A:b"], NAME)


def test_entries_begin_behind_what_all_choices_share() -> None:
    one = row(["A", ":", " yes"], [None, -1, -2])
    two = row(["A", ":", " no", "t"], [None, -1, -3, -4])
    scored = scoring.score([one, two], "A:", NAME)
    assert [s.entries for s in scored] == [[-2.0], [-3.0, -4.0]]
    assert [s.tokens for s in scored] == [[" yes"], [" no", "t"]]


def test_a_token_across_the_end_of_the_prompt_is_the_first_entry() -> None:
    one = row(["A", ":", " yes"], [None, -1, -2])
    two = row(["A", ":", " ", "9"], [None, -1, -3, -4])
    scored = scoring.score([one, two], "A: ", NAME)
    assert [s.entries for s in scored] == [[-2.0], [-7.0]]
    assert [s.tokens for s in scored] == [["yes"], ["9"]]


def test_the_border_stays_in_the_prompt() -> None:
    one = row(["A", "xy", "1"], [None, -1, -2])
    two = row(["A", "xy", "2"], [None, -1, -3])
    scored = scoring.score([one, two], "A", NAME)
    assert [s.entries for s in scored] == [[-1.0, -2.0], [-1.0, -3.0]]


def test_a_first_token_that_nothing_is_known_of() -> None:
    with pytest.raises(UnsupportedFeature, match="needs a prompt"):
        scoring.score([row(["yes"], [None]), row(["no"], [None])], "", NAME)


def choose(method: str, scored: list[scoring.Scored], **options: Any) -> Any:
    values = {"alone": None, "temperature": 0.0, "uniform": 0.0, **options}
    return scoring.choose(method, scored, backend=NAME, **values)


def test_the_rules_differ_as_they_should() -> None:
    """B01 of the bug reports: a long choice whose tail follows from its head."""
    ok = scoring.Scored([-1.2], [" ok"], [" ok"], [-1.2])
    tail = [-5.0] + [-0.01] * 5
    long = scoring.Scored(tail, list("abcdef"), list("abcdef"), list(tail))
    assert choose("token_length_normalized", [ok, long])[0].index == 1
    assert choose("greedy_token_selection", [ok, long])[0].index == 0
    decision = choose("exact_likelihood", [ok, long])[0]
    assert decision.index == 0
    assert math.isclose(sum(decision.probabilities), 1)


def test_ending_counts_for_a_choice_that_another_goes_on_from() -> None:
    short = scoring.Scored([-0.1], [" a"], [" a"], [-0.1])
    longer = scoring.Scored([-0.1, -0.05], [" a", "b"], [" a", "b"], [-0.1, -0.05])
    decision = choose("exact_likelihood", [short, longer])[0]
    assert decision.index == 1
    assert math.isclose(decision.scores[0], -0.1 + math.log(1 - math.exp(-0.05)))


def test_a_choice_is_drawn() -> None:
    scored = [scoring.Scored([lp], [t], [t], [lp]) for lp, t in ((-1.0, "a"), (-1.0, "b"))]
    picks = [
        choose("exact_likelihood", scored, temperature=1.0, uniform=u)[0].index for u in (0.4, 0.6)
    ]
    assert picks == [0, 1]


def test_unconditional_likelihood() -> None:
    one = scoring.Scored([-1.0, -1.0], [" a", "b"], [" a", "b"], [-1.0, -1.0])
    two = scoring.Scored([-1.0, -1.5], [" c", "d"], [" c", "d"], [-1.0, -1.5])
    alone = [row([" a", "b"], [None, -0.5]), row([" c", "d"], [None, -2.5])]
    decision, unconditional = choose("unconditional_likelihood_normalized", [one, two], alone=alone)
    assert unconditional == [[None, -0.5], [None, -2.5]]
    assert (decision.index, decision.scores) == (1, [-0.75, 0.0])
    other = [row([" ab"], [None]), alone[1]]
    with pytest.raises(UnsupportedFeature, match="' ab' with other tokens"):
        choose("unconditional_likelihood_normalized", [one, two], alone=other)


def test_batches() -> None:
    texts = [f"{i}" for i in range(150)]
    batches = scoring.batches_of(texts)
    assert [len(batch) for batch in batches] == [64, 64, 22]
    assert [text for batch in batches for text in batch] == texts
    big = "x" * scoring.MAX_CHARACTERS
    assert scoring.batches_of(["a", big, big, "b"]) == [["a"], [big], [big], ["b"]]
