from __future__ import annotations

from typing import Any

import pytest

import ramet.lang as rm
from ramet.lang.expr import Gen, Select, Sum, Text
from ramet.lang.reasoning import (
    THINK_TAGS,
    Split,
    SplitValue,
    separate_reasoning,
    split_reasoning,
    variables_of,
)
from ramet.lang.values import GivenValue


@pytest.mark.parametrize(
    ("model_type", "text", "split"),
    [
        ("qwen3", "<think>\nso\n</think>\n\nYes.", Split("so", "Yes.")),
        ("qwen3", "  <think>so</think>Yes</think>", Split("so", "Yes</think>")),
        ("qwen3", " Yes. ", Split("", " Yes. ")),
        ("qwen3", "<think>so far", Split("so far", "")),
        ("qwen3", "so</think>Yes.", Split("so", "Yes.")),
        ("qwen3", "Write <think> first.", Split("", "Write <think> first.")),
        ("qwen3", "<think></think>Yes.", Split("", "Yes.")),
        ("qwen3", "", Split("", "")),
        ("deepseek-r1", "so</think>Yes.", Split("so", "Yes.")),
        ("deepseek-r1", "<think>so</think>Yes.", Split("so", "Yes.")),
        ("deepseek-r1", "so far", Split("so far", "")),
        ("kimi", "◁think▷so◁/think▷Yes.", Split("so", "Yes.")),
    ],
)
def test_thinking_stands_before_the_answer(model_type: str, text: str, split: Split) -> None:
    assert split_reasoning(text, model_type) == split


@pytest.mark.parametrize("model_type", sorted(THINK_TAGS))
def test_every_family_splits_what_it_writes(model_type: str) -> None:
    tags = THINK_TAGS[model_type]
    text = f"{tags.begin}a\nb{tags.end}\n\nc\nd\n"
    assert split_reasoning(text, model_type) == Split("a\nb", "c\nd")


def test_the_calls_of_an_expression_are_marked() -> None:
    node = separate_reasoning(rm.gen("x", max_tokens=3), model_type="qwen3")
    assert isinstance(node, Gen)
    assert (node.name, node.reasoning) == ("x", "qwen3")
    whole = rm.separate_reasoning("Q" + rm.gen("x") + rm.gen("y"), model_type="kimi")
    assert isinstance(whole, Sum)
    assert [getattr(part, "reasoning", "") for part in whole.parts] == ["", "kimi", "kimi"]
    assert isinstance(whole.parts[0], Text)
    inside = rm.assistant(rm.separate_reasoning(rm.gen("x"), model_type="qwen3"))
    assert isinstance(inside, Sum)


@pytest.mark.parametrize(
    ("expr", "model_type", "match"),
    [
        (rm.gen("x"), None, "model_type=None"),
        (rm.gen("x"), "gpt-17", "deepseek-r1, deepseek-v3"),
        (rm.gen(), "qwen3", "has no name"),
        ("text", "qwen3", "gen"),
        (rm.select("x", ["a"]), "qwen3", "gen"),
        (5, "qwen3", "cannot append"),
    ],
)
def test_what_cannot_be_separated(expr: Any, model_type: Any, match: str) -> None:
    with pytest.raises(rm.InvalidArgument, match=match):
        separate_reasoning(expr, model_type)


def test_a_call_sets_one_variable_or_two() -> None:
    value = GivenValue("<think>so</think>Yes.")
    plain, marked = rm.gen("x"), separate_reasoning(rm.gen("x"), "qwen3")
    assert isinstance(plain, Gen)
    assert isinstance(marked, Gen)
    assert list(variables_of(plain, value)) == [("x", value)]
    found = {name: seen.read() for name, seen in variables_of(marked, value)}
    assert found == {"x": "Yes.", "x_reasoning_content": "so"}
    unnamed, choice = rm.gen(), rm.select("y", ["a"])
    assert isinstance(unnamed, Gen)
    assert isinstance(choice, Select)
    assert list(variables_of(unnamed, value)) == []
    assert list(variables_of(choice, value)) == [("y", value)]


def test_a_view_splits_each_sample_and_streams_no_empty_piece() -> None:
    both = SplitValue(GivenValue(["<think>a</think>b", "c"]), "qwen3", "reasoning")
    assert both.read() == both.typed() == ["a", ""]
    assert list(both.chunks()) == ["a"]
    assert list(SplitValue(GivenValue("c"), "qwen3", "reasoning").chunks()) == []
    with pytest.raises(rm.ProgramError):
        both.meta()
