import math

import pytest

from ramet.runtime.errors import InvalidArgument
from ramet.runtime.request import SamplingParams, check_seed, check_text, check_token_ids


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_new_tokens", 0),
        ("max_new_tokens", -1),
        ("max_new_tokens", "5"),
        ("max_new_tokens", True),
        ("max_new_tokens", 1.5),
        ("min_new_tokens", -1),
        ("n", 0),
        ("temperature", math.nan),
        ("temperature", -0.1),
        ("temperature", math.inf),
        ("temperature", "1"),
        ("top_p", 0),
        ("top_p", 1.1),
        ("top_k", 0),
        ("top_k", -2),
        ("top_k", True),
        ("min_p", -1),
        ("min_p", 2),
        ("frequency_penalty", 3),
        ("presence_penalty", math.nan),
        ("repetition_penalty", 0),
        ("stop", ""),
        ("stop", ["", "END"]),
        ("stop", 3),
        ("stop", "\ud800"),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", 5),
        ("include_stop", 1),
        ("logit_bias", {"abc": 5}),
        ("logit_bias", {"-1": 5}),
        ("logit_bias", {5: math.nan}),
        ("logit_bias", {5: 1e9}),
        ("logit_bias", 7),
        ("seed", 2**70),
        ("seed", -(2**70)),
        ("seed", "12"),
        ("seed", 1.5),
        ("seed", True),
        ("priority", True),
        ("priority", 2**31),
        ("priority", "1"),
        ("deadline", 0),
        ("deadline", math.inf),
        ("deadline", "1"),
        ("cache", 1),
        ("cache_salt", 1),
        ("cache_salt", "\ud800"),
        pytest.param("max_new_tokens", 10**5000, id="huge max_new_tokens"),
        ("top_k", 2**31),
        pytest.param("seed", 10**5000, id="huge seed"),
        pytest.param("n", 10**5000, id="huge n"),
        ("stop_token_ids", [10**5000]),
        ("temperature", 10**400),
        ("repetition_penalty", 1e-320),
        ("logit_bias", [5]),
        ("logit_bias", {"1": 1, 1: 2}),
        ("logit_bias", [(1, 2, 3)]),
        ("logit_bias", {1: 10**400}),
        ("top_logprobs_num", -1),
    ],
)
def test_a_bad_value_is_refused_by_name(field: str, value: object):
    with pytest.raises(InvalidArgument, match=field) as caught:
        SamplingParams.build({field: value})
    assert len(str(caught.value)) < 500


def test_contradictions_are_refused():
    with pytest.raises(InvalidArgument, match="min_new_tokens=9"):
        SamplingParams.build({"min_new_tokens": 9, "max_new_tokens": 3})
    with pytest.raises(InvalidArgument, match="return_logprob"):
        SamplingParams.build({"top_logprobs_num": 3})
    with pytest.raises(InvalidArgument, match="twice"):
        SamplingParams.build({"max_tokens": 3, "max_new_tokens": 3})
    with pytest.raises(InvalidArgument, match=r"tempeature.*temperature"):
        SamplingParams.build({"tempeature": 1})


def test_what_is_accepted():
    params = SamplingParams.build(
        {"stop": ["a", "a", "b"], "logit_bias": {"7": 1, 3: -100}, "max_tokens": "context"}
    )
    assert params.stop == ("a", "b")
    assert params.logit_bias == ((3, -100.0), (7, 1.0))
    assert SamplingParams.build({"stop": []}) == SamplingParams.build(None)
    own = {"priority": -3, "deadline": 0.5, "cache": True, "cache_salt": "a"}
    assert SamplingParams.build(own).to_wire() == own
    nothing = dict.fromkeys([*SamplingParams.__dataclass_fields__, "regex", "max_tokens"])
    assert SamplingParams.build(nothing) == SamplingParams()
    for seed in (None, -1, 2**63 - 1, 0):
        check_seed("seed", seed)


def test_the_wire_form_has_what_differs_and_comes_back():
    params = SamplingParams.build({"stop": "x", "temperature": 0, "logit_bias": {1: 2.0}})
    assert params.to_wire() == {
        "stop": ("x",),
        "temperature": 0,
        "logit_bias": ((1, 2.0),),
    }
    import json

    assert SamplingParams.from_wire(json.loads(json.dumps(params.to_wire()))) == params


def test_ids_outside_the_vocabulary_are_refused():
    with pytest.raises(InvalidArgument, match=r"logit_bias.*999999.*100"):
        SamplingParams.build({"logit_bias": {999999: 1}}).check_vocabulary(100)
    with pytest.raises(InvalidArgument, match=r"stop_token_ids.*100"):
        SamplingParams.build({"stop_token_ids": [100]}).check_vocabulary(100)
    with pytest.raises(InvalidArgument, match="prompt"):
        check_token_ids("prompt", [1.0], 100)
    with pytest.raises(InvalidArgument, match="prompt: 100"):
        check_token_ids("prompt", [1, 100], 100)
    assert check_token_ids("prompt", [99], 100) == [99]


def test_a_lone_surrogate_is_no_text():
    with pytest.raises(InvalidArgument, match="index 1"):
        check_text("prompt", "a\ud83d")
    assert check_text("prompt", "ü🙂") == "ü🙂"
