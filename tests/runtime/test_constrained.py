"""Constraints in the engine: documents that end in time, forced text, grammars that take long."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from scripted_runtime import (
    Likes,
    Starter,
    id_of,
    idle,
    scripted_runtime,
    sentencepiece,
    start,
    words,
    writes,
)

from ramet.kernels.cpu import fused
from ramet.runtime.constrained import wanted
from ramet.runtime.errors import GrammarError, InvalidArgument
from ramet.runtime.grammar import compiler
from ramet.runtime.grammar.guide import Guide
from ramet.runtime.request import SamplingParams
from ramet.runtime.runtime import Runtime
from ramet.runtime.tokenizer import Tokenizer

__all__ = ["start"]

REVIEW = {
    "type": "object",
    "properties": {"score": {"type": "integer"}, "comment": {"type": "string"}},
    "required": ["score", "comment"],
    "additionalProperties": False,
}


def loves(*texts: str) -> Callable[[Tokenizer], Likes]:
    """A model that always wants the same tokens, the first most."""

    def bind(tokenizer: Tokenizer) -> Likes:
        liked = {id_of(tokenizer, text): math.log(0.9) - 5 * i for i, text in enumerate(texts)}
        return lambda path: liked

    return bind


def schema(value: Any, **params: Any) -> dict[str, Any]:
    return {"json_schema": json.dumps(value), "temperature": 0, **params}


def text_of(found: Mapping[str, Any]) -> str:
    text: str = found["text"]
    return text


def test_texts_are_the_same_where_only_a_piece_of_the_head_is_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if fused.why_not():
        pytest.skip("numba is not installed")
    from ramet.kernels.cpu.fused import decoder

    used: list[bool] = []
    original = decoder.pieces

    def noted(*args: Any) -> Any:
        lines = original(*args)
        used.append(lines is not None)
        return lines

    orders = [
        schema(REVIEW, max_tokens=60, jump_forward=False),
        schema(REVIEW, max_tokens=60, jump_forward=False, temperature=1.0, seed=5),
        schema(REVIEW, max_tokens=60, jump_forward=False, frequency_penalty=0.5),
        {"regex": "(yes|no){3}", "temperature": 1.0, "seed": 4, "return_logprob": True},
        {"max_tokens": 20, "temperature": 0},
    ]
    with Runtime(model="tiny", dtype="int8", isolation="thread", pool_tokens=4096) as runtime:

        def texts() -> list[str]:
            alone = [text_of(runtime.generate("Q", order)) for order in orders]
            handles = [runtime.open() for _ in orders]
            for handle in handles:
                handle.append([("Q", "text")])
            calls = [
                handle.generate(SamplingParams.build(order))
                for handle, order in zip(handles, orders, strict=True)
            ]
            assert [call.result().text for call in calls] == alone
            return alone

        monkeypatch.setattr(decoder, "pieces", noted)
        found = texts()
        assert set(used) == {True, False}
        runtime.flush_cache()
        monkeypatch.setattr(decoder, "pieces", lambda *_: None)
        assert texts() == found


def test_a_document_is_closed_before_its_tokens_run_out(start: Starter) -> None:
    """B66 of the bug reports."""
    runtime = start(writes({"Q": []}, ["x"] * 300))
    for limit in (24, 25, 26, 30, 60):
        found = runtime.generate("Q", schema(REVIEW, max_tokens=limit))
        document = json.loads(text_of(found))
        assert isinstance(document["score"], int)
        meta = found["meta"]
        assert meta["completion_tokens"] == limit
        assert meta["constraint"]["complete"]
        assert meta["constraint"]["closes"]
        assert meta["finish_reason"] == "stop"
    found = runtime.generate("Q", schema(REVIEW, max_tokens=60, close_within_budget=False))
    assert found["meta"]["finish_reason"] == "length"
    assert not found["meta"]["constraint"]["complete"]
    assert "closes" not in found["meta"]["constraint"]


def test_a_budget_that_no_document_fits_is_refused_before_any_compute(start: Starter) -> None:
    runtime = start(writes({"Q": []}, ["x"]))
    before = runtime.stats()
    with pytest.raises(InvalidArgument, match=r"max_tokens=23: .* has 24 tokens"):
        runtime.generate("Q", schema(REVIEW, max_tokens=23))
    assert runtime.stats()["computed_tokens"] == before["computed_tokens"]
    cut = runtime.generate("Q", schema(REVIEW, max_tokens=5, close_within_budget=False))
    assert text_of(cut) == '{"sco'


@pytest.mark.parametrize("favourite", ["\n", " ", "\t", "7", "[", "{", '"', "\\"])
def test_favourites_do_not_run_away(start: Starter, favourite: str) -> None:
    """B70 and B87 of the bug reports."""
    runtime = start(loves(favourite, "0", "}"))
    for value in (REVIEW, {}, {"type": "object"}, {"type": "array"}, {"type": "number"}):
        found = runtime.generate("Q", schema(value, max_tokens=200))
        json.loads(text_of(found))
        assert found["meta"]["finish_reason"] in ("stop", "eos")
        assert found["meta"]["constraint"]["closes"]
    flexible = {"kind": "json_schema", "text": json.dumps(REVIEW), "whitespace": "flexible"}
    found = runtime.generate("Q", {"constraint": flexible, "temperature": 0, "max_tokens": 200})
    assert set(json.loads(text_of(found))) == {"score", "comment"}
    bare = re.sub(r'"(\\.|[^"\\])*"', "x", text_of(found))  # The text of strings is free.
    assert not re.search(r"\s{17}", bare)


def test_special_tokens_are_no_text_of_a_document(tmp_path: Path) -> None:
    """B57 of the bug reports."""
    queries = {
        "type": "object",
        "properties": {"q": {"type": "array", "items": {"type": "string"}}},
    }
    with scripted_runtime(
        loves("<|im_end|>", "</s>", "a", '"'), words(tmp_path, ['{"', '"]'])
    ) as rt:
        found = rt.generate("Q", schema({**queries, "required": ["q"]}, max_tokens=40))
    assert "im_end" not in text_of(found)
    assert isinstance(json.loads(text_of(found))["q"], list)


def test_characters_that_only_byte_tokens_write(tmp_path: Path) -> None:
    """B47 of the bug reports."""
    folder = sentencepiece(tmp_path, ["▁", '"', "a", "<0xE9>x"])
    with scripted_runtime(loves("a"), folder) as runtime:
        found = runtime.generate("a", schema({"enum": ["龘"]}, max_tokens=20))
        assert text_of(found) == '"龘"'
        assert "<0x" not in text_of(runtime.generate("a", {"regex": ".+", "max_tokens": 9}))
        idle(runtime)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"json_schema": '{"type":"boolean"}', "min_tokens": 64, "max_tokens": 64}, "true"),
        ({"regex": "ok", "min_tokens": 10}, "ok"),
        ({"regex": "ok", "ignore_eos": True}, "ok"),
        ({"json_schema": '{"const":[1]}', "ignore_eos": True}, "[1]"),
    ],
)
def test_a_grammar_that_ends_ends_the_call(
    start: Starter, params: dict[str, Any], text: str
) -> None:
    """B62 of the bug reports."""
    found = start(loves("t")).generate("Q", {"temperature": 0, **params})
    assert (text_of(found), found["meta"]["finish_reason"]) == (text, "stop")


def test_bad_schemas_harm_nobody(start: Starter) -> None:
    """B63 of the bug reports."""
    runtime = start(writes({"Q": []}, ["x"] * 400))
    alone = runtime.generate("Q", {"max_tokens": 300, "temperature": 0, "ignore_eos": True})
    others: list[Any] = []
    long = {"max_tokens": 300, "temperature": 0, "ignore_eos": True}
    threads = [
        threading.Thread(target=lambda: others.append(runtime.generate("Q", long)))
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for bad in ('{"type":"objct"}', "not json", '{"type":"objct"}', '{"enum":[]}'):
        with pytest.raises(GrammarError, match="json_schema"):
            runtime.generate("Q", {"json_schema": bad, "max_tokens": 60})
    good = runtime.generate("Q", schema(REVIEW, max_tokens=60))
    assert json.loads(text_of(good))
    for thread in threads:
        thread.join()
    assert [text_of(other) for other in others] == [text_of(alone)] * 5


def test_a_grammar_that_takes_long_holds_up_nobody(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is compiled beside the prompt's computation, and beside other calls."""
    compile_slowly = threading.Event()
    real = compiler.compile_at_once

    def slow(*args: Any) -> Any:
        assert compile_slowly.wait(30)
        return real(*args)

    monkeypatch.setattr(compiler, "compile_at_once", slow)
    runtime = start(writes({"Q": ["a", "b"]}))
    found: list[Any] = []
    waiting = threading.Thread(
        target=lambda: found.append(runtime.generate("Q", {"regex": "[ab]{2}", "temperature": 0}))
    )
    waiting.start()
    for _ in range(5):
        assert text_of(runtime.generate("Q", {"temperature": 0})) == "ab"
    assert not found
    compile_slowly.set()
    waiting.join(30)
    assert text_of(found[0]) == "ab"


def test_a_step_pauses_once_for_all_that_wait(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for each of them: what comes meanwhile is heard after one pause."""
    go_on, pauses = threading.Event(), list[float]()
    real, ready = compiler.compile_at_once, Guide.ready

    def slow(*args: Any) -> Any:
        assert go_on.wait(30)
        return real(*args)

    def counted(guide: Guide, seconds: float = 0.0) -> bool:
        pauses.append(seconds)
        return ready(guide, seconds)

    monkeypatch.setattr(compiler, "compile_at_once", slow)
    monkeypatch.setattr(Guide, "ready", counted)
    runtime = start(writes({"Q": ["a"]}))
    found: list[Any] = []
    order = {"regex": "a", "n": 8}
    waiting = threading.Thread(target=lambda: found.append(runtime.generate("Q", order)))
    waiting.start()
    time.sleep(0.3)
    go_on.set()
    waiting.join(30)
    assert found[0]["text"] == ["a"] * 8
    asked = pauses[1:]  # The first is of the call's start.
    assert len(asked) >= 16
    assert sum(seconds > 0 for seconds in asked) <= len(asked) / 8 + 1


def test_a_grammar_that_fails_late_ends_its_call(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> Any:
        time.sleep(0.2)
        raise GrammarError("too late")

    runtime = start(writes({"Q": ["a"]}))
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "compile_at_once", fail)
        with pytest.raises(GrammarError, match="too late"):
            runtime.generate("Q", {"regex": "a"})
    assert text_of(runtime.generate("Q", {"regex": "a"})) == "a"


def test_forced_text_is_planned_not_sampled(tmp_path: Path) -> None:
    keys = {name: {"type": "boolean"} for name in ("first_long_key", "second_long_key", "third")}
    value = {"type": "object", "properties": keys, "required": [*keys]}
    value["additionalProperties"] = False
    with scripted_runtime(loves("true", "t"), words(tmp_path, ["true"])) as runtime:
        jumped = runtime.generate("Q", schema(value, max_tokens=90))
        counted = runtime.stats()
        plain = runtime.generate("Q", schema(value, max_tokens=90, jump_forward=False))
        reported = runtime.generate("Q", schema(value, max_tokens=90, return_logprob=True))
        stats = idle(runtime)
    assert text_of(jumped) == text_of(plain) == text_of(reported)
    meta = reported["meta"]
    assert meta["output_token_logprobs_length"] == meta["completion_tokens"]
    length = len(text_of(jumped))
    assert counted["generated_tokens"] < length / 3
    assert counted["edge_tokens"] > length / 2
    assert counted["steps"] < length / 3
    kinds = ("edge_tokens", "decode_tokens", "recomputed_tokens")
    assert stats["computed_tokens"] == sum(stats[kind] for kind in kinds)


def test_a_token_of_the_certificate_has_its_own_log_probability(start: Starter) -> None:
    runtime = start(loves("x", '"'))
    params = {"return_logprob": True, "top_logprobs_num": 2}
    found = runtime.generate("Q", schema({"type": "string"}, max_tokens=5, **params))
    assert text_of(found) == '"xxx"'
    values = [value for value, _, _ in found["meta"]["output_token_logprobs"]]
    assert values == pytest.approx([math.log(0.9) - 5] + [math.log(0.9)] * 3 + [math.log(0.9) - 5])
    assert len(found["meta"]["output_top_logprobs"]) == 5


def test_samples_streams_and_stops_of_documents() -> None:
    with Runtime("tiny", isolation="thread", pool_tokens=4096, dtype="float64") as runtime:
        params = schema(REVIEW, max_tokens=60, n=8, seed=1) | {"temperature": 1.5}
        found = runtime.generate("Q", params)
        for text in found["text"]:
            assert set(json.loads(text)) == {"score", "comment"}
        assert len(set(found["text"])) > 1
        assert runtime.generate("Q", params)["text"] == found["text"]
        one = schema(REVIEW, max_tokens=60, seed=1) | {"temperature": 1.5, "stop": ["}"]}
        handle = runtime.open(name="streams")
        handle.append([("Q", "text")])
        call = handle.generate(SamplingParams.build(one), stream=True)
        chunks = [chunk.text for chunk in call.chunks()]
        handle.close()
        assert all(chunks)
        assert json.loads("".join(chunks))
        idle(runtime)


def test_what_is_not_enforced_is_checked_and_told(start: Starter) -> None:
    runtime = start(writes({"Q": list("[1,1]")}))
    value = {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "minItems": 2}
    with pytest.raises(GrammarError, match="uniqueItems"):
        runtime.generate("Q", schema({**value, "items": {"type": "integer"}}, max_tokens=9))
    loose = {"kind": "json_schema", "strict": False}
    loose["text"] = json.dumps({**value, "items": {"type": "integer"}})
    found = runtime.generate("Q", {"constraint": loose, "temperature": 0, "max_tokens": 9})
    assert text_of(found) == "[1,1]"
    report = found["meta"]["constraint"]
    assert report["unenforced"] == ["/: uniqueItems"]
    assert "uniqueItems" in report["violations"][0]


def test_jumps_change_nothing_where_the_models_tokens_are_the_tokenizers(tmp_path: Path) -> None:
    """B44 of the bug reports: a model that writes the tokenizer's own tokens, whatever it says."""
    value = {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "founded": {"type": "integer"},
            "rows": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
        },
        "required": ["city", "founded", "rows"],
    }
    folder = words(tmp_path, ["city", "founded", "rows", '{"', '":"', '","', '":', '"],["', '"]]}'])
    tokenizer = Tokenizer.from_dir(folder)
    documents = [
        {"city": "Oslo", "founded": 1048, "rows": [["a"], ["b"]]},
        {"city": "founded", "founded": 5, "rows": [["city"]]},
        {"city": "是", "founded": 7, "rows": [["b"]]},
    ]
    for document in documents:
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        ids = tokenizer.encode([(text, "content")], continuation=True)

        def bind(_: Tokenizer, ids: list[int] = ids) -> Likes:
            return lambda path: {[*ids, tokenizer.eos_ids[0]][len(path) - 1]: math.log(0.9)}

        with scripted_runtime(bind, folder) as runtime:
            found = [
                runtime.generate("Q", schema(value, max_tokens=90, jump_forward=jump))
                for jump in (True, False)
            ]
            assert [text_of(one) for one in found] == [text, text]
            assert [one["meta"]["output_token_ids"] for one in found] == [ids, ids]
            assert runtime.stats()["edge_tokens"] > 3


@pytest.mark.parametrize("jump", [True, False])
@pytest.mark.parametrize("wanted", ["是", "否", "不确定"])
def test_jumps_over_pieces_of_characters(start: Starter, jump: bool, wanted: str) -> None:
    """B38 of the bug reports."""
    runtime = start(loves(*(chr(byte) for byte in b"x")))
    bias = {wanted.encode()[0]: 50.0}
    params = {"regex": "(是|否|不确定)", "jump_forward": jump, "logit_bias": bias}
    assert text_of(runtime.generate("Q", {"temperature": 0, **params})) == wanted


def test_free_text_that_never_comes_to_its_ending(start: Starter) -> None:
    """B52 of the bug reports."""
    grammar = 'root ::= [^\\n]* "Answer: " ("yes" | "no")'
    runtime = start(writes({"Q": list("I think that it rains. Answer: no")}))
    found = runtime.generate("Q", {"ebnf": grammar, "temperature": 0, "max_tokens": 90})
    assert outcome(found) == ("I think that it rains. Answer: no", "eos", True)
    found = start(loves("x")).generate("Q", {"ebnf": grammar, "temperature": 0, "max_tokens": 40})
    assert outcome(found) == ("x" * 40, "length", False)


def outcome(found: Mapping[str, Any]) -> tuple[str, str, bool]:
    meta = found["meta"]
    return text_of(found), meta["finish_reason"], meta["constraint"]["complete"]


def test_documents_and_free_text_beside_each_other() -> None:
    """B60 of the bug reports: staggered arrivals, each as it is alone."""
    orders: list[dict[str, Any]] = [
        schema(REVIEW, max_tokens=50),
        {"max_tokens": 30, "temperature": 0},
        {"regex": "[0-9]{3,9}x", "temperature": 0},
        schema({"type": "array", "items": {"enum": ["a", "b"]}}, max_tokens=30),
        {"max_tokens": 20, "temperature": 1, "seed": 4},
        {"regex": r"(\w+ ){2,4}", "max_tokens": 9, "temperature": 0},
        schema({"type": "object"}, max_tokens=40) | {"temperature": 1, "seed": 2},
        {"max_tokens": 25, "temperature": 0},
    ]
    with Runtime("tiny", isolation="thread", pool_tokens=4096, dtype="float64") as runtime:
        alone = [runtime.generate(f"Order {i}: ", order) for i, order in enumerate(orders)]
        runtime.flush_cache()
        together: dict[int, Any] = {}

        def run(index: int) -> None:
            time.sleep(0.01 * index)
            together[index] = runtime.generate(f"Order {index}: ", orders[index])

        threads = [threading.Thread(target=run, args=(index,)) for index in range(len(orders))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [text_of(together[i]) for i in range(len(orders))] == [text_of(one) for one in alone]
        idle(runtime)


def test_log_probabilities_under_a_mask_are_numbers(start: Starter) -> None:
    """B67 of the bug reports: they are the model's own, so nothing is minus infinity."""
    params = {"regex": "[ab]", "return_logprob": True, "top_logprobs_num": 5, "temperature": 0}
    meta = start(loves("x", "a")).generate("Q", params)["meta"]
    text = json.dumps([meta["output_token_logprobs"], meta["output_top_logprobs"]], allow_nan=False)
    assert len(json.loads(text)[1][0]) == 5


@pytest.mark.parametrize(
    ("regex", "stop_regex", "written", "value"),
    [
        ("[0-9]+", r"\)|\]", "37)", "37"),
        ("[0-9]+", r"\)|\]", "4]", "4"),
        ("[0-9]+", r"\n+[a-z]", "12\n\nx", "12"),
        ("[a-z]*", "end!", "sendend!", "send"),
        ("[a-z]*", "[a-z]+!", "a!", ""),
        ("[a-z]+", "[a-z]+!", "abc!", "a"),
        ("([0-9]{2})+", r"7?\)", "37)", "37"),  # Before the 7 the text is no whole one.
        ("(ab)+", "c.d", "ababcxd", "abab"),
    ],
)
def test_a_stop_regex_ends_a_text_where_it_is_whole(
    regex: str, stop_regex: str, written: str, value: str, start: Starter
) -> None:
    """B34 of the bug reports."""
    runtime = start(writes({"": list(written)}))
    params = {"regex": regex, "stop_regex": stop_regex, "temperature": 0, "max_tokens": 30}
    for more in ({}, {"n": 2}, {"min_tokens": 1}):
        found = runtime.generate("?", params | more)
        texts = found["text"] if "n" in more else [found["text"]]
        metas = found["meta"] if "n" in more else [found["meta"]]
        assert texts == [value] * len(texts)
        assert {(meta["finish_reason"], meta["matched"]) for meta in metas} == {
            ("stop", stop_regex)
        }
        assert all(meta["constraint"]["complete"] for meta in metas)
    call = runtime.open().generate(SamplingParams.build(params), stream=True)
    assert "".join(chunk.text for chunk in call.chunks()) == value


def test_many_matches_of_a_stop_regex_may_be_under_way(start: Starter) -> None:
    runtime = start(writes({"": [*"abc" * 40, "!"]}))
    params = {"regex": "[a-z]{6,}", "stop_regex": "[a-z]{3,}!", "temperature": 0, "max_tokens": 200}
    assert runtime.generate("?", params)["text"] == "abcabc"
    included = runtime.generate("?", params | {"include_stop": True, "max_tokens": 9})
    assert (included["text"], included["meta"]["finish_reason"]) == ("abc" * 3, "length")


class Going:
    """As much of a generation as is asked of it here."""

    def __init__(self, return_logprob: bool = False) -> None:
        self.params = SamplingParams(return_logprob=return_logprob)


def test_what_a_step_needs_of_the_head_is_what_its_own_rows_may_sample() -> None:
    a, b, gone, free, told = Going(), Going(), Going(), Going(), Going(return_logprob=True)
    masks = {a: b"a", b: b"b", gone: b"g", told: b"t"}
    assert wanted([a, b], masks) == [b"a", b"b"]
    assert wanted([a, told], masks) is None
    # Siblings of a call that has just failed leave their masks behind.
    assert wanted([free], masks) is None
    assert wanted([free, a], masks) is None
