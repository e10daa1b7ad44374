"""From a RuntimeConfig to a running Engine: finds the model, loads it, sizes the pool."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import threading
from pathlib import Path
from typing import Any

import torch

from ramet.kernels import ops
from ramet.runtime.builtin_model import resolve_model
from ramet.runtime.config import RuntimeConfig, auto_pool_tokens
from ramet.runtime.engine import Engine
from ramet.runtime.errors import InvalidArgument, UnsupportedFeature
from ramet.runtime.first_start import kernels_folder
from ramet.runtime.grammar.vocabulary import vocabulary_of
from ramet.runtime.model.dtypes import resolve_dtype
from ramet.runtime.model.fused import decoder_shape
from ramet.runtime.model.runner import ModelRunner
from ramet.runtime.model.spec import ModelSpec
from ramet.runtime.model.tiny import tiny_config, tiny_weights
from ramet.runtime.model.weights import load_weights
from ramet.runtime.source.progress import say
from ramet.runtime.tokenizer import Tokenizer


def build_engine(config: RuntimeConfig) -> Engine:
    """Load the configured model and compose an engine around it.

    Raises RametError: InvalidArgument for a model, size or device that can't be,
    UnsupportedFeature for one that ramet doesn't run, BackendError when fetching fails.
    """
    device = _device(config.device)
    if device.type == "cpu":
        _prepare_kernels()
    found = resolve_model(config.model)
    if found.dir is None:
        tokenizer = Tokenizer.tiny()
        spec = ModelSpec.from_config(tiny_config(tokenizer.vocab_size))
    else:
        tokenizer = Tokenizer.from_dir(found.dir)
        spec = _read_spec(found.dir)
    _check(config, found.name, tokenizer, spec)
    max_context = config.max_context or spec.max_context
    dtype = _dtype(config, device, spec)
    pool_tokens = _pool_tokens(config, spec, dtype, max_context)
    if found.dir is not None:
        _warm_up(tokenizer, spec.vocab_size)
    stored = None if dtype == torch.int8 else dtype
    weights = (
        tiny_weights(spec, dtype=stored or torch.float32, device=device)
        if found.dir is None
        else load_weights(found.dir, spec, stored, device)
    )
    runner = ModelRunner(spec, weights, num_slots=pool_tokens, dtype=dtype, device=device)
    info: dict[str, Any] = {
        "model": found.name,
        "dir": None if found.dir is None else str(found.dir),
        "vocab_size": spec.vocab_size,
        "max_context": max_context,
        "pool_tokens": pool_tokens,
        "page_size": config.page_size,
        "chunk_tokens": config.chunk_tokens,
        "target_step_ms": config.target_step_ms,
        "dtype": str(dtype).removeprefix("torch."),
        "device": str(device),
        "eos_ids": list(tokenizer.eos_ids),
    }
    return Engine(
        runner,
        tokenizer,
        pool_tokens=pool_tokens,
        page_size=config.page_size,
        chunk_tokens=config.chunk_tokens,
        target_step_ms=config.target_step_ms,
        max_running=config.max_running,
        policy=config.policy,
        max_overtakes=config.max_overtakes,
        max_context=max_context,
        info=info,
    )


def _prepare_kernels() -> None:
    """Have compiled kernels kept; says so where they can't be."""
    folder = kernels_folder()
    if ops.prepare(folder) is None and not ops.keeps_code():
        _say_not_kept(folder)


@functools.cache
def _say_not_kept(folder: Path) -> None:
    """Once is enough for a process."""
    say(
        f"the folder {folder} can't be written, so each start compiles the kernels for this CPU "
        "again, which takes some ten seconds; make it writable, or name another folder in the "
        "environment variable RAMET_CACHE"
    )


def _dtype(config: RuntimeConfig, device: torch.device, spec: ModelSpec) -> torch.dtype:
    """The configured dtype; says so where the fast one can't be had."""
    reason = None
    if config.dtype in ("auto", "int8"):
        reason = ops.why_no_decoder(decoder_shape(spec), device)
    dtype = resolve_dtype(config.dtype, device, spec, reason)
    if config.dtype == "auto" and device.type == "cpu" and dtype != torch.int8 and reason:
        name = str(dtype).removeprefix("torch.")
        say(f"the fast kernels for this CPU can't be used, so it runs in {name}: {reason}")
    return dtype


def _warm_up(tokenizer: Tokenizer, vocab_size: int) -> None:
    """Prepare what constraints need, beside the loading of the weights: later it would hold up a
    step."""
    if importlib.util.find_spec("llguidance") is not None:
        prepare = vocabulary_of(tokenizer, vocab_size).prepare
        threading.Thread(target=prepare, name="ramet-vocabulary", daemon=True).start()


def _check(config: RuntimeConfig, name: str, tokenizer: Tokenizer, spec: ModelSpec) -> None:
    """Raise InvalidArgument where the model, its tokenizer and the configuration don't fit."""
    if tokenizer.vocab_size > spec.vocab_size:
        raise InvalidArgument(
            f"model={name!r}: its tokenizer has {tokenizer.vocab_size} tokens, its "
            f"embedding only {spec.vocab_size}"
        )
    for role, token in [("eos_token_id", t) for t in tokenizer.eos_ids] + [
        ("bos_token_id", tokenizer.bos_id)
    ]:
        if token is not None and not 0 <= token < spec.vocab_size:
            raise InvalidArgument(
                f"model={name!r}: its {role} {token} is outside its {spec.vocab_size} tokens"
            )
    if config.max_context is not None and config.max_context > spec.max_context:
        raise InvalidArgument(
            f"max_context={config.max_context}: the model's own limit is {spec.max_context}"
        )


def _device(name: str) -> torch.device:
    """The torch device; "auto" is the CPU until the GPU engine is built."""
    if name == "auto":
        return torch.device("cpu")
    if name.startswith("cuda"):
        raise UnsupportedFeature(f"device={name!r}: only the CPU is supported in this version")
    return torch.device(name)


def _read_spec(directory: Path) -> ModelSpec:
    config = json.loads((directory / "config.json").read_text())
    generation = directory / "generation_config.json"
    return ModelSpec.from_config(
        config, json.loads(generation.read_text()) if generation.exists() else None
    )


def _pool_tokens(
    config: RuntimeConfig, spec: ModelSpec, dtype: torch.dtype, max_context: int
) -> int:
    """The pool's slots, in whole pages; raises InvalidArgument if memory can't hold them."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    per_token = ModelRunner.bytes_per_token(spec, dtype)
    if config.pool_tokens == "auto":
        tokens = auto_pool_tokens(free, per_token, max_context, config.page_size)
    else:
        tokens = int(config.pool_tokens) // config.page_size * config.page_size
    if tokens * per_token > free:
        raise InvalidArgument(
            f"pool_tokens={config.pool_tokens}, page_size={config.page_size}: {tokens} slots take "
            f"{tokens * per_token:,} bytes, and {free:,} are free"
        )
    return tokens
