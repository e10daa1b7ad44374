"""Models for the oracles, each loaded once, as transformers has it and as the engine has it."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from oracle import Greedy, ModelBench, Tally, hf_greedy

from ramet.kernels import ops
from ramet.runtime.cache.audit import audit_idle
from ramet.runtime.model.fused import decoder_shape
from ramet.runtime.model.runner import ModelRunner
from ramet.runtime.model.spec import ModelSpec
from ramet.runtime.model.tiny import tiny_config, tiny_weights
from ramet.runtime.model.weights import load_weights
from ramet.runtime.tokenizer import Tokenizer

_TALLIES: pytest.StashKey[dict[str, Tally]] = pytest.StashKey()

BASE: dict[str, Any] = {
    "vocab_size": 259,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": [258, 256],
    "pad_token_id": None,
}

FAMILIES: dict[str, dict[str, Any]] = {
    "llama2": {"model_type": "llama", "num_key_value_heads": 4, "rms_norm_eps": 1e-6},
    "llama3": {
        "model_type": "llama",
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "linear": {
        "model_type": "llama",
        "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
    },
    "yarn": {
        "model_type": "llama",
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "original_max_position_embeddings": 64,
        },
    },
    "smollm2": {
        "model_type": "llama",
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "hidden_size": 72,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    },
    "mistral": {"model_type": "mistral", "sliding_window": 21, "head_dim": 16},
    "qwen2": {
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 17,
        "max_window_layers": 1,
    },
    "qwen3": {"model_type": "qwen3", "head_dim": 16, "tie_word_embeddings": True},
}


@dataclasses.dataclass
class Pair:
    """One model twice: in transformers, and in a runner. Greedy references are kept."""

    name: str
    hf: Any
    runner: ModelRunner
    tokenizer: Tokenizer
    directory: Path
    references: dict[tuple[int, ...], Greedy] = dataclasses.field(default_factory=dict)

    def greedy(self, prompt: Sequence[int], count: int) -> Greedy:
        """transformers' greedy continuation; every call of one prompt asks for one `count`."""
        key = (count, *prompt)
        if key not in self.references:
            self.references[key] = hf_greedy(self.hf, prompt, count, self.tokenizer.eos_ids)
        return self.references[key]


def _shake(model: Any, seed: int) -> None:
    """Random weights that make attention depend on the context and spread the logits."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            draw = torch.randn(weight.shape, generator=source, dtype=torch.float64)
            if name.endswith("norm.weight"):
                weight.copy_(1 + 0.1 * draw)
            elif name.endswith("bias"):
                weight.copy_(0.2 * draw)
            else:
                scale = 2.5 if "embed_tokens" in name or "lm_head" in name else 1.2
                weight.copy_(draw * scale / weight.shape[1] ** 0.5)


def _load(directory: Path, dtype: torch.dtype, num_slots: int) -> tuple[ModelRunner, Any]:
    from transformers import AutoModelForCausalLM

    documents = [
        json.loads(path.read_text()) if path.exists() else None
        for path in (directory / "config.json", directory / "generation_config.json")
    ]
    spec = ModelSpec.from_config(*documents)
    weights = load_weights(directory, spec, dtype, "cpu")
    runner = ModelRunner(spec, weights, num_slots=num_slots, dtype=dtype, device="cpu")
    return runner, AutoModelForCausalLM.from_pretrained(directory, dtype=dtype).eval()


@pytest.fixture(scope="session")
def families(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """A tiny random-weight model of a family, in float64, through a directory that transformers
    wrote."""
    made: dict[str, Pair] = {}

    def family(name: str) -> Pair:
        if name not in made:
            from transformers import AutoConfig, AutoModelForCausalLM

            config = AutoConfig.for_model(**{**BASE, **FAMILIES[name]})
            model = AutoModelForCausalLM.from_config(config).to(torch.float64)
            _shake(model, seed=sorted(FAMILIES).index(name))
            directory = tmp_path_factory.mktemp(name)
            model.save_pretrained(directory)
            runner, hf = _load(directory, torch.float64, num_slots=1 << 14)
            made[name] = Pair(name, hf, runner, Tokenizer.tiny(), directory)
        return made[name]

    return family


@pytest.fixture(scope="session")
def builtin() -> Pair:
    """The built-in model in float32."""
    from ramet.runtime.builtin_model import resolve_model

    directory = resolve_model("smollm2-135m").dir
    assert directory is not None
    runner, hf = _load(directory, torch.float32, num_slots=20_480)
    return Pair("smollm2-135m", hf, runner, Tokenizer.from_dir(directory), directory)


@pytest.fixture(scope="session")
def tiny() -> Pair:
    """The model `tiny` in float64, here and in transformers, whose norms are lifted to float64."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = tiny_config()
    spec = ModelSpec.from_config(config)
    weights = tiny_weights(spec, torch.float64)
    runner = ModelRunner(spec, weights, num_slots=1 << 14, dtype=torch.float64, device="cpu")
    hf = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config)).to(torch.float64)
    hf.load_state_dict(weights)
    for module in hf.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = _wide_norm(module)
    return Pair("tiny", hf.eval(), runner, Tokenizer.tiny(), Path())


def _fused(spec: ModelSpec, weights: Any) -> ModelRunner:
    """The model in int8, where that can be computed."""
    if reason := ops.why_no_decoder(decoder_shape(spec), torch.device("cpu")):
        pytest.skip(f"no int8 on this machine: {reason}")
    return ModelRunner(spec, weights, num_slots=1 << 14, dtype=torch.int8, device="cpu")


@pytest.fixture(scope="session")
def tiny_int8(tiny: Pair) -> Pair:
    """The model `tiny` in int8."""
    spec = ModelSpec.from_config(tiny_config())
    return dataclasses.replace(tiny, runner=_fused(spec, tiny_weights(spec, torch.float32)))


@pytest.fixture(scope="session")
def builtin_int8(builtin: Pair) -> Pair:
    """The built-in model in int8."""
    spec = ModelSpec.from_config(json.loads((builtin.directory / "config.json").read_text()))
    weights = load_weights(builtin.directory, spec, torch.float32, "cpu")
    return dataclasses.replace(builtin, runner=_fused(spec, weights))


def _wide_norm(module: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    def forward(x: torch.Tensor) -> torch.Tensor:
        mean = x.pow(2).mean(-1, keepdim=True)
        return module.weight * x * torch.rsqrt(mean + module.variance_epsilon)

    return forward


@pytest.fixture
def bench() -> Iterator[Callable[..., ModelBench]]:
    """Builds benches over a `Pair`; at the end all are idle, audited and hold nothing."""
    made: list[ModelBench] = []

    def build(pair: Pair, **options: Any) -> ModelBench:
        made.append(ModelBench(pair.runner, pair.tokenizer, **options))
        return made[-1]

    yield build
    for one in made:
        one.run()
        audit_idle(one.engine.room.tree)
        stats = one.engine.stats()
        assert stats["held_tokens"] == stats["running"] == stats["waiting"] == 0
        assert stats["free_tokens"] + stats["cached_pool_tokens"] == stats["pool_tokens"]
        assert stats["computed_tokens"] == (
            stats["edge_tokens"] + stats["decode_tokens"] + stats["recomputed_tokens"]
        )


@pytest.fixture(scope="session")
def byte_prompts() -> list[list[int]]:
    """Thirty prompts of 1-150 byte tokens in no order of length; some share their beginnings."""
    source = random.Random(11)
    lengths = [61, 3, 95, 24, 1, 40, *(source.randrange(1, 151) for _ in range(24))]
    prompts: list[list[int]] = []
    for index, length in enumerate(lengths):
        shared = prompts[index - 3][: length // 2] if index % 4 == 3 else []
        prompts.append([*shared, *(source.randrange(256) for _ in range(length - len(shared)))])
    return prompts


_WHO = ("The old gardener", "A young doctor", "My neighbour", "The night train", "Nobody in town")
_DID = ("remembered", "carried", "repaired", "had never seen", "quietly followed", "painted")
_WHAT = ("the blue lantern", "a map of the river", "seven letters", "the broken clock", "her song")
_WHEN = ("before the rain came", "in the summer of 1923", "while the others slept", "at noon")


def _story(seed: int, sentences: int) -> str:
    source = random.Random(seed)
    parts = (_WHO, _DID, _WHAT, _WHEN)
    return " ".join(" ".join(source.choice(part) for part in parts) + "." for _ in range(sentences))


@pytest.fixture(scope="session")
def text_prompts(builtin: Pair) -> list[list[int]]:
    """Thirty English prompts of 5-900 tokens of the built-in model, in no order of length; every
    fifth shares its beginning with the one before."""
    lengths = [130, 5, 900, 17, 310, 48, 8, 60, 25, 65, 450, 90, 12, 40, 160, 33, 240, 6, 70, 75]
    lengths += [120, 20, 110, 28, 9, 180, 55, 220, 14, 100]
    prompts: list[list[int]] = []
    for index, length in enumerate(lengths):
        ids = builtin.tokenizer.encode(_story(index, 80))[:length]
        if index % 5 == 4:
            shared = prompts[-1][: length // 2]
            ids = [*shared, *ids[len(shared) :]]
        prompts.append(ids)
    assert [len(ids) for ids in prompts] == lengths
    return prompts


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """Counts what a parity test compares; added up per model and shown at the end of the run."""
    mine = Tally()
    yield mine
    name = request.node.name.partition("[")[0]
    request.config.stash.setdefault(_TALLIES, {}).setdefault(name, Tally()).add(mine)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for name, found in config.stash.get(_TALLIES, {}).items():
        terminalreporter.write_line(f"{name}: {found}")
