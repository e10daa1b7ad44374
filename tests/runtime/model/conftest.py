"""A hand-made tree over a pool with odd slots, and transformers as the oracle."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch


@dataclasses.dataclass(frozen=True)
class Items:
    slot_start: list[int]
    length: list[int]
    row_start: list[int]
    row_end: list[int]
    key_pos: list[int]


@dataclasses.dataclass(frozen=True)
class Batch:
    token_ids: list[int]
    positions: list[int]
    slots: list[int]
    items: Items


class Node:
    """Tokens on an edge, each with the slot that it was given."""

    def __init__(self, parent: Node | None, token_ids: list[int], slots: list[int]) -> None:
        self.parent = parent
        self.token_ids = token_ids
        self.slots = slots
        self.start: int = parent.end if parent else 0

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)

    def lineage(self) -> list[Node]:
        return [*(self.parent.lineage() if self.parent else []), self]

    def path(self) -> list[int]:
        return [token for node in self.lineage() for token in node.token_ids]

    def segments(self) -> Iterator[tuple[int, int, int]]:
        """(slot, length, key_pos) of each run of consecutive slots."""
        begin = 0
        for i in range(1, len(self.slots) + 1):
            if i == len(self.slots) or self.slots[i] != self.slots[i - 1] + 1:
                yield self.slots[begin], i - begin, self.start + begin
                begin = i


class Forest:
    """Hands out pages in random order and writes batches from explicit rows."""

    def __init__(self, num_slots: int, page_size: int = 4, seed: int = 0) -> None:
        pages = list(range(num_slots // page_size))
        random.Random(seed).shuffle(pages)
        self._free = [page * page_size + i for page in pages for i in range(page_size)]

    def grow(self, parent: Node | None, token_ids: list[int]) -> Node:
        slots = [self._free.pop(0) for _ in token_ids]
        return Node(parent, list(token_ids), slots)

    @staticmethod
    def batch(pieces: list[tuple[Node, int, int]]) -> Batch:
        """Rows are tokens `first..last-1` of each node, in the order given (depth-first)."""
        rows = [(node, i) for node, first, last in pieces for i in range(first, last)]
        items: list[tuple[int, int, int, int, int]] = []
        seen: dict[int, tuple[Node, int, int]] = {}
        for row, (node, _) in enumerate(rows):
            for above in node.lineage():
                known = seen.get(id(above))
                seen[id(above)] = (above, known[1] if known else row, row + 1)
        for above, first_row, last_row in seen.values():
            for slot, length, key_pos in above.segments():
                items.append((slot, length, first_row, last_row, key_pos))
        return Batch(
            [node.token_ids[i] for node, i in rows],
            [node.start + i for node, i in rows],
            [node.slots[i] for node, i in rows],
            Items(*([item[column] for item in items] for column in range(5))),
        )


@pytest.fixture
def forest() -> Callable[..., Forest]:
    return Forest


def _hf_model(config: dict[str, Any], weights: dict[str, torch.Tensor], dtype: torch.dtype) -> Any:
    """transformers' own model; in float64 its norms are lifted out of float32 as well."""
    from transformers import AutoConfig, AutoModelForCausalLM

    fields = {name: value for name, value in config.items() if name != "model_type"}
    hf_config = AutoConfig.for_model(config["model_type"], **fields)
    model = AutoModelForCausalLM.from_config(hf_config, attn_implementation="sdpa").to(dtype)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    if dtype == torch.float64:
        for module in model.modules():
            if type(module).__name__.endswith("RMSNorm"):
                module.forward = _wide_norm(module)
    return model.eval()


def _wide_norm(module: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    def forward(x: torch.Tensor) -> torch.Tensor:
        mean = x.pow(2).mean(-1, keepdim=True)
        return module.weight * x * torch.rsqrt(mean + module.variance_epsilon)

    return forward


@pytest.fixture
def hf_logits() -> Callable[..., torch.Tensor]:
    """Logits `[len(ids), vocab]` of a whole sequence by transformers."""

    def logits(
        config: dict[str, Any],
        weights: dict[str, torch.Tensor],
        dtype: torch.dtype,
        *sequences: list[int],
    ) -> list[torch.Tensor]:
        model = _hf_model(config, weights, dtype)
        with torch.no_grad():
            return [model(torch.tensor([ids])).logits[0] for ids in sequences]

    return logits


BASE: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

FAMILIES: dict[str, dict[str, Any]] = {
    "llama2": {**BASE, "model_type": "llama", "num_key_value_heads": 4, "rms_norm_eps": 1e-6},
    "llama3": {
        **BASE,
        "model_type": "llama",
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "linear": {
        **BASE,
        "model_type": "llama",
        "rope_theta": 10000.0,
        "rope_scaling": {"type": "linear", "factor": 4.0},
    },
    "yarn": {
        **BASE,
        "model_type": "llama",
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "yarn-mscale": {
        **BASE,
        "model_type": "llama",
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 5000.0,
            "factor": 4.0,
            "mscale": 0.7,
            "mscale_all_dim": 0.3,
            "beta_fast": 16,
            "beta_slow": 2,
            "truncate": False,
            "original_max_position_embeddings": 32,
        },
    },
    "smollm2": {
        **BASE,
        "model_type": "llama",
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "hidden_size": 72,
        "rope_theta": 100000,
        "tie_word_embeddings": True,
    },
    "mistral": {**BASE, "model_type": "mistral", "sliding_window": 9, "head_dim": 12},
    "mistral-full": {**BASE, "model_type": "mistral", "sliding_window": None},
    "qwen2": {**BASE, "model_type": "qwen2", "rope_theta": 1000000.0, "tie_word_embeddings": True},
    "qwen2-sliding": {
        **BASE,
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 6,
        "max_window_layers": 1,
    },
    "qwen3": {**BASE, "model_type": "qwen3", "head_dim": 16, "rms_norm_eps": 1e-3},
    "qwen3-types": {
        **BASE,
        "model_type": "qwen3",
        "head_dim": 6,
        "use_sliding_window": True,
        "sliding_window": 5,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
}


@pytest.fixture(params=sorted(FAMILIES))
def family_config(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The config of one tiny random-weight model per family and variant."""
    return dict(FAMILIES[request.param])


@pytest.fixture
def family_configs() -> dict[str, dict[str, Any]]:
    return {name: dict(config) for name, config in FAMILIES.items()}
