from __future__ import annotations

from typing import Any

import pytest

import ramet.lang as rm
from ramet.lang.expr import Gen, RoleBegin, RoleEnd, Select, Sum, Text


def test_gen_keeps_only_what_was_said_under_the_fields_names() -> None:
    node = rm.gen("x", 5, min_tokens=2, stop="\n", temperature=None)
    assert isinstance(node, Gen)
    assert node.fields == {"max_new_tokens": 5, "min_new_tokens": 2, "stop": "\n"}
    assert node.name == "x"


def test_a_call_knows_its_place_in_the_program() -> None:
    places = [rm.gen("x"), rm.gen("y", choices=["a"]), rm.select("z", ["a"])]
    lines = [node.site for node in places if isinstance(node, (Gen, Select))]
    assert all(site.startswith(__file__ + ":") for site in lines)
    assert len(set(lines)) == 1


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", "5"),
        ("min_tokens", -1),
        ("n", 0),
        ("temperature", float("nan")),
        ("temperature", -1),
        ("top_p", 0),
        ("top_k", 0),
        ("min_p", 2),
        ("stop", [""]),
        ("stop", 5),
        ("stop_token_ids", [-1]),
        ("logit_bias", {"abc": 5}),
        ("logit_bias", {5: float("nan")}),
        ("seed", 2**70),
        ("seed", 1.5),
        ("seed", True),
        ("return_logprob", "yes"),
        ("return_text_in_logprobs", 1),
        ("ignore_eos", 1),
        ("priority", 1.5),
        ("deadline", 0),
        ("cache", 1),
        ("cache_salt", 7),
    ],
)
def test_a_bad_argument_is_refused_by_name(argument: str, value: Any) -> None:
    with pytest.raises(
        rm.InvalidArgument, match=r"\w*" + argument.replace("_tokens", r"\w*_tokens")
    ):
        rm.gen("x", **{argument: value})


def test_what_two_arguments_say_together_waits_for_the_run() -> None:
    assert isinstance(rm.gen("x", min_tokens=500), Gen)
    assert isinstance(rm.gen("x", top_logprobs_num=3), Gen)


def test_a_call_may_replace_what_the_run_says_of_sharing_and_order() -> None:
    order: dict[str, Any] = {"priority": 3, "deadline": 1.5}
    for given in ({**order, "cache": False}, {**order, "cache_salt": "a"}):
        node = rm.gen("x", **given)
        assert isinstance(node, Gen)
        assert node.fields == given
    with pytest.raises(rm.InvalidArgument, match="cache_salt='a': cache=False"):
        rm.gen("x", cache=False, cache_salt="a")


def test_two_constraints_contradict_each_other() -> None:
    with pytest.raises(rm.InvalidArgument, match="regex, choices"):
        rm.gen("x", regex="a", choices=["a"])


@pytest.mark.parametrize("name", ["", 3, ["x"]])
def test_a_name_is_a_text(name: Any) -> None:
    with pytest.raises(rm.InvalidArgument, match="name"):
        rm.gen(name)
    with pytest.raises(rm.InvalidArgument, match="name"):
        rm.select(name, ["a"])


def test_an_unknown_argument_is_refused_by_name() -> None:
    with pytest.raises(rm.InvalidArgument, match="temprature"):
        rm.gen("x", temprature=1)  # type: ignore[call-arg]


def test_gen_with_choices_is_a_selection() -> None:
    node = rm.gen("x", choices=["a", "b"], choices_method=rm.greedy_token_selection)
    assert isinstance(node, Select)
    assert (node.choices, node.method) == (("a", "b"), "greedy_token_selection")
    with pytest.raises(rm.InvalidArgument, match="stop"):
        rm.gen("x", choices=["a"], stop="b")
    with pytest.raises(rm.InvalidArgument, match="choices"):
        rm.gen("x", choices_method=rm.greedy_token_selection)


@pytest.mark.parametrize("choices", [None, [], "ab", ["a", "a"], ["a", 3], ["\ud800"]])
def test_bad_choices_are_refused(choices: Any) -> None:
    with pytest.raises(rm.InvalidArgument, match="choices"):
        rm.select("x", choices)


def test_only_probabilities_can_be_sampled_from() -> None:
    node = rm.select("x", ["a"], temperature=1, choices_method=rm.exact_likelihood)
    assert isinstance(node, Select)
    assert node.temperature == 1.0
    for bad in (1.0, -1, float("inf"), "1"):
        with pytest.raises(rm.InvalidArgument, match="temperature"):
            rm.select("x", ["a"], temperature=bad)  # type: ignore[arg-type]


def test_role_blocks_have_both_ends() -> None:
    assert rm.user("hi") == Sum((RoleBegin("user"), Text("hi"), RoleEnd("user")))
    assert rm.system() == Sum((RoleBegin("system"), RoleEnd("system")))
    assert rm.assistant_begin() + "a" + rm.assistant_end() == rm.assistant("a")
    assert (rm.user_begin(), rm.user_end()) == (RoleBegin("user"), RoleEnd("user"))
    assert (rm.system_begin(), rm.system_end()) == (RoleBegin("system"), RoleEnd("system"))


def test_special_text_and_media() -> None:
    assert rm.special("<|x|>") == Text("<|x|>", special=True)
    for call in (rm.image, rm.video):
        with pytest.raises(rm.UnsupportedFeature, match="vision"):
            call("x.png")
