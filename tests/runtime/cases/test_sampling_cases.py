"""Reported cases of sampling: B106, B108, B110, B111, B116 and B118."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from scripted_engine import Bench
from scripted_runtime import id_of, leans, random_model, writes

import ramet.lang as rm
from ramet.runtime.errors import InvalidArgument
from ramet.runtime.request import SamplingParams
from ramet.runtime.runtime import Runtime

Make = Callable[..., Bench]
Start = Callable[..., Runtime]
A, B = b"ab"

SAMPLED: list[dict[str, Any]] = [
    {},
    {"top_p": 0.9, "min_p": 0.01},
    {"top_k": 20},
    {"frequency_penalty": 0.5, "repetition_penalty": 1.2},
    {"n": 3},
    {"regex": "[a-z]{6}"},
    {"min_tokens": 4, "stop": "e", "logit_bias": {101: 3}},
]


@rm.function
def two_lines(s: rm.ProgramState, prompt: str = "Q", **params: Any) -> None:
    s += prompt + rm.gen("a", max_tokens=8, **params) + "\n" + rm.gen("b", max_tokens=4)


@pytest.mark.parametrize("params", SAMPLED, ids=[" ".join(p) or "plain" for p in SAMPLED])
def test_a_seeded_request_does_not_depend_on_its_neighbours(
    start: Start, tiny: Runtime, params: Any
) -> None:
    """B106: a seed held only where everybody in the batch had one."""
    for runtime in [start(random_model), *([] if params else [tiny])]:

        def play(*seeds: Any, prompts: str = "QQQQQQQQ", on: Runtime = runtime) -> Any:
            items = [{"prompt": prompt, **params} for prompt in prompts[: len(seeds)]]
            states = [*two_lines.run_batch(items, backend=on, seed=list(seeds), temperature=0.9)]
            return states[0]["a"], states[0]["b"]

        alone = play(11)
        for neighbours in [*[(None,)] * 4, (5,), (None, 11, 3)]:
            assert play(11, *neighbours) == alone
        assert play(11, None, 5, prompts="QXY") == alone
        assert play(12) != alone


def test_a_calls_own_seed_does_not_depend_on_its_neighbours(start: Start) -> None:
    """B106: the same with the seed of one call, beside calls of the same program."""
    runtime = start(random_model)

    @rm.function
    def program(s: rm.ProgramState, others: int) -> None:
        forks = s.fork(1 + others)
        for i, fork in enumerate(forks):
            fork += "Q" + rm.gen("x", max_tokens=8, seed=None if i else 11)
        s["first"] = forks[0]["x"]

    texts = [
        program.run(others=others, backend=runtime, temperature=0.9)["first"]
        for others in (0, 1, 1, 1, 1, 5)
    ]
    assert len(set(texts)) == 1


SEEDS = [2**70, -(2**70), 2**64, -(2**63) - 1, "12", 1.5, math.nan, True, [1], b"1"]


@pytest.mark.parametrize("seed", SEEDS, ids=[repr(seed)[:9] for seed in SEEDS])
def test_an_unusable_seed_is_refused_wherever_it_is_given(tiny: Runtime, seed: Any) -> None:
    """B108: a seed of the wrong size or type took the scheduler down."""

    @rm.function
    def own(s: rm.ProgramState) -> None:
        s += "Q" + rm.gen("x", max_tokens=1, seed=seed)

    uses: list[Callable[[], object]] = [
        lambda: tiny.generate("Q", {"seed": seed}),
        lambda: tiny.generate(["Q", "R"], {"seed": seed}),
        lambda: tiny.open(seed=seed),
        lambda: SamplingParams(seed=seed),
        lambda: Runtime("tiny", isolation="thread", seed=seed),
        lambda: two_lines.run(backend=tiny, seed=seed),
        lambda: two_lines.run_batch([{}], backend=tiny, seed=[seed]),
        lambda: own.run(backend=tiny),
    ]
    for use in uses:
        with pytest.raises(InvalidArgument, match="seed") as caught:
            use()
        assert repr(seed)[:9] in str(caught.value)
    assert tiny.generate("Q", {"max_tokens": 1})


def test_seeds_of_64_bits_are_used_as_they_are(tiny: Runtime) -> None:
    """B108: negative ones too, and no seed at all."""
    texts = []
    for seed in (-1, 1, 0, 2**63 - 1, -(2**63), 2**64 - 2):
        text, again = (tiny.generate("Q", {"seed": seed, "max_tokens": 12}) for _ in range(2))
        assert text["text"] == again["text"]  # type: ignore[call-overload]
        texts.append(text["text"])  # type: ignore[call-overload]
    assert len(set(texts)) == len(texts)
    unseeded = [tiny.generate("Q", {"seed": None, "max_tokens": 12}) for _ in range(2)]
    assert unseeded[0] != unseeded[1]


BIASES: list[Any] = [
    {"999999": 5},
    {999999: 5},
    {259: 5},
    {"-1": 5},
    {-1: 5},
    {"abc": 5},
    {"": 5},
    {1.0: 5},
    {True: 5},
    {None: 5},
    {65: 1e9},
    {65: -101},
    {65: math.nan},
    {65: math.inf},
    {65: "5"},
    {65: None},
    {65: True},
    dict.fromkeys(range(100_000), 1.0),
    {65: 1, "65": 2},
    [(65, 1), (65, 1)],
    [65],
    "65",
    10**400,
]


@pytest.mark.parametrize("bias", BIASES, ids=[repr(bias)[:20] for bias in BIASES])
def test_an_unusable_bias_is_refused_and_harms_nobody(tiny: Runtime, bias: Any) -> None:
    """B110: one token id beyond the vocabulary killed the engine."""

    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += "Q" + rm.gen("x", max_tokens=2, logit_bias=bias)

    valid = SamplingParams(40, temperature=0, logit_bias={65: 100.0}, ignore_eos=True)  # type: ignore[arg-type]
    handle = tiny.open()
    handle.append([("Q", "text")])
    running = handle.generate(valid)
    for use in (
        lambda: tiny.generate("Q", {"logit_bias": bias}),
        lambda: program.run(backend=tiny),
    ):
        with pytest.raises(InvalidArgument, match="logit_bias") as caught:
            use()
        assert len(str(caught.value)) < 500
    assert running.result().text == "A" * 40
    handle.close()


@pytest.mark.parametrize("params", [{}, {"n": 10, "temperature": 1.0}], ids=["one", "ten"])
def test_a_bias_acts(start: Start, params: Any) -> None:
    """B111: the parameter was read and then forgotten."""
    runtime = start(writes({}, ["a"] * 400))
    token = {text: id_of(runtime.tokenizer, text) for text in "abc"}

    def write(bias: dict[str, float], **more: Any) -> list[str]:
        named = {token[text]: value for text, value in bias.items()}
        fields = {"max_tokens": 12, "temperature": 0, "logit_bias": named, "seed": 3}
        text = runtime.generate("go", {**fields, **params, **more})["text"]  # type: ignore[call-overload]
        return text if isinstance(text, list) else [text]

    count = params.get("n", 1)
    assert len(write({})) == count
    assert any("a" in text for text in write({}))
    assert not any("a" in text for text in write({"a": -100}))
    assert not any("a" in text for text in write({"a": -100}, top_k=1, repetition_penalty=0.5))
    assert write({"b": 100}) == ["b" * 12] * count
    assert write({"b": 100, "a": -100}, top_p=0.5) == ["b" * 12] * count
    for text in write({"b": 100}, regex="[ac]{9}"):
        assert re.fullmatch("[ac]{9}", text)
    for text in write({"b": 100, "a": -100}, regex="[ac]{9}"):
        assert text == "c" * 9
    with pytest.raises(InvalidArgument, match="logit_bias"):
        write({"a": -100, "c": -100}, regex="[ac]{9}")


def test_a_bias_on_an_end_token_decides_when_it_ends(start: Start) -> None:
    """B111: also the tokens that end a text can be banned and forced."""
    runtime = start(writes({}, list("hello")))
    ends = runtime.tokenizer.eos_ids

    def write(value: float, **more: Any) -> Any:
        bias = {str(end): value for end in ends}
        return runtime.generate(
            "go", {"max_tokens": 9, "temperature": 0, "logit_bias": bias, **more}
        )

    assert write(0)["text"] == "hello"
    assert write(-100)["meta"]["finish_reason"] == "length"
    assert write(-100)["meta"]["completion_tokens"] == 9
    assert (write(100)["text"], write(100)["meta"]["finish_reason"]) == ("", "eos")
    assert write(100, min_tokens=3)["text"] == "hel"


TWENTY: dict[str, Any] = {"min_tokens": 20, "max_tokens": 60}


@pytest.mark.parametrize(
    ("text", "params", "kept", "count"),
    [
        ("x\n" + "x" * 22 + "\ntail", {"stop": "\n"}, 24, 25),
        ("x\n" + "x" * 22 + "\ntail", {"stop": ["zz", "\n"], "n": 2}, 24, 25),
        ("x\n" + "x" * 22 + "\ntail", {"stop": "\n", "include_stop": True}, 25, 25),
        ("x" * 19 + "\nx\nx", {"stop": "\n"}, 21, 22),
        ("x" * 20 + "\nx\nx", {"stop": "\n"}, 20, 21),
        ("x" * 18 + "\n\n\nx", {"stop": "\n\n"}, 19, 21),
        ("x" * 19 + "\n\nx\n\nx", {"stop": "\n\n"}, 19, 21),
        ("x\n" + "x" * 28, {"stop": "\n"}, 30, 31),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_no_stop_ends_a_text_before_its_least_length(
    start: Start, text: str, params: Any, kept: int, count: int, stream: bool
) -> None:
    """B116: a stop that came early ended the text below the requested minimum."""
    runtime = start(writes({}, list(text)))

    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += "go:" + rm.gen("a", **TWENTY, **params)

    state = program.run(backend=runtime, temperature=0, stream=stream)
    if stream:
        assert "".join(state.text_iter("a")) == text[:kept]
    value, meta = state["a"], state.meta("a")
    if params.get("n"):
        assert value == [text[:kept]] * 2
        value, meta = value[0], meta[0]
    assert value == text[:kept]
    assert meta["completion_tokens"] == count > 20, "so many come before the one that ends it"
    assert state.text() == "go:" + text[:kept]


@pytest.mark.parametrize("params", [{}, {"ignore_eos": True}, {"stop_token_ids": [97, 98, 99]}])
def test_no_end_token_is_written_before_the_least_length(start: Start, params: Any) -> None:
    """B116: the tokens that end a text are held to the minimum as well."""
    runtime = start(writes({}, list("abc")))
    fields = {**TWENTY, "temperature": 0, **params}
    meta = runtime.generate("go", fields)["meta"]  # type: ignore[call-overload]
    assert meta["completion_tokens"] >= 20
    ends = {*params.get("stop_token_ids", ())}
    if not params.get("ignore_eos"):
        ends |= {*runtime.tokenizer.eos_ids}
    assert not ends & {*meta["output_token_ids"][:20]}


def constant(a: float = 2.0, b: float = 1.2, rest: float = -50.0) -> Callable[..., torch.Tensor]:
    logits = torch.full((259,), rest, dtype=torch.float64)
    logits[A], logits[B] = a, b
    return lambda path: logits.clone()


@pytest.mark.parametrize(
    ("prompt", "params", "text"),
    [
        ("go", {"frequency_penalty": 0.5}, "aababab"),
        ("aaa", {"frequency_penalty": 0.5}, "aababab"),
        ("bbb", {"frequency_penalty": 0.5}, "aababab"),
        ("go", {"frequency_penalty": -0.5}, "aaaaaaa"),
        ("go", {"presence_penalty": 0.5}, "aaaaaaa"),
        ("go", {"presence_penalty": 1.0}, "abaaaaa"),
        ("aaa", {"presence_penalty": 1.0}, "abaaaaa"),
        ("go", {"frequency_penalty": 0.5, "presence_penalty": 0.5}, "abaabab"),
        ("go", {"repetition_penalty": 1.5}, "aaaaaaa"),
        ("go", {"repetition_penalty": 2.0}, "abaaaaa"),
        ("a", {"repetition_penalty": 2.0}, "baaaaaa"),
        ("b", {"repetition_penalty": 2.0}, "aaaaaaa"),
        ("ab", {"repetition_penalty": 2.0}, "aaaaaaa"),
        ("b", {"repetition_penalty": 0.5}, "bbbbbbb"),
        ("go", {"frequency_penalty": 0.5, "logit_bias": {A: -1.0}}, "bababab"),
    ],
)
def test_penalties_by_hand(make: Make, prompt: str, params: Any, text: str) -> None:
    """B118: penalties were read without effect, or with a wrong one."""
    bench = make(constant())
    calls = [
        bench.generate(bench.open(list(prompt.encode())), max_tokens=7, **params, **more)
        for more in ({}, {"n": 2}, {"return_logprob": True})
    ]
    bench.run()
    for call in calls:
        for result in bench.done[call]["results"]:
            assert result["text"] == text
    chances = torch.log_softmax(constant()(()), 0)
    raw = [entry[0] for entry in bench.done[calls[2]]["results"][0]["output_token_logprobs"]]
    assert raw == pytest.approx([float(chances[ord(sign)]) for sign in text])


@pytest.mark.parametrize(
    ("params", "second"),
    [
        ({"frequency_penalty": 0.5}, "aababab"),
        ({"presence_penalty": 1.0}, "abaaaaa"),
        ({"repetition_penalty": 2.0}, "aaaaaaa"),
    ],
)
def test_a_later_call_counts_an_earlier_ones_tokens_as_prompt(
    make: Make, params: Any, second: str
) -> None:
    """B118: only the repetition penalty sees what stood there before the call."""
    bench = make(constant())
    context = bench.open(list(b"go"))
    calls = [bench.generate(context, max_tokens=7, **params) for _ in range(2)]
    bench.run()
    assert "b" in bench.done[calls[0]]["results"][0]["text"]
    assert bench.done[calls[1]]["results"][0]["text"] == second


def test_a_negative_logit_moves_away_from_zero_when_it_is_repeated(make: Make) -> None:
    """B118: the repetition penalty divides what is positive and multiplies what is negative."""
    bench = make(constant(a=-1.0, b=-1.5))
    call = bench.generate(bench.open(list(b"go")), max_tokens=7, repetition_penalty=2.0)
    bench.run()
    assert bench.done[call]["results"][0]["text"] == "abaaaaa"


@pytest.mark.parametrize("compiled", [False, True])
def test_penalties_reach_the_engine_from_a_program(start: Start, compiled: bool) -> None:
    """B118: as an argument of the call, and of the run."""
    runtime = start(leans({"": {"a": -0.5, "b": -1.3}}))

    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += "go" + rm.gen("x", max_tokens=7, frequency_penalty=0.5)
        s += "\n" + rm.gen("y", max_tokens=7, frequency_penalty=0.0, presence_penalty=1.0)
        s += "\n" + rm.gen("z", max_tokens=7)

    runs: Any = program.compile() if compiled else program
    state = runs.run(backend=runtime, temperature=0, frequency_penalty=0.5)
    assert [state[name] for name in "xyz"] == ["aababab", "abaaaaa", "aababab"]
    assert json.dumps(state.meta("x")["output_token_ids"]) == json.dumps(list(b"aababab"))
