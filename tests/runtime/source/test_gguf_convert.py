"""The GGUF conversion beside transformers' own, on small files that are written here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from ramet.runtime import builtin_model
from ramet.runtime.errors import InvalidArgument, UnsupportedFeature
from ramet.runtime.source import gguf_convert, gguf_tokenizer
from ramet.runtime.tokenizer import Tokenizer
from ramet.runtime.tokenizer_json import byte_spelling

gguf = pytest.importorskip("gguf")

HIDDEN, HEADS, KV_HEADS, INNER, LAYERS = 64, 4, 2, 96, 2
TEXTS = ["", "hello", "  hello there", "hello<|b|> hello", "Ünïcödé ☃\n\n  x", "<|a|>he llo", " "]
CONTROL = ["<|a|>", "<|b|>"]


def _byte_level_tokens() -> dict[str, Any]:
    spelling = byte_spelling()
    tokens = [*CONTROL, "<think>", *(spelling[byte] for byte in range(256))]
    tokens += ["he", "ll", "llo", "hello", "Ġhello", "Ġt", "ĠĠ"]
    merges = ["h e", "l l", "ll o", "he llo", "Ġ hello", "Ġ t", "Ġ Ġ"]
    types = [3, 3, 4] + [1] * (len(tokens) - 3)
    return {"model": "gpt2", "tokens": tokens, "merges": merges, "types": types}


def _sentencepiece_tokens() -> dict[str, Any]:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [2, 3, 3] + [6] * 256
    pieces = ["he", "ll", "llo", "hello", "▁hello", "▁t", "▁▁", "he▁", *"▁helotrx\n<|ab>"]
    tokens += pieces + CONTROL
    types += [1] * len(pieces) + [3, 3]
    scores = [0.0] * 259 + [-float(i) for i in range(len(pieces))] + [0.0, 0.0]
    return {"model": "llama", "tokens": tokens, "scores": scores, "types": types}


def _write(
    path: Path,
    tokens: Mapping[str, Any],
    *,
    arch: str = "llama",
    extra: Mapping[str, Any] | None = None,
    tensors: Mapping[str, NDArray[np.float32]] | None = None,
    quantised: bool = False,
) -> Path:
    """A small model of random weights; `extra` are further keys, None among `tensors` removes."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(LAYERS)
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model(tokens["model"])
    writer.add_token_list(tokens["tokens"])
    writer.add_token_types(tokens["types"])
    if "merges" in tokens:
        writer.add_token_merges(tokens["merges"])
    if "scores" in tokens:
        writer.add_token_scores(tokens["scores"])
    for key, value in (extra or {}).items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
        add.get(type(value), writer.add_string)(key, value)
    for name, weight in (_weights(len(tokens["tokens"]), arch) | dict(tensors or {})).items():
        if weight is None:
            continue
        kind = gguf.GGMLQuantizationType.Q4_1
        if quantised and weight.ndim == 2 and weight.shape[1] % 32 == 0:
            writer.add_tensor(name, gguf.quantize(weight, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _weights(vocab: int, arch: str) -> dict[str, Any]:
    random = np.random.default_rng(0)
    head = HIDDEN // HEADS
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocab, HIDDEN)}
    shapes["output_norm.weight"] = (HIDDEN,)
    for block in range(LAYERS):
        part = {"attn_norm": (HIDDEN,), "ffn_norm": (HIDDEN,), "attn_output": (HIDDEN, HIDDEN)}
        part |= {"attn_q": (HIDDEN, HIDDEN), "attn_k": (head * KV_HEADS, HIDDEN)}
        part |= {"attn_v": (head * KV_HEADS, HIDDEN), "ffn_down": (HIDDEN, INNER)}
        part |= {"ffn_gate": (INNER, HIDDEN), "ffn_up": (INNER, HIDDEN)}
        if arch == "qwen3":
            part |= {"attn_q_norm": (head,), "attn_k_norm": (head,)}
        shapes |= {f"blk.{block}.{name}.weight": shape for name, shape in part.items()}
        if arch == "qwen2":
            for name in ("attn_q", "attn_k", "attn_v"):
                shapes[f"blk.{block}.{name}.bias"] = part[name][:1]
    return {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def _convert(path: Path) -> Path:
    folder = path.with_suffix(".out")
    folder.mkdir()
    gguf_convert.convert(path, folder)
    return folder


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
def test_weights_and_config_are_those_of_transformers(arch: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    path = _write(tmp_path / "m.gguf", _byte_level_tokens(), arch=arch, quantised=True)
    folder = _convert(path)
    ours = load_file(folder / "model.safetensors")
    theirs_config = AutoConfig.from_pretrained(tmp_path, gguf_file=path.name)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(theirs_config)
    theirs = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert np.array_equal(ours[name], tensor.numpy()), name
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert set(loaded.state_dict()) - {"lm_head.weight"} == set(ours)
    # Left out: what a GGUF cannot say, and what the classes print as text.
    ignored = {"architectures", "_name_or_path", "_model_name_or_path", "rms_norm_eps", "dtype"}
    ignored |= {"unk_token_id", "bos_token_id", "eos_token_id", "pad_token_id"}
    if arch == "qwen3":
        ignored.add("head_dim")  # transformers leaves the file's key unread
    known = loaded.config.to_dict()
    for key, value in theirs_config.to_dict().items():
        assert key in ignored or known.get(key) == value, key
    assert known["rms_norm_eps"] == 1e-5
    assert known["head_dim"] == HIDDEN // HEADS


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("kind", ["gpt2", "llama-bpe", "qwen2", "sentencepiece"])
def test_ids_are_those_of_transformers(kind: str, bos: bool, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    spm = kind == "sentencepiece"
    extra: dict[str, Any] = {
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2 if spm else 0,
        "tokenizer.ggml.add_bos_token": bos,
        "tokenizer.chat_template": "{{ messages }}",
    }
    if not spm:
        extra["tokenizer.ggml.pre"] = kind if kind != "gpt2" else "default"
    tokens = _sentencepiece_tokens() if spm else _byte_level_tokens()
    path = _write(tmp_path / "m.gguf", tokens, extra=extra)
    folder = _convert(path)
    ours = Tokenizer.from_dir(folder)
    converted = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    for text in TEXTS:
        ids = ours.encode(text)
        assert ids == converted(text).input_ids == theirs(text).input_ids, text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    assert ours.adds_bos is bos
    assert ours.bos_id == 1
    assert ours.eos_ids == (2 if spm else 0,)
    assert ours.chat_template == "{{ messages }}"


def test_smollm_splits_digits(tmp_path: Path) -> None:
    tokens = _byte_level_tokens()
    tokens["tokens"] += ["12", "Ġ1"]
    tokens["types"] += [1, 1]
    tokens["merges"] += ["1 2", "Ġ 1"]
    counts = {}
    for pre in ("default", "smollm"):
        path = _write(tmp_path / f"{pre}.gguf", tokens, extra={"tokenizer.ggml.pre": pre})
        counts[pre] = len(Tokenizer.from_dir(_convert(path)).encode(" 12"))
    assert counts == {"default": 2, "smollm": 3}


def test_all_end_ids_are_kept(tmp_path: Path) -> None:
    extra = {f"tokenizer.ggml.{name}_token_id": index for index, name in enumerate(("eos", "eot"))}
    folder = _convert(_write(tmp_path / "m.gguf", _byte_level_tokens(), extra=extra))
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == [0, 1]
    assert Tokenizer.from_dir(folder).eos_ids == (0, 1)


def test_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _write(tmp_path / "m.gguf", _byte_level_tokens())
    whole = load_file(_convert(path) / "model.safetensors")
    monkeypatch.setattr(gguf_convert, "SHARD_BYTES", 50_000)
    (folder := tmp_path / "shards").mkdir()
    seen: list[tuple[int, int]] = []
    gguf_convert.convert(path, folder, lambda done, total: seen.append((done, total)))
    assert seen == [(done, len(whole)) for done in range(1, len(whole) + 1)]
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    assert index.keys() == whole.keys()
    files = sorted(set(index.values()))
    assert len(files) > 2
    assert files == sorted(file.name for file in folder.glob("*.safetensors"))
    for name, file in index.items():
        assert np.array_equal(load_file(folder / file)[name], whole[name])


def test_rope_scaling_and_windows(tmp_path: Path) -> None:
    tokens = _byte_level_tokens()

    def config(name: str, **keywords: Any) -> dict[str, Any]:
        folder = _convert(_write(tmp_path / f"{name}.gguf", tokens, **keywords))
        document = json.loads((folder / "config.json").read_text())
        assert isinstance(document, dict)
        return document

    linear = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}
    assert config("linear", extra=linear)["rope_scaling"] == {"rope_type": "linear", "factor": 2.0}
    yarn = {"qwen2.rope.scaling.type": "yarn", "qwen2.rope.scaling.factor": 4.0}
    yarn |= {"qwen2.rope.scaling.original_context_length": 128}
    assert config("yarn", arch="qwen2", extra=yarn)["rope_scaling"] == {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 128,
    }
    mistral = config("window", extra={"llama.attention.sliding_window": 64})
    assert (mistral["model_type"], mistral["sliding_window"]) == ("mistral", 64)
    ones = np.ones(HIDDEN // HEADS // 2, np.float32)
    assert "rope_scaling" not in config("ones", tensors={"rope_freqs.weight": ones})


@pytest.mark.filterwarnings("ignore")
def test_llama3_scaling_is_recovered(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    theta = 500000.0
    config = LlamaConfig(
        hidden_size=HIDDEN,
        num_attention_heads=HEADS,
        rope_parameters={**scaling, "rope_theta": theta},
    )
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = theta ** -(np.arange(0, HIDDEN // HEADS, 2) / (HIDDEN // HEADS))
    factors = (plain / scaled.numpy()).astype(np.float32)
    path = _write(
        tmp_path / "m.gguf",
        _byte_level_tokens(),
        extra={"llama.rope.freq_base": theta},
        tensors={"rope_freqs.weight": factors},
    )
    written = json.loads((_convert(path) / "config.json").read_text())
    assert written["rope_scaling"] == scaling
    other = _write(
        tmp_path / "other.gguf",
        _byte_level_tokens(),
        tensors={"rope_freqs.weight": factors[::-1].copy()},
    )
    with pytest.raises(UnsupportedFeature, match="rope_freqs"):
        _convert(other)


ODD = np.ones((4, 4), np.float32)


@pytest.mark.parametrize(
    ("keywords", "match"),
    [
        ({"arch": "gemma"}, "gemma"),
        ({"extra": {"llama.expert_count": 8}}, "expert_count=8"),
        ({"extra": {"llama.rope.dimension_count": 8}}, "dimension_count=8"),
        ({"extra": {"llama.rope.scaling.type": "su", "llama.rope.scaling.factor": 2.0}}, "'su'"),
        ({"extra": {"split.count": 2}}, "several files"),
        ({"extra": {"tokenizer.ggml.pre": "odd"}}, "'odd'.*known are"),
        ({"arch": "qwen2", "extra": {"qwen2.attention.sliding_window": 8}}, "sliding_window=8"),
        ({"tensors": {"blk.0.odd.weight": ODD}}, "odd"),
        ({"tensors": {"blk.0.attn_q.bias": ODD[0]}}, "attn_q.bias"),
    ],
)
def test_what_is_not_supported_is_named(
    keywords: dict[str, Any], match: str, tmp_path: Path
) -> None:
    path = _write(tmp_path / "m.gguf", _byte_level_tokens(), **keywords)
    with pytest.raises(UnsupportedFeature, match=match):
        _convert(path)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    without: Any = {"blk.1.ffn_up.weight": None}
    path = _write(tmp_path / "m.gguf", _byte_level_tokens(), tensors=without)
    with pytest.raises(InvalidArgument, match=r"no tensor 'blk\.1\.ffn_up\.weight'"):
        _convert(path)


def test_unknown_tokenizers_and_broken_files(tmp_path: Path) -> None:
    tokens = {**_byte_level_tokens(), "model": "rwkv"}
    with pytest.raises(UnsupportedFeature, match="'rwkv'"):
        _convert(_write(tmp_path / "m.gguf", tokens))
    with pytest.raises(InvalidArgument, match="no tokenizer"):
        gguf_tokenizer.tokenizer_files({})
    (tmp_path / "text.gguf").write_bytes(b"not a model" * 10)
    with pytest.raises(InvalidArgument, match="not a readable GGUF"):
        _convert(tmp_path / "text.gguf")
    whole = (tmp_path / "m.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidArgument, match="not a readable GGUF"):
        _convert(tmp_path / "cut.gguf")
    (tmp_path / "empty.gguf").write_bytes(b"")
    with pytest.raises(InvalidArgument, match="not a readable GGUF"):
        _convert(tmp_path / "empty.gguf")


def _built_in() -> tuple[Path, Path]:
    """The built-in model's folder and the GGUF that it was made from."""
    folder = builtin_model.resolve_model().dir
    assert folder is not None
    return folder, Path(json.loads((folder / "complete.json").read_text())["source"])


@pytest.mark.model
@pytest.mark.filterwarnings("ignore")
def test_the_built_in_tokenizer_equals_transformers_conversion() -> None:
    transformers = pytest.importorskip("transformers")
    folder, source = _built_in()
    ours = Tokenizer.from_dir(folder)
    converted = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = transformers.AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    more = ["def f(x):\n\treturn x\n", "<|im_start|>user\nhi<|im_end|>", "日本語 it's"]
    for text in [*TEXTS, *more]:
        assert ours.encode(text) == theirs(text).input_ids == converted(text).input_ids
    # transformers' conversion does not split digits, as this model's own tokenizer does.
    assert ours.encode("  123") == converted("  123").input_ids
    assert len(ours.encode("123")) == 3
    assert ours.eos_ids == (ours.special_id("<|im_end|>"),)
    assert not ours.adds_bos
    messages = [{"role": "user", "content": "hi <b>"}]
    assert ours.render_chat(messages, True) == converted.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )


@pytest.mark.full
@pytest.mark.model
@pytest.mark.filterwarnings("ignore")
def test_the_built_in_weights_equal_transformers_conversion() -> None:
    pytest.importorskip("transformers")
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    folder, source = _built_in()
    with torch.device("meta"):
        config = AutoConfig.from_pretrained(source.parent, gguf_file=source.name)
        model = AutoModelForCausalLM.from_config(config)
    expected = load_gguf_checkpoint(str(source), return_tensors=True, model_to_load=model)
    weights = load_file(folder / "model.safetensors")
    assert weights.keys() == expected["tensors"].keys()
    for name, tensor in expected["tensors"].items():
        assert np.array_equal(weights[name], tensor.numpy()), name
