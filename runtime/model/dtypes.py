"""Which dtype a model runs in, when the user leaves it to us."""

from __future__ import annotations

import torch

from ramet.runtime.errors import InvalidArgument
from ramet.runtime.model.spec import ModelSpec

DTYPES = {
    "int8": torch.int8,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
}


def resolve_dtype(name: str, device: str | torch.device, spec: ModelSpec) -> torch.dtype:
    """The dtype that `name` stands for on `device`; "auto" is the fastest that serves the model.

    On a CPU that is bfloat16 where the processor multiplies it itself, and float32 elsewhere: an
    emulated bfloat16 matrix product was measured at a fifth of float32's speed. On a GPU it is the
    half precision that the config names, else bfloat16. A model that names float64 keeps it.
    Raises InvalidArgument for an unknown name.
    """
    if name in DTYPES:
        return DTYPES[name]
    if name != "auto":
        raise InvalidArgument(f"dtype={name!r}: must be auto or one of {', '.join(DTYPES)}")
    if spec.dtype == "float64":
        return torch.float64
    if torch.device(device).type == "cpu":
        return torch.bfloat16 if _cpu_multiplies_bfloat16() else torch.float32
    return torch.float16 if spec.dtype == "float16" else torch.bfloat16


def _cpu_multiplies_bfloat16() -> bool:
    """Whether the processor has bfloat16 dot products (AVX-512 BF16, AMX, or ARM's)."""
    has = torch.cpu.get_capabilities()
    return any(bool(has.get(name)) for name in ("avx512_bf16", "amx_bf16", "bf16", "arm_bf16"))
