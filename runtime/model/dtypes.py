"""Which dtype a model runs in, when the user leaves it to us."""

from __future__ import annotations

import torch

from ramet.runtime.errors import InvalidArgument, UnsupportedFeature
from ramet.runtime.model.spec import ModelSpec

DTYPES = {
    "int8": torch.int8,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
}


def resolve_dtype(
    name: str, device: str | torch.device, spec: ModelSpec, why_not_int8: str | None
) -> torch.dtype:
    """The dtype that `name` stands for on `device`; "auto" is the fastest that serves the model.

    On a CPU that is int8 (weights; K and V are bfloat16) unless `why_not_int8` says why that can't
    be. Without it, it is bfloat16 where the processor multiplies it itself, and float32 elsewhere:
    an emulated bfloat16 matrix product was measured at a fifth of float32's speed. On a GPU it is
    the half precision that the config names, else bfloat16. A model that names float64 keeps it.
    Raises InvalidArgument for an unknown name, UnsupportedFeature for "int8" where it can't be.
    """
    if name == "int8" and why_not_int8:
        raise UnsupportedFeature(f'dtype="int8": {why_not_int8}')
    if name in DTYPES:
        return DTYPES[name]
    if name != "auto":
        raise InvalidArgument(f"dtype={name!r}: must be auto or one of {', '.join(DTYPES)}")
    if spec.dtype == "float64":
        return torch.float64
    if torch.device(device).type == "cpu":
        if why_not_int8 is None:
            return torch.int8
        return torch.bfloat16 if _cpu_multiplies_bfloat16() else torch.float32
    return torch.float16 if spec.dtype == "float16" else torch.bfloat16


def _cpu_multiplies_bfloat16() -> bool:
    """Whether the processor has bfloat16 dot products (AVX-512 BF16, AMX, or ARM's)."""
    has = torch.cpu.get_capabilities()
    return any(bool(has.get(name)) for name in ("avx512_bf16", "amx_bf16", "bf16", "arm_bf16"))
