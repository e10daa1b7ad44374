"""Where a constraint meets ends, stops and limits: the rules of `guide`, on scripted models."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from scripted_runtime import idle, scripted_runtime, words, writes

from ramet.runtime.errors import GrammarError, InvalidArgument
from ramet.runtime.request import SamplingParams
from ramet.runtime.runtime import Runtime


def run(answer: list[str], tokens: list[str], folder: Path, **params: Any) -> dict[str, Any]:
    """What a model gives that writes `answer` after `Q`, and then wants to end."""
    vocabulary = words(folder, tokens)
    with scripted_runtime(writes({"Q": answer}), vocabulary) as runtime:
        found = runtime.generate("Q", {"temperature": 0, "max_tokens": 20, **params})
        idle(runtime)
    assert isinstance(found, dict)
    return found


def outcome(found: Mapping[str, Any]) -> tuple[str, str, Any]:
    return found["text"], found["meta"]["finish_reason"], found["meta"]["matched"]


def test_a_token_that_begins_the_stop_ends_a_whole_text(tmp_path: Path) -> None:
    """B34 of the bug reports."""
    tokens = ["37", ").", "END", "EN"]
    digits = {"regex": "[0-9]+", "stop": ")"}
    assert outcome(run(["37", ")"], tokens, tmp_path, **digits)) == ("37", "stop", ")")
    assert outcome(run(["37", ")."], tokens, tmp_path, **digits)) == ("37", "stop", ")")
    assert outcome(run(["37"], tokens, tmp_path, **digits))[:2] == ("37", "eos")
    ends = {"regex": "[0-9]+", "stop": ["END", ")"]}
    assert outcome(run(["37", "EN", "D"], tokens, tmp_path, **ends)) == ("37", "stop", "END")
    assert outcome(run(["37", "E", "N", "D"], tokens, tmp_path, **ends)) == ("37", "stop", "END")


def test_a_stop_that_has_begun_has_to_be_completed(tmp_path: Path) -> None:
    found = run(["37", "EN", "x"], ["37", "EN", "x1"], tmp_path, regex="[0-9]+", stop="END")
    assert outcome(found) == ("37", "stop", "END")


def test_a_stop_within_the_text_is_text(tmp_path: Path) -> None:
    """It ends the call only where what stays is a whole text."""
    answer = ["a", ")", "b", ")"]
    assert outcome(run(answer, [], tmp_path, regex=r"a\)b", stop=")"))[0] == "a)b"
    cut = run(["a", ")", "b"], [], tmp_path, regex=r"a(\)b)?", stop=")")
    assert outcome(cut) == ("a", "stop", ")")


def test_a_stop_in_the_middle_of_a_token(tmp_path: Path) -> None:
    """The text before it decides, to the byte."""
    found = run(["1", "2)3"], ["2)3"], tmp_path, regex="[0-9)]+", stop=")")
    assert outcome(found) == ("12", "stop", ")")
    longest = run(["3", "b)"], ["b)"], tmp_path, regex=r"[0-9]b[)]?", stop=["b)", ")"])
    assert outcome(longest) == ("3b", "stop", ")")


def test_a_stop_that_is_kept_belongs_to_the_text(tmp_path: Path) -> None:
    kept = {"include_stop": True, "stop": ")"}
    answer = ["37", ")"]
    assert outcome(run(answer, ["37"], tmp_path, regex="[0-9]+", **kept))[0] != "37)"
    found = run(answer, ["37"], tmp_path, regex=r"[0-9]+(\)!*)?", **kept)
    assert outcome(found) == ("37)", "stop", ")")


def test_stop_ids_end_a_whole_text_only(tmp_path: Path) -> None:
    close, start = ord(")"), 258
    params = {"regex": r"a\)b*", "stop_token_ids": [close, start]}
    assert outcome(run(["a", ")", "b", ")"], [], tmp_path, **params)) == ("a)b", "stop", close)
    special = run(["a", ")", "<|im_start|>"], [], tmp_path, **params)
    assert outcome(special) == ("a)", "stop", start)
    kept = run(["a", ")", "b"], [], tmp_path, **{**params, "include_stop": True})
    assert outcome(kept) == ("a)", "stop", close)


def test_a_finished_text_is_over_whatever_else_is_said(tmp_path: Path) -> None:
    """B62 of the bug reports."""
    for params in (
        {"min_tokens": 10},
        {"ignore_eos": True},
        {"min_tokens": 20, "ignore_eos": True, "stop": "k"},
    ):
        found = run(["o", "k", "!"], [], tmp_path, regex="ok", **params)
        assert outcome(found) == ("ok", "stop", None)
        assert found["meta"]["constraint"]["complete"]
    empty = run(["o"], [], tmp_path, regex="", min_tokens=5, ignore_eos=True)
    assert outcome(empty) == ("", "stop", None)
    assert empty["meta"]["output_token_ids"] == []


def test_min_tokens_and_ignore_eos_hold_while_there_is_more_to_say(tmp_path: Path) -> None:
    longer = run(["1", ")"], [], tmp_path, regex="[0-9]+", stop=")", min_tokens=5)
    assert re.fullmatch("[0-9]{5,}", longer["text"])
    endless = run(["1"], [], tmp_path, regex="[0-9]+", ignore_eos=True)
    assert re.fullmatch("[0-9]{20}", endless["text"])
    assert outcome(endless)[1] == "length"


def test_the_limit_counts_all_tokens_and_the_cut_is_marked(tmp_path: Path) -> None:
    """B43 of the bug reports."""
    found = run(["a"] * 9, [], tmp_path, regex="([a-z ]*;){1,5}", max_tokens=4)
    assert outcome(found) == ("aaaa", "length", None)
    assert found["meta"]["completion_tokens"] == 4
    assert found["meta"]["constraint"] == {
        "kind": "regex",
        "text": "([a-z ]*;){1,5}",
        "complete": False,
    }
    whole = run(["1"] * 9, [], tmp_path, regex="[0-9]+", max_tokens=4)
    assert outcome(whole)[1] == "length"
    assert whole["meta"]["constraint"]["complete"]
    last = run(["a", "b"], [], tmp_path, regex="ab", max_tokens=2)
    assert outcome(last) == ("ab", "stop", None)


def test_the_end_is_allowed_where_the_text_is_whole(tmp_path: Path) -> None:
    """B35 of the bug reports: the end token's spelling is ordinary text, the token is not."""
    regex = "[a-z ]+|</s>"
    assert outcome(run(["t", "e", "a"], [], tmp_path, regex=regex)) == ("tea", "eos", 257)
    spelled = run(["<", "/", "s", ">"], [], tmp_path, regex=regex)
    assert outcome(spelled) == ("</s>", "stop", None)
    assert 257 not in spelled["meta"]["output_token_ids"]
    assert run(["</s>"], [], tmp_path, regex="x+y")["text"].startswith("x")


def test_a_special_token_inside_is_never_sampled(tmp_path: Path) -> None:
    """B57 of the bug reports."""
    found = run(['"', "<|im_start|>", '"'], [], tmp_path, regex='"[a-z<|_>]{3}"')
    assert re.fullmatch('"[a-z<|_>]{3}"', found["text"])
    assert not {256, 257, 258, 259}.intersection(found["meta"]["output_token_ids"])


def test_characters_byte_by_byte(tmp_path: Path) -> None:
    """B37 of the bug reports."""
    with scripted_runtime(_octopus, words(tmp_path, [])) as runtime:
        for regex, wanted in (("[🐀-🐿]+", "🐙"), ("[🐙]+", "🐙")):
            found = runtime.generate("Q", {"regex": regex, "temperature": 0, "max_tokens": 4})
            assert found["text"].startswith(wanted)
            assert "🚀" not in found["text"]
            assert "\ufffd" not in found["text"]
        half = runtime.generate("Q", {"regex": "[🐙]+", "temperature": 0, "max_tokens": 6})
        assert half["meta"]["finish_reason"] == "length"
        assert not half["meta"]["constraint"]["complete"]


def _octopus(_tokenizer: object) -> Callable[[tuple[int, ...]], dict[int, float]]:
    """A model that writes an octopus, and then rockets."""
    text = "🐙🚀🚀🚀".encode()
    return lambda path: {text[(len(path) - 1) % len(text)]: -0.01}


@pytest.mark.parametrize("seed", range(4))
def test_one_of_several_literals(tmp_path: Path, seed: int) -> None:
    """B38 of the bug reports."""
    with Runtime("tiny", isolation="thread", pool_tokens=1024) as runtime:
        found = runtime.generate("Q", {"regex": "(是|否|不确定)", "seed": seed})
    assert found["text"] in ("是", "否", "不确定")
    assert found["meta"]["finish_reason"] == "stop"


def test_samples_have_a_matcher_each() -> None:
    with Runtime("tiny", isolation="thread", pool_tokens=1024, dtype="float64") as runtime:
        found = runtime.generate("Q", {"regex": "[ab]{3}c|[de]{2}", "n": 12, "seed": 3})
        again = runtime.generate("Q", {"regex": "[ab]{3}c|[de]{2}", "n": 12, "seed": 3})
    assert all(re.fullmatch("[ab]{3}c|[de]{2}", text) for text in found["text"])
    assert len(set(found["text"])) > 1
    assert again["text"] == found["text"]


def test_bans_that_leave_nothing_are_an_error_of_the_call(tmp_path: Path) -> None:
    with scripted_runtime(writes({"Q": ["a"]}), words(tmp_path, [])) as runtime:
        with pytest.raises(InvalidArgument, match="banned"):
            runtime.generate("Q", {"regex": "a", "logit_bias": {ord("a"): -100}})
        assert runtime.generate("Q", {"regex": "[ab]", "logit_bias": {97: -100}})["text"] == "b"
        idle(runtime)


def test_a_bad_constraint_fails_its_call_alone(tmp_path: Path) -> None:
    with scripted_runtime(writes({"Q": ["a"]}), words(tmp_path, [])) as runtime:
        with pytest.raises(GrammarError, match=r"\\b at position 0"):
            runtime.generate("Q", {"regex": r"\bx"})
        assert runtime.generate("Q", {"regex": "a+"})["text"] == "a"
        assert runtime.stats()["calls"] == 1


def test_text_that_no_token_can_write_is_an_error(tmp_path: Path) -> None:
    folder = words(tmp_path, [])
    document = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = document["model"]["vocab"]
    document["model"]["vocab"] = {
        ("gone" if text == "x" else text): index for text, index in vocabulary.items()
    }
    (folder / "tokenizer.json").write_text(json.dumps(document))
    with scripted_runtime(writes({}), folder) as runtime:
        for regex in ("ax", "x", "a{3}x+"):
            with pytest.raises(GrammarError, match="no token of this model can follow"):
                runtime.generate("Q", {"regex": regex})
        assert runtime.generate("Q", {"regex": "ax?"})["text"] == "a"
        idle(runtime)


def test_constrained_and_free_calls_do_not_disturb_each_other() -> None:
    """B60 of the bug reports, with seeds as well as greedy."""
    orders: list[dict[str, Any]] = [
        {"regex": "[0-9]{3,9}x"},
        {"max_tokens": 12},
        {"regex": r"(\w+ ){2,4}", "max_tokens": 9},
        {"max_tokens": 7, "top_p": 0.9},
        {"regex": '"[a-z]{0,6}"'},
        {"max_tokens": 10, "frequency_penalty": 1.0},
        {"regex": "(?i)yes|no"},
        {"max_tokens": 5, "n": 3},
    ]
    for temperature in (0, 1):
        alone = [_answers([order], temperature)[0] for order in orders]
        assert _answers(orders, temperature) == alone


def _answers(orders: list[dict[str, Any]], temperature: int) -> list[Any]:
    with Runtime("tiny", isolation="thread", pool_tokens=4096, dtype="float64") as runtime:
        calls = []
        for order in orders:
            handle = runtime.open(seed=5)
            handle.append([("Once upon", "text")])
            params = SamplingParams.build({**order, "temperature": temperature})
            calls.append(handle.generate(params, stream=False, site=""))
            handle.close()
        return [call.result().texts for call in calls]


def test_a_document_that_no_tokens_spell_is_no_certificate(tmp_path: Path) -> None:
    """The call runs without closing, and says so; it used to take the other calls down."""
    folder = words(tmp_path, ["true"])
    document = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = document["model"]["vocab"]
    document["model"]["vocab"] = {
        ("gone" if text == "0" else text): index for text, index in vocabulary.items()
    }
    (folder / "tokenizer.json").write_text(json.dumps(document))
    schema = {"anyOf": [{"type": "boolean"}, {"const": 0}]}
    with scripted_runtime(writes({"Q": ["true"]}), folder) as runtime:
        found = runtime.generate("Q", {"json_schema": json.dumps(schema), "temperature": 0})
        assert found["text"] == "true"
        assert found["meta"]["constraint"]["closes"] is False
        idle(runtime)
