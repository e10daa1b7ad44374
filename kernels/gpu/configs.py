"""What each architecture runs: block sizes, warps, stages. A table, nothing is tuned at start-up.

The numbers are chosen so that every kernel compiles nearly without spills in the shared memory that
each architecture has; which of them is fastest has not been measured on a device yet.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch

ARCHITECTURES = ("sm_80", "sm_90", "gfx942")

DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
"""The dtypes that kernels take, by the names that Triton's signatures have for them."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """One compiled form of a kernel: what `triton.compile` needs to know besides the target."""

    label: str
    kernel: Any
    signature: dict[str, str]
    """Types of the arguments that aren't constants, in Triton's words."""
    constants: dict[str, Any]
    num_warps: int
    num_stages: int
    aligned: tuple[str, ...]
    """Arguments that are multiples of 16, pointers among them, as Triton finds at a launch."""


@dataclasses.dataclass(frozen=True)
class Tile:
    """The size of one attention program."""

    lines: int
    """Query lines, each a row's query head of one KV head: at least 16, for the tensor cores."""
    keys: int
    """Keys of one step of its loop."""
    num_warps: int
    num_stages: int


_SMALL = {
    # By architecture and padded head size.
    ("sm_80", 64): Tile(16, 64, 4, 3),
    ("sm_80", 128): Tile(16, 32, 4, 3),
    ("sm_80", 256): Tile(16, 32, 8, 2),
    ("sm_90", 64): Tile(16, 64, 4, 3),
    ("sm_90", 128): Tile(16, 32, 4, 3),
    ("sm_90", 256): Tile(16, 32, 8, 2),
    ("gfx942", 64): Tile(16, 64, 4, 2),
    ("gfx942", 128): Tile(16, 32, 4, 1),
    ("gfx942", 256): Tile(16, 32, 4, 1),
}
_LARGE = {
    ("sm_80", 64): Tile(128, 64, 8, 2),
    ("sm_80", 128): Tile(128, 64, 8, 2),
    ("sm_80", 256): Tile(64, 32, 8, 2),
    ("sm_90", 64): Tile(128, 64, 8, 3),
    ("sm_90", 128): Tile(128, 64, 8, 2),
    ("sm_90", 256): Tile(128, 32, 8, 2),
    ("gfx942", 64): Tile(64, 64, 4, 2),
    ("gfx942", 128): Tile(64, 64, 4, 1),
    ("gfx942", 256): Tile(64, 32, 4, 1),
}
_FLOAT32 = {
    64: (Tile(16, 16, 4, 1), Tile(32, 16, 8, 1)),
    128: (Tile(16, 16, 8, 1), Tile(32, 16, 8, 1)),
    256: (Tile(16, 16, 8, 1), Tile(16, 16, 8, 1)),
}
"""By padded head size: float32 multiplies without tensor cores, for exactness, in tiles that fit
the registers."""


def tiles(arch: str, block_dim: int, dtype: torch.dtype) -> tuple[Tile, Tile]:
    """The attention tiles for few query lines and for many."""
    if dtype == torch.float32:
        return _FLOAT32[block_dim]
    return _SMALL[arch, block_dim], _LARGE[arch, block_dim]


def block_dim(head_dim: int) -> int:
    """The power of two, at least 64, that a head size is filled up to."""
    return max(64, power_of_two(head_dim))


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << max(number - 1, 0).bit_length()


@functools.lru_cache(maxsize=64)
def architecture(device: torch.device) -> str:
    """The line of the table for a device; the interpreter, on CPU tensors, has an A100's."""
    if device.type == "cpu":
        return "sm_80"
    if torch.version.hip:
        return "gfx942"
    return "sm_90" if torch.cuda.get_device_capability(device)[0] >= 9 else "sm_80"


@functools.lru_cache(maxsize=64)
def num_processors(device: torch.device) -> int:
    """How many programs a device runs at once, at the least."""
    if device.type == "cpu":
        return 4
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def check(what: str, good: bool, **tensors: torch.Tensor) -> None:
    """Raise ValueError, with the shapes of `tensors`, unless `good` and all are on one device."""
    devices = {tensor.device for tensor in tensors.values()}
    if good and len(devices) == 1:
        return
    shapes = ", ".join(
        f"{name} {tensor.dtype} {list(tensor.shape)} on {tensor.device}"
        for name, tensor in tensors.items()
    )
    raise ValueError(f"{what}: {shapes}")
