import dataclasses

import pytest
import torch

from ramet.runtime.errors import InvalidArgument
from ramet.runtime.model import dtypes
from ramet.runtime.model.spec import ModelSpec
from ramet.runtime.model.tiny import tiny_config


def test_names_stand_for_themselves():
    spec = ModelSpec.from_config(tiny_config())
    for name in ("bfloat16", "float16", "float32", "float64"):
        assert dtypes.resolve_dtype(name, "cpu", spec) == getattr(torch, name)
    with pytest.raises(InvalidArgument, match="dtype='int8'"):
        dtypes.resolve_dtype("int8", "cpu", spec)


@pytest.mark.parametrize("has", [True, False])
def test_auto_on_a_cpu_follows_the_processor(monkeypatch, has):
    monkeypatch.setattr(dtypes, "_cpu_multiplies_bfloat16", lambda: has)
    spec = ModelSpec.from_config(tiny_config())
    wanted = torch.bfloat16 if has else torch.float32
    assert dtypes.resolve_dtype("auto", "cpu", spec) == wanted
    wide = dataclasses.replace(spec, dtype="float64")
    assert dtypes.resolve_dtype("auto", "cpu", wide) == torch.float64


def test_auto_on_a_gpu_follows_the_config():
    spec = ModelSpec.from_config(tiny_config())
    assert dtypes.resolve_dtype("auto", "cuda:1", spec) == torch.bfloat16
    half = dataclasses.replace(spec, dtype="float16")
    assert dtypes.resolve_dtype("auto", "cuda", half) == torch.float16
