"""Configuration: frozen, built once, and the only reader of the environment."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from pathlib import Path

from ramet.runtime.errors import InvalidArgument
from ramet.runtime.request import MAX_INT, check_seed, shown

DTYPES = ("auto", "int8", "bfloat16", "float16", "float32", "float64")
POLICIES = ("program", "dfs", "lpm", "fcfs")
ISOLATIONS = ("process", "thread")


@dataclasses.dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """What a Runtime was asked to be; every field is checked when it is built.

    Raises InvalidArgument naming the field, its value and what is allowed.
    """

    model: str | None = None
    """A built-in name, a directory, a `.gguf` file or a hub id; None is the built-in model."""
    device: str = "auto"
    """"auto" or "cpu"; "cuda" or "cuda:N" once GPUs are supported."""
    dtype: str = "auto"
    """Of weights, activations and KV: "float32" and "float64" are exact, "bfloat16" and "float16"
    half precision; "int8" has int8 weights and bfloat16 K and V, on CPUs; "auto" is the fastest."""
    max_context: int | None = None
    """Longest path in tokens; None is the model's own limit, which it may not exceed."""
    pool_tokens: int | str = "auto"
    """KV slots, rounded down to whole pages; "auto" sizes them from free memory."""
    page_size: int = 16
    """Slots per page, the unit in which the pool is handed out."""
    chunk_tokens: int = 512
    """Most rows that one engine step computes."""
    max_running: int = 256
    """Most sequences that run at once."""
    policy: str = "program"
    """The order in which waiting work is admitted: "program", "dfs", "lpm" or "fcfs"."""
    max_overtakes: int | None = None
    """With policy "program": most prefill tokens of later arrivals that pass a waiting request of
    equal priority; None is four times the pool."""
    seed: int = 0
    """From which the seeds of unseeded programs derive."""
    isolation: str = "process"
    """Where the engine runs: in its own "process", or on a "thread" of this one."""
    target_step_ms: float | None = None
    """Milliseconds that a step in which somebody decodes is meant to take at most: pieces of
    prompts beside the decodes are sized by what steps take, from 16 rows to `chunk_tokens`. With
    nobody decoding, nobody waits, and a step takes `chunk_tokens`. None: it always does."""

    def __post_init__(self) -> None:
        if self.model is not None and (
            not isinstance(self.model, (str, os.PathLike)) or not str(self.model)
        ):
            raise InvalidArgument(f"model={shown(self.model)}: must be a name, a path or None")
        if self.model is not None:
            object.__setattr__(self, "model", os.fspath(self.model))
        kind, _, index = str(self.device).partition(":")
        if kind not in ("auto", "cpu", "cuda") or (
            index and (kind != "cuda" or not index.isdigit())
        ):
            raise InvalidArgument(
                f'device={shown(self.device)}: must be "auto", "cpu", "cuda" or "cuda:N"'
            )
        for name, allowed in (("dtype", DTYPES), ("policy", POLICIES), ("isolation", ISOLATIONS)):
            if getattr(self, name) not in allowed:
                raise InvalidArgument(
                    f"{name}={shown(getattr(self, name))}: must be one of {', '.join(allowed)}"
                )
        for name in ("page_size", "chunk_tokens", "max_running"):
            _positive(name, getattr(self, name))
        _positive_number("target_step_ms", self.target_step_ms)
        for name in ("max_overtakes", "max_context"):
            if getattr(self, name) is not None:
                _positive(name, getattr(self, name), "or None")
        if self.max_overtakes is not None and self.policy != "program":
            raise InvalidArgument(
                f'max_overtakes={self.max_overtakes}: only policy="program" has such a bound, '
                f"not {self.policy}"
            )
        if self.pool_tokens != "auto":
            _positive("pool_tokens", self.pool_tokens, 'or "auto"')
            if int(self.pool_tokens) < self.page_size:
                raise InvalidArgument(
                    f"pool_tokens={self.pool_tokens}: must be at least one page, "
                    f"page_size={self.page_size}"
                )
        if self.seed is None:
            raise InvalidArgument("seed=None: must be an int in [-2**63, 2**64)")
        check_seed("seed", self.seed)


def _positive(name: str, value: object, also: str = "") -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not 1 <= value <= MAX_INT:  # type: ignore[operator]
        raise InvalidArgument(
            f"{name}={shown(value)}: must be an int from 1 to {MAX_INT} {also}".rstrip()
        )


def _positive_number(name: str, value: object) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is not None and not (number and 0 < value <= MAX_INT):  # type: ignore[operator]
        raise InvalidArgument(
            f"{name}={shown(value)}: must be a number above 0, at most {MAX_INT}, or None"
        )


def cache_dir() -> Path:
    """The folder for converted models: `$RAMET_CACHE`, else the user's cache folder."""
    if own := os.environ.get("RAMET_CACHE"):
        return Path(own).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ramet"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "ramet" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ramet"


_WAIT_POLICY = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}


def worker_environment() -> dict[str, str]:
    """The environment of an engine process.

    OpenMP must not spin while it waits: on a machine whose cores are shared, spinning costs more
    than ten times a step. The variable only acts when it is set before the library loads.
    """
    return {**_WAIT_POLICY, "TOKENIZERS_PARALLELISM": "false", **os.environ}


def set_wait_policy() -> bool:
    """Set the same wait policy for an engine in this process; False if it is too late to act.

    It is too late once torch, which loads OpenMP, has been imported without it.
    """
    late = "torch" in sys.modules and "OMP_WAIT_POLICY" not in os.environ
    for name, value in _WAIT_POLICY.items():
        os.environ.setdefault(name, value)
    return not late


def openai_api_key() -> str | None:
    """`$OPENAI_API_KEY`, which only api.openai.com is sent."""
    return os.environ.get("OPENAI_API_KEY") or None


def auto_pool_tokens(
    free_bytes: int, bytes_per_token: int, max_context: int, page_size: int
) -> int:
    """KV slots for `pool_tokens="auto"`: a quarter of the free memory, at most 65,536 or the
    model's context, whichever is more, in whole pages."""
    wanted = max(65_536, max_context)
    slots = min(wanted, free_bytes // 4 // max(bytes_per_token, 1))
    return max(math.floor(slots / page_size), 1) * page_size
