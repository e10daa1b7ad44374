from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import ModuleType

import pytest
import torch

Load = Callable[[str], ModuleType]


@pytest.fixture
def program(load: Load) -> ModuleType:
    return load("precision")


def test_the_figures_of_a_small_model(
    program: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    program.main(["--model", "tiny", "--tokens", "600", "--dtypes", "int8", "--no-memory"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines if line] == [
        *("dtype", "---", "float32", "int8"),
        *("warm against cold", "---", "int8, decode", "int8, forked"),
    ]
    assert "| 100.00% | 0.0000 |" in lines[2]


def test_without_rounding_both_ways_give_the_same(program: ModuleType) -> None:
    """So what the program finds in another dtype is that dtype's doing."""
    model = program.Model.find("tiny")
    ids = model.tokenizer.encode(program.TEXT.read_text())[:1300]
    runner = model.runner("float64", 4000)
    cold = program.as_prompt(runner, ids)
    assert len(cold.best) == len(ids) - 1
    found = program.warm_against_cold(runner, ids, cold)
    assert found["decode"]["positions"] == len(ids) - 1 - program.FIRST
    assert found["forked"]["positions"] == program.FORKS * ((1300 - program.PREFIX) // 8 - 1)
    for figures in found.values():
        assert figures["agreement"] == 1
        assert figures["largest_difference"] < 1e-5


def test_a_reading_is_what_the_logits_say(program: ModuleType) -> None:
    reading, other = program.Reading(), program.Reading()
    reading.add(torch.tensor([[0.0, 0.0], [0.0, math.log(3)]]), [0, 0])
    assert reading.best[1] == 1
    assert reading.perplexity == pytest.approx(math.sqrt(8))
    other.add(torch.tensor([[0.0, -1.0], [1.0, 0.0]]), [0, 0])
    assert reading.beside(other)["agreement"] == 0.5


def test_the_bytes_are_those_of_the_tensors(program: ModuleType) -> None:
    from ramet.runtime.model.tiny import tiny_weights

    model = program.Model.find("tiny")
    weights = tiny_weights(model.spec)
    assert model.weight_bytes("float32") == sum(t.nbytes for t in weights.values())
    rows = sum(t.shape[0] for t in weights.values() if t.dim() == 2)
    norms = sum(t.nbytes for t in weights.values() if t.dim() == 1)
    filled = [(t.shape[0], -(-t.shape[1] // 64) * 64) for t in weights.values() if t.dim() == 2]
    matrices = sum(outputs * inputs for outputs, inputs in filled)
    assert model.weight_bytes("int8") == matrices + 4 * rows + norms
    assert model.token_bytes("bfloat16") * 2 == model.token_bytes("float32")
    final_rows = 2 * model.spec.hidden_size  # They are float32.
    assert model.token_bytes("int8") == model.token_bytes("bfloat16") + final_rows


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_the_memory_of_an_engine_is_its_own(program: ModuleType) -> None:
    peak = program.engine_memory("tiny", "float32", list(range(64)))
    assert 50e6 < peak < 2e9
