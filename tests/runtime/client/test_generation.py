from __future__ import annotations

from typing import Any

from ramet.runtime.client.generation import generation_result
from ramet.runtime.client.token_path import TokenPath

RESULT: dict[str, Any] = {
    "text": "ab",
    "output_token_ids": [1, 2, 3, 4],
    "finish_reason": "stop",
    "matched": "c",
    "kept": 2,
    "tail": [9],
    "completion_tokens": 4,
}
META = {"prompt_tokens": 2, "cached_tokens": 1, "computed_tokens": 1}


def _event(*results: dict[str, Any]) -> dict[str, Any]:
    return {"ev": "done", "call": 1, "results": list(results), "meta": META}


def test_what_enters_the_context_is_sample_0_up_to_the_cut_and_its_tail() -> None:
    other = {**RESULT, "output_token_ids": [5], "kept": 1, "tail": [], "text": "x"}
    result = generation_result(_event(RESULT, other), TokenPath())
    assert result.entered == [1, 2, 9]
    assert result.texts == ["ab", "x"]
    assert result.index is None


def test_meta_has_exactly_the_documented_keys() -> None:
    result = generation_result(_event(RESULT), TokenPath(None, [7, 8]))
    assert result.meta == [
        {
            "prompt_token_ids": [7, 8],
            "output_token_ids": [1, 2, 3, 4],
            "finish_reason": "stop",
            "matched": "c",
            "prompt_tokens": 2,
            "cached_tokens": 1,
            "computed_tokens": 1,
            "completion_tokens": 4,
        }
    ]


def test_logprobs_are_tuples_with_their_length() -> None:
    entry = [-0.5, 1, "a"]
    more = {
        "output_token_logprobs": [entry] * 4,
        "input_token_logprobs": [[None, 7, "x"], entry],
        "output_top_logprobs": [[entry, entry]] * 4,
        "input_top_logprobs": [None, [entry]],
    }
    meta = generation_result(_event({**RESULT, **more}), TokenPath()).meta[0]
    assert meta["output_token_logprobs"] == [(-0.5, 1, "a")] * 4
    assert meta["output_token_logprobs_length"] == meta["completion_tokens"]
    assert meta["input_token_logprobs"][0] == (None, 7, "x")
    assert meta["output_top_logprobs"][3] == [(-0.5, 1, "a")] * 2
    assert meta["input_top_logprobs"] == [None, [(-0.5, 1, "a")]]
