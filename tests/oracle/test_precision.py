"""The quality of int8 is what `programs/PRECISION.md` states, with the built-in model."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from ramet.kernels import ops

TOKENS = 1300
PROGRAM = Path(__file__).resolve().parents[2] / "programs" / "precision.py"


@pytest.fixture(scope="module")
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("precision", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def figures(program: ModuleType) -> dict[str, Any]:
    """Of float32 and int8, over the first part of the text."""
    from ramet.runtime.model.fused import decoder_shape

    shape = decoder_shape(program.Model.find("smollm2-135m").spec)
    if reason := ops.why_no_decoder(shape, torch.device("cpu")):
        pytest.skip(f"no int8 on this machine: {reason}")
    found: dict[str, Any] = program.measure("smollm2-135m", ["int8"], TOKENS, False)
    return found


@pytest.mark.model
def test_int8_costs_what_is_stated(figures: dict[str, Any]) -> None:
    exact, fast = figures["float32"], figures["int8"]
    assert fast["perplexity"] < 1.01 * exact["perplexity"]
    assert fast["against_float32"]["positions"] == TOKENS - 1
    assert fast["against_float32"]["agreement"] > 0.95
    assert fast["against_float32"]["mean_difference"] < 0.08


@pytest.mark.model
@pytest.mark.parametrize("way", ["decode", "forked"])
def test_a_warm_cache_changes_nothing(figures: dict[str, Any], way: str) -> None:
    found = figures["int8"]["warm_against_cold"][way]
    assert found["positions"] >= 700
    assert (found["agreement"], found["largest_difference"]) == (1.0, 0.0)
