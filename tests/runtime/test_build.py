import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import save_file

from ramet.runtime.config import RuntimeConfig
from ramet.runtime.engine import Engine
from ramet.runtime.errors import InvalidArgument, UnsupportedFeature
from ramet.runtime.model.spec import ModelSpec
from ramet.runtime.model.tiny import tiny_config, tiny_weights
from ramet.runtime.request import SamplingParams

WITHOUT = ("numba", "llguidance", "lark", "pydantic", "gguf", "triton", "transformers")

SCRIPT = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"{{name}} is blocked", name=name)

sys.meta_path.insert(0, Blocker())
import ramet.runtime.engine
from ramet.lang import Runtime
with Runtime("tiny", isolation="thread", pool_tokens=256) as runtime:
    print(len(runtime.generate("abc", {{"max_tokens": 5, "ignore_eos": True}})["meta"]
        ["output_token_ids"]))
"""


def generate(engine: Engine, ids: list[int], count: int) -> list[int]:
    params = SamplingParams(temperature=0, max_new_tokens=count, ignore_eos=True)
    engine.submit(
        [
            {"op": "open", "ctx": 1, "program": 1},
            {"op": "append", "ctx": 1, "ids": ids},
            {"op": "generate", "ctx": 1, "call": 2, "params": params.to_wire(), "keys": [1]},
            {"op": "close", "ctx": 1},
        ]
    )
    while not engine.idle:
        engine.step()
    (event,) = engine.take_events()
    return event["results"][0]["output_token_ids"]


def test_tiny_needs_no_file_and_says_what_it_is():
    engine = Engine.build(RuntimeConfig(model="tiny", dtype="float64"))
    assert engine.info["dir"] is None
    assert engine.info["dtype"] == "float64"
    assert engine.info["max_context"] == 16_384
    assert len(generate(engine, [1, 2, 3], 4)) == 4


def test_unconstrained_generation_needs_no_optional_package():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(blocked=WITHOUT)], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip()) == (0, "5"), done.stderr


def test_sizes_are_checked_against_the_model():
    with pytest.raises(InvalidArgument, match=r"max_context=20000.*16384"):
        Engine.build(RuntimeConfig(model="tiny", max_context=20_000))
    engine = Engine.build(RuntimeConfig(model="tiny", pool_tokens=100, page_size=16))
    assert engine.info["pool_tokens"] == 96
    for sizes in ({"pool_tokens": 2**31 - 1}, {"page_size": 2**31 - 1}):
        with pytest.raises(InvalidArgument, match="bytes"):
            Engine.build(RuntimeConfig(model="tiny", **sizes))
    with pytest.raises(UnsupportedFeature, match="cuda"):
        Engine.build(RuntimeConfig(model="tiny", device="cuda"))


def test_a_local_folder_runs_as_the_same_model(tmp_path: Path):
    config = tiny_config()
    spec = ModelSpec.from_config(config)
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(tiny_weights(spec), tmp_path / "model.safetensors")
    with pytest.raises(UnsupportedFeature, match=r"tokenizer\.json"):
        Engine.build(RuntimeConfig(model=str(tmp_path)))
    (tmp_path / "tokenizer.json").write_text(_tiny_tokenizer())
    engine = Engine.build(RuntimeConfig(model=str(tmp_path), dtype="float32"))
    tiny = Engine.build(RuntimeConfig(model="tiny", dtype="float32"))
    assert generate(engine, [1, 2, 3], 8) == generate(tiny, [1, 2, 3], 8)


def test_a_field_that_is_not_honoured_is_refused_by_name(tmp_path: Path):
    config = tiny_config() | {"attn_logit_softcapping": 30.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_text(_tiny_tokenizer())
    save_file(tiny_weights(ModelSpec.from_config(tiny_config())), tmp_path / "model.safetensors")
    with pytest.raises(UnsupportedFeature, match="attn_logit_softcapping"):
        Engine.build(RuntimeConfig(model=str(tmp_path)))


def _tiny_tokenizer() -> str:
    from ramet.runtime.tokenizer import Tokenizer

    return Tokenizer.tiny()._native.to_str()


def test_an_end_id_outside_the_vocabulary_is_refused(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(tiny_config()))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": 99_999}))
    (tmp_path / "tokenizer.json").write_text(_tiny_tokenizer())
    save_file(tiny_weights(ModelSpec.from_config(tiny_config())), tmp_path / "model.safetensors")
    with pytest.raises(InvalidArgument, match=r"eos_token_id.*99999"):
        Engine.build(RuntimeConfig(model=str(tmp_path)))
