import pytest

from ramet.runtime.request import SamplingParams
from ramet.runtime.sampling.rows import Sampled, SampleRow, always_greedy, only_tokens


@pytest.mark.parametrize(
    ("fields", "greedy"),
    [
        ({}, True),
        ({"top_p": 0.5}, True),
        ({"temperature": 1.0}, False),
        ({"logit_bias": {3: 1.0}}, False),
        ({"frequency_penalty": 0.5}, False),
        ({"repetition_penalty": 1.2}, False),
        ({"return_logprob": True}, False),
    ],
)
def test_what_is_always_greedy(fields: dict, greedy: bool) -> None:
    assert always_greedy(SamplingParams.build({"temperature": 0, **fields})) is greedy


def test_a_row_without_more_says_nothing_more() -> None:
    row = SampleRow(0, SamplingParams(), 1, 2)
    assert (row.counts, row.prompt_ids, row.banned, row.mask) == ({}, None, (), None)
    assert Sampled(4) == (4, None, None, None)


@pytest.mark.parametrize(
    ("fields", "only"),
    [
        ({"temperature": 1.0, "logit_bias": {3: 1.0}, "stop": "x", "min_new_tokens": 2}, True),
        ({"presence_penalty": 0.5}, False),
        ({"repetition_penalty": 1.2}, False),
        ({"return_logprob": True}, False),
    ],
)
def test_of_which_only_the_tokens_matter(fields: dict, only: bool) -> None:
    assert only_tokens(SamplingParams.build(fields)) is only
