"""A Runtime whose model follows a script, over a vocabulary made to measure.

The engine, the channel and the client are the real ones; only the model's arithmetic is replaced.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from scripted_engine import ScriptedRunner, hashed

from ramet.runtime.chat_template import CHATML
from ramet.runtime.client.transport import ThreadTransport
from ramet.runtime.config import RuntimeConfig
from ramet.runtime.engine import Engine
from ramet.runtime.runtime import Runtime
from ramet.runtime.tokenizer import Tokenizer
from ramet.runtime.tokenizer_json import byte_spelling

TokenPath = tuple[int, ...]
SPECIALS = ("<s>", "</s>", "<|im_start|>", "<|im_end|>")
Likes = Callable[[TokenPath], Mapping[int, float]]
"""From a path to the log-probabilities of some next tokens; the others share what is left."""


def words(
    folder: Path, tokens: Sequence[str] = (), *, bos: bool = False, template: str = CHATML
) -> Path:
    """A model folder with a byte-level vocabulary: 256 bytes, then `tokens`, then `SPECIALS`.

    A run of letters, digits or other signs that is one of `tokens` is encoded as it.
    """
    spelling = byte_spelling()
    spelled = ["".join(spelling[byte] for byte in token.encode()) for token in tokens]
    vocab = {text: i for i, text in enumerate([*(spelling[b] for b in range(256)), *spelled])}
    assert len(vocab) == 256 + len(tokens), "a token is there twice"
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    model = {"type": "BPE", "vocab": vocab, "merges": [], "ignore_merges": True}
    decoder = {**byte_level, "use_regex": True}
    _write(folder, model, None, {**byte_level, "use_regex": True}, decoder, bos, template)
    return folder


def sentencepiece(folder: Path, pieces: Sequence[str], *, bos: bool = True) -> Path:
    """A model folder with a vocabulary of sentencepiece's kind: bytes, `pieces`, `SPECIALS`."""
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)}
    vocab |= {piece: 256 + i for i, piece in enumerate(pieces)}
    model = {
        "type": "BPE",
        "vocab": vocab,
        "merges": [],
        "byte_fallback": True,
        "ignore_merges": True,
    }
    before = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}
    steps: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    decoder = {"type": "Sequence", "decoders": steps}
    _write(folder, model, None, before, decoder, bos, CHATML)
    return folder


def scripted_runtime(
    likes: Callable[[Tokenizer], Likes], folder: Path | None = None, **settings: Any
) -> Runtime:
    """A Runtime over the vocabulary of `folder` (or `tiny`'s), whose model likes what `likes` says.

    `settings` are the Engine's; the pool is a toy one unless they say otherwise.
    """
    tokenizer = Tokenizer.tiny() if folder is None else Tokenizer.from_dir(folder)
    liked = likes(tokenizer)
    sizes = {"pool_tokens": 4096, "page_size": 4, "chunk_tokens": 64, "max_context": 2048}

    def script(path: TokenPath) -> torch.Tensor:
        return distribution(tokenizer.vocab_size, liked(path))

    def build(config: RuntimeConfig) -> Engine:
        info = {
            "model": "scripted",
            "dir": None if folder is None else str(folder),
            "vocab_size": tokenizer.vocab_size,
            "max_context": {**sizes, **settings}["max_context"],
            "device": "cpu",
        }
        runner = ScriptedRunner(tokenizer.vocab_size, script)
        return Engine(runner, tokenizer, info=info, **{**sizes, **settings})

    config = RuntimeConfig(model="tiny", isolation="thread")
    return Runtime.over(config, ThreadTransport(config, build))


def distribution(vocab_size: int, liked: Mapping[int, float]) -> torch.Tensor:
    """Normalised log-probabilities: those of `liked` as given, the rest spread evenly."""
    rest = max(1.0 - sum(math.exp(value) for value in liked.values()), 1e-12)
    other = math.log(rest / max(vocab_size - len(liked), 1))
    logits = torch.full((vocab_size,), other, dtype=torch.float64)
    for token, value in liked.items():
        logits[token] = value
    return logits


def id_of(tokenizer: Tokenizer, text: str) -> int:
    """The id of the token that is written `text`, special or not."""
    special = tokenizer.special_id(text)
    if special is not None:
        return special
    data = text.encode()
    return next(i for i in range(tokenizer.vocab_size) if tokenizer.token_bytes(i) == data)


def writes(
    answers: Mapping[str, Sequence[str]], default: Sequence[str] = ()
) -> Callable[[Tokenizer], Likes]:
    """A model that continues a path ending in a key of `answers` with its tokens, then ends.

    A longer key goes before a shorter one; any other path is continued with `default`'s tokens.
    """
    keys = sorted([*answers, ""], key=len, reverse=True)

    def bind(tokenizer: Tokenizer) -> Likes:
        end = tokenizer.eos_ids[0]

        def likes(path: TokenPath) -> dict[int, float]:
            text = b"".join(
                tokenizer.token_bytes(i) or tokenizer.special_text(i).encode() for i in path
            )
            for key in keys:
                tokens = answers.get(key, default)
                for count in range(len(tokens), -1, -1):
                    if text.endswith((key + "".join(tokens[:count])).encode()):
                        more = id_of(tokenizer, tokens[count]) if count < len(tokens) else end
                        return {more: math.log(0.9)}
            raise AssertionError("the empty key matches everything")

        return likes

    return bind


def leans(table: Mapping[str, Mapping[str, float]]) -> Callable[[Tokenizer], Likes]:
    """A model that likes, behind a path ending in a key of `table`, tokens at log-probabilities."""
    keys = sorted(table, key=len, reverse=True)

    def bind(tokenizer: Tokenizer) -> Likes:
        known = {
            key.encode(): {id_of(tokenizer, text): value for text, value in table[key].items()}
            for key in keys
        }

        def likes(path: TokenPath) -> Mapping[int, float]:
            text = b"".join(tokenizer.token_bytes(i) for i in path)
            return next((liked for key, liked in known.items() if text.endswith(key)), {})

        return likes

    return bind


def random_model(tokenizer: Tokenizer) -> Likes:
    """Log-probabilities of every token that depend on the whole path."""
    script = hashed(tokenizer.vocab_size)

    def likes(path: TokenPath) -> dict[int, float]:
        values = torch.log_softmax(script(path), dim=0).tolist()
        return dict(enumerate(values))

    return likes


class Starter:
    """Starts scripted Runtimes and keeps them."""

    def __init__(self) -> None:
        self.runtimes: list[Runtime] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Runtime:
        self.runtimes.append(scripted_runtime(*args, **kwargs))
        return self.runtimes[-1]


@pytest.fixture
def start() -> Iterator[Starter]:
    """Starts scripted Runtimes; afterwards each must be idle and serve the next request."""
    starter = Starter()
    yield starter
    for runtime in starter.runtimes:
        with runtime:
            assert runtime.generate("ping", {"max_tokens": 1})
            idle(runtime)


def idle(runtime: Runtime) -> dict[str, float]:
    """The runtime's stats, after asserting that nothing is left of any program."""
    stats = runtime.stats()
    left = {name: stats[name] for name in ("held_tokens", "running", "waiting", "contexts")}
    assert left == dict.fromkeys(left, 0)
    assert stats["free_tokens"] + stats["cached_pool_tokens"] == stats["pool_tokens"]
    return stats


def _write(
    folder: Path,
    model: dict[str, Any],
    normalizer: dict[str, Any] | None,
    before: dict[str, Any],
    decoder: dict[str, Any],
    bos: bool,
    template: str,
) -> None:
    first = len(model["vocab"])
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [
        {"id": first + i, "content": text, "special": True, **flags}
        for i, text in enumerate(SPECIALS)
    ]
    sequence: dict[str, Any] = {"Sequence": {"id": "A", "type_id": 0}}
    opening: dict[str, Any] = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    after = {
        "type": "TemplateProcessing",
        "single": [opening, sequence],
        "pair": [opening, sequence, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [first], "tokens": ["<s>"]}},
    }
    document = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": before,
        "post_processor": after if bos else None,
        "decoder": decoder,
        "model": model,
    }
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "eos_token": "</s>",
        "chat_template": template,
        **({"bos_token": "<s>"} if bos else {}),
    }
    ends = {"eos_token_id": [first + 1, first + 3]}
    for name, content in (
        ("tokenizer.json", document),
        ("tokenizer_config.json", settings),
        ("config.json", {"model_type": "llama", **ends}),
    ):
        (folder / name).write_text(json.dumps(content))
