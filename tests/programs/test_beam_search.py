from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import ramet.lang as rm

Load = Callable[[str], ModuleType]

ENDS = (258, 256)  # The end tokens of `tiny`.
PROMPTS = ("One", "a b c", "?!", "The gate", "12", "x", "Why", "no. ")


def reference(model: Any, ids: list[int], width: int, tokens: int, ends: tuple[int, ...]) -> Any:
    """transformers' beams: mean log-probabilities, and tokens without the filling at the end."""
    import torch

    found = model.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        num_beams=width,
        num_return_sequences=width,
        do_sample=False,
        length_penalty=1.0,
        max_new_tokens=tokens,
        eos_token_id=list(ends),
        pad_token_id=ends[0],
        return_dict_in_generate=True,
        output_scores=True,
    )
    beams = []
    for row in found.sequences[:, len(ids) :].tolist():
        end = next((at + 1 for at, token in enumerate(row) if token in ends), tokens)
        beams.append(row[:end])
    return found.sequences_scores.tolist(), beams


def restless_weights(*args: Any, **options: Any) -> Any:
    """The weights of `tiny`, but with end tokens that are often likely."""
    from ramet.runtime.model.tiny import tiny_weights

    weights = tiny_weights(*args, **options)
    for end in ENDS:
        weights["lm_head.weight"][end] *= 2.5
    return weights


@pytest.fixture(scope="module")
def theirs() -> Any:
    """The same model as transformers runs it."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from ramet.runtime.model.spec import ModelSpec
    from ramet.runtime.model.tiny import tiny_config

    config = tiny_config()
    model: Any = AutoModelForCausalLM
    model = model.from_config(AutoConfig.for_model(**config)).to(torch.float64)
    model.load_state_dict(restless_weights(ModelSpec.from_config(config), torch.float64))
    return model.eval()


def check(state: rm.ProgramState, expected: Any) -> None:
    scores, beams = expected
    assert [ids for _, ids, _ in state["beams"]] == beams
    assert [score for score, _, _ in state["beams"]] == pytest.approx(scores, abs=2e-5)


@pytest.mark.parametrize("width", [2, 3, 5])
def test_beams_are_those_of_transformers_on_tiny(
    load: Load, width: int, theirs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ramet.runtime.build.tiny_weights", restless_weights)
    program = load("beam_search")
    lengths = set()
    with rm.Runtime(model="tiny", dtype="float64", isolation="thread") as runtime:
        assert set(runtime.tokenizer.eos_ids) == set(ENDS)
        search = program.beam_search.bind(width=width, max_tokens=10)
        items = [{"prompt": p} for p in PROMPTS]
        for item, state in zip(items, search.run_batch(items, backend=runtime), strict=True):
            expected = reference(theirs, runtime.tokenizer.encode(item["prompt"]), width, 10, ENDS)
            check(state, expected)
            lengths |= {len(ids) for ids in expected[1]}
        stats = runtime.stats()
    assert stats["contexts"] == stats["held_tokens"] == 0
    assert len(lengths) > 3
    assert 10 in lengths


@pytest.mark.model
def test_beams_are_those_of_transformers_on_the_built_in_model(load: Load) -> None:
    from transformers import AutoModelForCausalLM

    from ramet.runtime.builtin_model import resolve_model

    directory = resolve_model("smollm2-135m").dir
    assert directory is not None
    model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype="float32")
    program = load("beam_search")
    with rm.Runtime(dtype="float32", isolation="thread") as runtime:
        tokenizer = runtime.tokenizer
        hello = tokenizer.render_chat([{"role": "user", "content": "What is 2 + 2?"}], True)
        for prompt in ("12, 14, 16,", *program.PROMPTS, hello):
            state = program.beam_search.run(prompt=prompt, width=4, max_tokens=12, backend=runtime)
            expected = reference(model.eval(), tokenizer.encode(prompt), 4, 12, tokenizer.eos_ids)
            check(state, expected)
    assert min(len(ids) for ids in expected[1]) < 12  # The greeting ends before the limit.


def test_beams_share_their_pages_and_are_printed(
    load: Load, tiny: rm.Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    load("beam_search").main(["--prompt", "One gate", "--beams", "3", "--tokens", "5"])
    first, *beams = capsys.readouterr().out.rstrip("\n").split("\n")
    assert first == "One gate"
    found = [re.fullmatch(r" +(-\d+\.\d+)  '.*'  \((\d) tokens\)", line) for line in beams]
    assert len(found) == 3
    scores = [float(match[1]) for match in found if match]
    assert scores == sorted(scores, reverse=True)
    # The prompt once, then at most a token per beam and step; the last ones are never computed.
    assert tiny.stats()["computed_tokens"] <= len("One gate") + 3 * 4


def test_help(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        load("beam_search").main(["--help"])
    assert end.value.code == 0
    assert "--beams" in capsys.readouterr().out
