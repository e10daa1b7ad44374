"""Checkpoints on disk: one file, shards, and everything that can be wrong with them."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from ramet.runtime.errors import InvalidArgument, UnsupportedFeature
from ramet.runtime.model.spec import ModelSpec
from ramet.runtime.model.tiny import tiny_config, tiny_weights
from ramet.runtime.model.weights import check_weights, load_weights


@pytest.fixture
def spec():
    return ModelSpec.from_config(tiny_config())


@pytest.fixture
def tensors(spec):
    return tiny_weights(spec)


def shards(tensors, directory, count=3):
    names = sorted(tensors)
    where = {name: f"model-{i % count}.safetensors" for i, name in enumerate(names)}
    for file in set(where.values()):
        save_file({n: tensors[n] for n in names if where[n] == file}, directory / file)
    index = {"metadata": {}, "weight_map": where}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_one_file_and_shards(tmp_path, spec, tensors, dtype):
    single, split = tmp_path / "single", tmp_path / "split"
    single.mkdir()
    split.mkdir()
    save_file(tensors, single / "model.safetensors")
    shards(tensors, split)
    for directory in (single, split):
        loaded = load_weights(directory, spec, dtype, "cpu")
        assert loaded.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert torch.equal(loaded[name], tensor.to(dtype))


def test_a_missing_tensor_is_named(tmp_path, spec, tensors):
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(InvalidArgument, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        load_weights(tmp_path, spec, torch.float32, "cpu")


def test_an_unexpected_tensor_is_named(tmp_path, spec, tensors):
    tensors["model.layers.0.self_attn.q_proj.bias"] = torch.zeros(64)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(InvalidArgument, match=r"unexpected tensor.*q_proj\.bias"):
        load_weights(tmp_path, spec, torch.float32, "cpu")


def test_a_misshapen_tensor_is_named(spec, tensors):
    tensors["model.norm.weight"] = torch.zeros(65)
    with pytest.raises(InvalidArgument, match=r"model\.norm\.weight.*\(65,\).*\(64,\)"):
        check_weights(tensors, spec)


def test_what_checkpoints_carry_along_is_ignored(tmp_path):
    spec = ModelSpec.from_config({**tiny_config(), "tie_word_embeddings": True})
    tensors = tiny_weights(spec)
    assert "lm_head.weight" not in tensors
    extra = {
        "lm_head.weight": torch.zeros(259, 64),
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8),
    }
    save_file({**tensors, **extra}, tmp_path / "model.safetensors")
    loaded = load_weights(tmp_path, spec, torch.float32, "cpu")
    assert loaded.keys() == tensors.keys()


def test_pickles_are_refused(tmp_path, spec):
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80")
    with pytest.raises(UnsupportedFeature, match=r"pytorch_model\.bin"):
        load_weights(tmp_path, spec, torch.float32, "cpu")


def test_broken_directories_are_named(tmp_path, spec, tensors):
    with pytest.raises(InvalidArgument, match="neither"):
        load_weights(tmp_path, spec, torch.float32, "cpu")
    (tmp_path / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(InvalidArgument, match="not a readable safetensors"):
        load_weights(tmp_path, spec, torch.float32, "cpu")
    shards(tensors, tmp_path)
    (tmp_path / "model-1.safetensors").unlink()
    with pytest.raises(InvalidArgument, match=r"model-1\.safetensors.*is missing"):
        load_weights(tmp_path, spec, torch.float32, "cpu")
    index = tmp_path / "model.safetensors.index.json"
    for text, message in (("[]", "not a safetensors index"), ("{", "not a safetensors index")):
        index.write_text(text)
        with pytest.raises(InvalidArgument, match=message):
            load_weights(tmp_path, spec, torch.float32, "cpu")
    index.write_text(json.dumps({"weight_map": {"a": "../other.safetensors"}}))
    with pytest.raises(InvalidArgument, match="its own directory"):
        load_weights(tmp_path, spec, torch.float32, "cpu")


def test_a_tensor_in_two_files_is_refused(tmp_path, spec, tensors):
    shards(tensors, tmp_path, 2)
    save_file(tensors, tmp_path / "model-0.safetensors")
    with pytest.raises(InvalidArgument, match="in two files"):
        load_weights(tmp_path, spec, torch.float32, "cpu")
