from __future__ import annotations

from typing import Any

import pytest

from ramet.lang.backends.openai.answer import Answer, usage_meta
from ramet.lang.errors import BackendError, UnsupportedFeature
from ramet.runtime.request import SamplingParams


def answer(*data: dict[str, Any], **params: Any) -> Answer:
    found = Answer(SamplingParams.build(params), "OpenAI(u, m)", lambda text: text)
    for item in data:
        found.add(item)
    return found


def choice(text: str = "x", finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "finish_reason": finish, **more}]}


def message(text: str | None, finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": text}, "finish_reason": finish, **more}]}


@pytest.mark.parametrize(
    ("more", "params", "expected"),
    [
        ({}, {}, ("eos", None)),
        ({}, {"stop": ["a", "b"]}, ("stop", None)),
        ({"stop_reason": "b"}, {"stop": ["a", "b"]}, ("stop", "b")),
        ({"stop_reason": None}, {"stop": ["a", "b"]}, ("eos", None)),
        ({"matched_stop": 5}, {"stop_token_ids": [5]}, ("stop", 5)),
        ({"finish_reason": "length"}, {"stop": "a"}, ("length", None)),
        ({"finish_reason": "content_filter"}, {}, ("content_filter", None)),
        ({"finish_reason": "eos"}, {"stop": "a"}, ("eos", None)),
    ],
)
def test_reasons(more: dict[str, Any], params: dict[str, Any], expected: tuple[Any, Any]) -> None:
    found = answer(choice("", **more), **params).result().meta[0]
    assert (found["finish_reason"], found["matched"]) == expected


def test_events_join() -> None:
    events = [
        {"choices": [{"index": 1, "delta": {"role": "assistant", "content": None}}]},
        {"choices": [{"index": 1, "delta": {"content": "a"}}]},
        {"choices": [{"index": 0, "delta": {"content": "b"}, "finish_reason": "length"}]},
        {"choices": [{"index": 1, "delta": {"content": "c"}, "finish_reason": None}]},
        {"choices": [{"index": 1, "delta": {}, "finish_reason": "stop"}], "usage": None},
        {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}},
    ]
    result = answer(*events, n=2).result()
    assert result.texts == ["b", "ac"]
    assert [meta["finish_reason"] for meta in result.meta] == ["length", "eos"]
    assert [meta["prompt_tokens"] for meta in result.meta] == [5, 5]
    assert [meta["completion_tokens"] for meta in result.meta] == [None, None]


def test_usage() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 8},
    }
    assert usage_meta(usage) == {
        "prompt_tokens": 10,
        "cached_tokens": 8,
        "computed_tokens": 2,
        "completion_tokens": 2,
    }
    assert set(usage_meta({"prompt_tokens_details": None}).values()) == {None}


def test_logprobs_of_both_kinds() -> None:
    rows = {"tokens": ["x", "y"], "token_logprobs": [-1, -2.5], "top_logprobs": None}
    wanted = [(-1.0, None, "x"), (-2.5, None, "y")]
    meta = answer(choice("xy", logprobs=rows), return_logprob=True).result().meta[0]
    assert meta["output_token_logprobs"] == wanted
    assert meta["output_token_logprobs_length"] == meta["completion_tokens"] == 2
    content = [
        {"token": "x", "logprob": -1, "top_logprobs": [{"token": "x", "logprob": -1.0}]},
        {"token": "y", "logprob": -2.5},
    ]
    found = message("xy", logprobs={"content": content})
    meta = answer(found, return_logprob=True, top_logprobs_num=1).result().meta[0]
    assert meta["output_token_logprobs"] == wanted
    assert meta["output_top_logprobs"] == [[(-1.0, None, "x")], None]


def test_the_likeliest_come_first_and_no_more_than_asked() -> None:
    rows = {
        "tokens": ["x"],
        "token_logprobs": [-1],
        "top_logprobs": [{"a": -3, "b": -0.5, "x": -1}],
    }
    found = answer(choice(logprobs=rows), return_logprob=True, top_logprobs_num=2).result()
    assert found.meta[0]["output_top_logprobs"] == [[(-0.5, None, "b"), (-1.0, None, "x")]]


def test_logprobs_that_do_not_come() -> None:
    with pytest.raises(UnsupportedFeature, match="return_logprob=True"):
        answer(choice(), return_logprob=True).result()
    assert answer(choice(""), return_logprob=True).result().texts == [""]


def test_a_message_without_content_is_empty() -> None:
    assert answer(message(None)).result().texts == [""]


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"choices": None},
        {"choices": "x"},
        {"choices": [5]},
        choice(index=1),
        choice(index="0"),
        choice(text=5),  # type: ignore[arg-type]
        choice(finish_reason=5),
        {"choices": [{"message": "text"}]},
        choice(logprobs=5),
        choice(logprobs={"tokens": ["x"], "token_logprobs": []}),
        choice(logprobs={"content": [{}]}),
    ],
)
def test_answers_of_another_shape(data: dict[str, Any]) -> None:
    with pytest.raises(BackendError, match=r"OpenAI\(u, m\) gave an unexpected answer"):
        answer(data)


def test_an_answer_without_an_end() -> None:
    with pytest.raises(BackendError, match=r"sample 0 of the answer has no end.*'x'"):
        answer(choice(finish=None)).result()
    with pytest.raises(BackendError, match="sample 1 of the answer"):
        answer(choice(), n=2).result()
