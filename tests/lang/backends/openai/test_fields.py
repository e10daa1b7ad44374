from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ramet.lang.backends.openai.fields import EXTRA, FieldRules, extra_names
from ramet.lang.errors import InvalidArgument, UnsupportedFeature
from ramet.runtime.request import SamplingParams


def rules(extra: object = (), omit: tuple[str, ...] = (), **body: Any) -> FieldRules:
    names = extra_names(extra)
    return FieldRules(
        "OpenAI('u', 'm')", "m", names, frozenset(omit), "max_completion_tokens", body
    )


def body_of(
    params: dict[str, Any], found: FieldRules | None = None, **options: Any
) -> dict[str, Any]:
    built = SamplingParams.build(params)
    found = found or rules()
    found.check(built, chat=options.get("chat", False))
    return found.body(built, **{"chat": False, **options})


def test_the_languages_defaults_are_said() -> None:
    assert body_of({}) == {"model": "m", "max_tokens": 128, "temperature": 1.0, "top_p": 1.0}
    chat = body_of({}, chat=True)
    assert chat["max_completion_tokens"] == 128
    assert "max_tokens" not in chat


def test_what_every_endpoint_takes() -> None:
    given = {
        "max_tokens": 5,
        "n": 2,
        "temperature": 0.5,
        "top_p": 0.9,
        "frequency_penalty": 0.25,
        "presence_penalty": -1,
        "stop": ["a", "b", "c", "d", "e"],
        "logit_bias": {7: -100},
    }
    assert body_of(given, seed=3) == {
        "model": "m",
        **given,
        "logit_bias": {"7": -100.0},
        "seed": 3,
    }


def test_logprobs() -> None:
    asked = {"return_logprob": True}
    assert body_of(asked)["logprobs"] == 1
    assert body_of({**asked, "top_logprobs_num": 4})["logprobs"] == 4
    chat = body_of({**asked, "top_logprobs_num": 4}, chat=True)
    assert (chat["logprobs"], chat["top_logprobs"]) == (True, 4)
    assert "top_logprobs" not in body_of(asked, chat=True)


REFUSED = {
    "top_k": 5,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "stop_token_ids": [3],
    "min_tokens": 2,
    "ignore_eos": True,
    "include_stop": True,
    "stop_regex": "[0-9]+",
    "regex": "[0-9]+",
    "jump_forward": False,
    "close_within_budget": False,
    "priority": 1,
    "deadline": 2.5,
    "cache": True,
    "cache_salt": "a",
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("chat", [False, True])
def test_what_is_not_offered_is_refused_by_name(name: str, chat: bool) -> None:
    with pytest.raises(UnsupportedFeature, match=rf"{name}=.*OpenAI\('u', 'm'\)") as caught:
        body_of({name: REFUSED[name]}, chat=chat)
    assert (f"extra=['{name}']" in str(caught.value)) == (name in EXTRA)


def test_prompt_logprobs_are_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="logprob_start_len=0"):
        body_of({"return_logprob": True, "logprob_start_len": 0})


def test_every_field_is_either_sent_or_refused() -> None:
    """A field that is added to SamplingParams can't be ignored by accident."""
    values: dict[str, Any] = {
        **REFUSED,
        "max_new_tokens": 5,
        "n": 2,
        "temperature": 0.5,
        "top_p": 0.9,
        "frequency_penalty": 0.25,
        "presence_penalty": -1,
        "stop": ["a"],
        "logit_bias": {7: -100},
        "seed": 5,
        "return_logprob": True,
        "logprob_start_len": 1,
        "top_logprobs_num": 2,
    }
    for field in dataclasses.fields(SamplingParams):
        names = {"min_new_tokens": "min_tokens", "constraint": "regex"}
        name = names.get(field.name, field.name)
        if name == "seed" or name not in values:
            assert name == "seed", f"{name} is new: send it or leave it refused, and test it here"
            continue
        given = {name: values[name]}
        if "logprob" in name:
            given["return_logprob"] = True
        try:
            sent = body_of(given)
        except UnsupportedFeature:
            continue
        assert sent != body_of({}), f"{name} is accepted, but changes nothing"


def test_extras_are_sent_under_the_servers_names() -> None:
    found = rules({name: name for name in EXTRA})
    assert body_of({}, found)["top_k"] == -1
    sent = body_of({name: value for name, value in REFUSED.items() if name in EXTRA}, found)
    assert {name: sent[name] for name in REFUSED if name in EXTRA} == {
        "top_k": 5,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "stop_token_ids": (3,),
        "min_tokens": 2,
        "ignore_eos": True,
        "regex": "[0-9]+",
    }
    renamed = body_of({"repetition_penalty": 1.2}, rules({"repetition_penalty": "repeat_penalty"}))
    assert renamed["repeat_penalty"] == 1.2
    assert "repetition_penalty" not in renamed


def test_omitted_fields_are_not_sent_and_cannot_be_set() -> None:
    found = rules(omit=("temperature", "top_p", "seed", "stream_options"))
    sent = body_of({}, found, seed=5, stream=True)
    assert sent == {"model": "m", "max_tokens": 128, "stream": True}
    with pytest.raises(UnsupportedFeature, match=r"temperature=0\.5: omit="):
        body_of({"temperature": 0.5}, found)


def test_up_to_the_context_is_what_chat_endpoints_do_by_themselves() -> None:
    assert "max_completion_tokens" not in body_of({"max_tokens": "context"}, chat=True)
    with pytest.raises(UnsupportedFeature, match='max_tokens="context"'):
        body_of({"max_tokens": "context"})


def test_streams_ask_for_usage() -> None:
    assert body_of({}, stream=True)["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("extra", [["nothing"], {"top_k": 5}, "top_k", 5, [5]])
def test_bad_extra(extra: object) -> None:
    with pytest.raises(InvalidArgument, match="extra"):
        rules(extra)


def test_bad_omit_and_extra_body() -> None:
    with pytest.raises(InvalidArgument, match="omit: 'stop'"):
        rules(omit=("stop",))
    with pytest.raises(InvalidArgument, match="extra_body: 'messages'"):
        rules(messages=[])
    assert body_of({}, rules(chat_template_kwargs={"a": 1}))["chat_template_kwargs"] == {"a": 1}
