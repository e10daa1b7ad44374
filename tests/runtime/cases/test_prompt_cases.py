"""Reported cases of prompts and their limits: B113, B114 and B115."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_runtime import SPECIALS, words, writes

import ramet.lang as rm
from ramet.runtime.errors import InvalidArgument
from ramet.runtime.request import SamplingParams
from ramet.runtime.runtime import Runtime

Start = Callable[..., Runtime]
VOCAB = 259

PROMPTS: list[tuple[Any, str]] = [
    ([-1], r"prompt: -1"),
    ([5, -1], r"prompt: -1"),
    ([VOCAB], rf"prompt: {VOCAB} .*{VOCAB} tokens"),
    ([2**31], rf"prompt: {2**31}"),
    ([2**70], r"prompt: 118"),
    ([], r"prompt=\[\]"),
    ([1.0], r"prompt: 1\.0"),
    ([True], r"prompt: True"),
    ([None], r"prompt: None"),
    ([1, "a"], r"prompt: .*mixture"),
    (["a", 1], r"prompt: .*mixture"),
    (["a", [1]], r"prompt: .*mixture"),
    (["a", None], r"prompt: .*mixture"),
    ([[1], 2], r"prompt: .*mixture"),
    ([[1], [2.0]], r"prompt\[1\]: 2\.0"),
    ([[1], [-1]], r"prompt\[1\]: -1"),
    ([[1], [VOCAB]], rf"prompt\[1\]: {VOCAB}"),
    ([[1], []], r"prompt\[1\]=\[\]"),
    ([[]], r"prompt\[0\]=\[\]"),
    ([[[1]]], r"prompt\[0\]: \[1\]"),
    ([["a"]], r"prompt\[0\]: 'a'"),
    ({"a": 1}, r"prompt="),
    (b"a", r"prompt=b'a'"),
    (5, r"prompt=5"),
    (None, r"prompt=None"),
    ("\ud800", r"prompt: .*surrogate"),
    (["a", "\ud800"], r"prompt\[1\]: .*surrogate"),
]


@pytest.mark.parametrize(("prompt", "said"), PROMPTS, ids=[repr(p)[:20] for p, _ in PROMPTS])
def test_an_unusable_prompt_is_refused_and_harms_nobody(
    tiny: Runtime, prompt: Any, said: str
) -> None:
    """B113: negative ids passed the check of the upper bound, and broke the embedding."""
    handle = tiny.open()
    handle.append([("Q", "text")])
    running = handle.generate(SamplingParams(20, ignore_eos=True, seed=1))
    with pytest.raises(InvalidArgument, match=said):
        tiny.generate(prompt, {"max_tokens": 1})
    assert len(running.result().meta[0]["output_token_ids"]) == 20
    handle.close()


def test_every_id_of_the_vocabulary_is_a_prompt(tiny: Runtime) -> None:
    """B113: up to the last one, which is a special token."""
    for prompt in ([VOCAB - 1], [0], [[VOCAB - 1], [0, 258, 256]], (1, 2)):
        outputs = tiny.generate(prompt, {"max_tokens": 2, "ignore_eos": True})  # type: ignore[arg-type]
        for output in outputs if isinstance(outputs, list) else [outputs]:
            assert output["meta"]["completion_tokens"] == 2
            assert output["meta"]["prompt_tokens"] > 0


@pytest.mark.parametrize("ids", [[-1], [VOCAB], [1.0], [True], ["a"], [[1]], "ab", 5, None])
def test_a_context_takes_only_ids_of_the_vocabulary(tiny: Runtime, ids: Any) -> None:
    """B113: also where ids are added to what is there; the context stays usable."""
    handle = tiny.open()
    handle.append([("Q", "text")])
    with pytest.raises(InvalidArgument, match="ids"):
        handle.append_ids(ids)
    handle.append_ids([65])
    assert handle.generate(SamplingParams(1)).result().meta[0]["prompt_token_ids"] == [81, 65]
    handle.close()


@pytest.mark.parametrize("kind", ["tiny", "bos", "no bos"])
def test_an_empty_prompt_starts_from_the_beginning(start: Start, tmp_path: Path, kind: str) -> None:
    """B114: without a BOS an empty prompt has no token at all, and an assertion fell over it."""
    folder = None if kind == "tiny" else words(tmp_path, bos=kind == "bos")
    runtime = start(writes({"a": ["b"]}, list("hey")), folder)
    fields = {"max_tokens": 3, "temperature": 0}
    tokenizer = runtime.tokenizer
    first = tokenizer.bos_id if kind == "bos" else tokenizer.eos_ids[0]

    whole = runtime.generate("", fields)
    listed = runtime.generate([""], fields)
    both = runtime.generate(["", "a", ""], fields)
    assert isinstance(whole, dict)
    outputs: list[Any] = [whole, *listed, *both]
    assert [output["text"] for output in outputs] == ["hey", "hey", "hey", "b", "hey"]
    assert whole["meta"]["prompt_token_ids"] == [first]

    nothing: list[Any] = [[], [[]], [[], [97]]]
    for prompt in nothing:
        with pytest.raises(InvalidArgument, match=r"prompt.*at least one"):
            runtime.generate(prompt, fields)


@pytest.mark.parametrize("bos", [False, True])
def test_a_prompt_may_be_all_special_tokens(start: Start, tmp_path: Path, bos: bool) -> None:
    """B114: which have no text of their own."""
    runtime = start(writes({}, list("hey")), words(tmp_path, bos=bos))
    specials = [runtime.tokenizer.special_id(text) for text in SPECIALS]
    fields = {"max_tokens": 3, "temperature": 0}
    for prompt in ("".join(SPECIALS), "<s>", "</s>", "<|im_end|>", specials, [specials[1]]):
        output = runtime.generate(prompt, fields)  # type: ignore[arg-type]
        assert output["text"] == "hey"  # type: ignore[call-overload]
        assert {*output["meta"]["prompt_token_ids"]} <= {*specials}  # type: ignore[call-overload]


@pytest.mark.parametrize("bos", [False, True])
def test_empty_texts_and_contents_in_a_program(start: Start, tmp_path: Path, bos: bool) -> None:
    """B114: no text, an empty text, and messages with nothing in them."""
    runtime = start(writes({}, list("hey")), words(tmp_path, bos=bos))

    @rm.function
    def plain(s: rm.ProgramState, times: int) -> None:
        for _ in range(times):
            s += ""
        s += rm.gen("a", max_tokens=3)

    @rm.function
    def chat(s: rm.ProgramState) -> None:
        s += rm.system("") + rm.user("")
        s += rm.assistant(rm.gen("a", max_tokens=3))
        s += rm.user("") + rm.assistant("") + rm.user("")
        s += rm.assistant(rm.gen("b", max_tokens=3))

    @rm.function
    def choose(s: rm.ProgramState) -> None:
        s += rm.select("v", ["h", "x"])

    for times in (0, 1, 3):
        assert plain.run(times=times, backend=runtime, temperature=0)["a"] == "hey"
    state = chat.run(backend=runtime, temperature=0)
    assert (state["a"], state["b"]) == ("hey", "hey")
    assert choose.run(backend=runtime)["v"] == "h"


LIMITS: list[Any] = [0, -1, "5", "", 1.5, 2.0, True, False, 2**31, 2**70, [5], "contexts"]


@pytest.mark.parametrize("limit", LIMITS, ids=[repr(limit)[:12] for limit in LIMITS])
@pytest.mark.parametrize("name", ["max_tokens", "max_new_tokens"])
def test_an_unusable_limit_is_refused(tiny: Runtime, name: str, limit: Any) -> None:
    """B115: zero crashed one way of asking and null another."""

    @rm.function
    def own(s: rm.ProgramState) -> None:
        s += "Q" + rm.gen("x", max_tokens=limit)

    @rm.function
    def inherits(s: rm.ProgramState) -> None:
        s += "Q" + rm.gen("x")

    logprobs = {"return_logprob": True, "logprob_start_len": 0}
    uses: list[Callable[[], object]] = [
        lambda: tiny.generate("Q", {name: limit}),
        lambda: tiny.generate("Q", {name: limit, **logprobs}),
        lambda: own.run(backend=tiny),
        lambda: inherits.run(backend=tiny, **{name: limit}),
    ]
    for use in uses:
        with pytest.raises(InvalidArgument, match=r"max_(new_)?tokens") as caught:
            use()
        assert repr(limit)[:12] in str(caught.value)
    assert tiny.generate("Q", {"max_tokens": 1})


def test_null_is_the_default_and_one_is_one(start: Start) -> None:
    """B115: for the limit, and for every other parameter that may be left out."""
    runtime = start(writes({}, ["z"] * 400), max_context=1024)

    def write(**fields: Any) -> Any:
        return runtime.generate("go", {"temperature": 0, **fields})

    assert write()["meta"]["completion_tokens"] == SamplingParams().max_new_tokens == 128
    for name in ("max_tokens", "max_new_tokens"):
        assert write(**{name: None})["text"] == "z" * 128
    names = {*SamplingParams.__dataclass_fields__, "min_tokens", "regex"}
    for name in names - {"max_new_tokens", "temperature"}:
        assert write(max_tokens=3, **{name: None})["text"] == "zzz"
    assert runtime.generate("go", {"temperature": None, "max_tokens": 1})
    one = write(max_tokens=1, return_logprob=True, logprob_start_len=0)
    assert (one["text"], one["meta"]["completion_tokens"]) == ("z", 1)
    assert one["meta"]["finish_reason"] == "length"
    assert len(one["meta"]["input_token_logprobs"]) == 2

    @rm.function
    def program(s: rm.ProgramState, **fields: Any) -> None:
        s += "go" + rm.gen("a", **fields)

    for fields, count in (({}, 128), ({"max_tokens": None}, 128), ({"max_tokens": 1}, 1)):
        state = program.run(backend=runtime, temperature=0, **fields)
        assert state["a"] == "z" * count
    assert program.run(backend=runtime, temperature=0, max_new_tokens=None)["a"] == "z" * 128
