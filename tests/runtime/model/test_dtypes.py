import dataclasses

import pytest
import torch

from ramet.runtime.errors import InvalidArgument, UnsupportedFeature
from ramet.runtime.model import dtypes
from ramet.runtime.model.spec import ModelSpec
from ramet.runtime.model.tiny import tiny_config


def test_names_stand_for_themselves():
    spec = ModelSpec.from_config(tiny_config())
    for name in ("int8", "bfloat16", "float16", "float32", "float64"):
        assert dtypes.resolve_dtype(name, "cpu", spec, None) == getattr(torch, name)
    with pytest.raises(InvalidArgument, match="dtype='int4'"):
        dtypes.resolve_dtype("int4", "cpu", spec, None)


def test_int8_where_it_cannot_be_is_refused():
    spec = ModelSpec.from_config(tiny_config())
    with pytest.raises(UnsupportedFeature, match='dtype="int8": no compiler'):
        dtypes.resolve_dtype("int8", "cpu", spec, "no compiler")
    assert dtypes.resolve_dtype("float32", "cpu", spec, "no compiler") == torch.float32


@pytest.mark.parametrize("has", [True, False])
def test_auto_on_a_cpu_follows_the_machine(monkeypatch, has):
    monkeypatch.setattr(dtypes, "_cpu_multiplies_bfloat16", lambda: has)
    spec = ModelSpec.from_config(tiny_config())
    wanted = torch.bfloat16 if has else torch.float32
    assert dtypes.resolve_dtype("auto", "cpu", spec, "no compiler") == wanted
    assert dtypes.resolve_dtype("auto", "cpu", spec, None) == torch.int8
    wide = dataclasses.replace(spec, dtype="float64")
    assert dtypes.resolve_dtype("auto", "cpu", wide, None) == torch.float64


def test_auto_on_a_gpu_follows_the_config():
    spec = ModelSpec.from_config(tiny_config())
    assert dtypes.resolve_dtype("auto", "cuda:1", spec, "on a GPU") == torch.bfloat16
    half = dataclasses.replace(spec, dtype="float16")
    assert dtypes.resolve_dtype("auto", "cuda", half, "on a GPU") == torch.float16
