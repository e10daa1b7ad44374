"""What compiled kernels take of a device: every variant, ahead of time, on a machine without one.

`python -m ramet.kernels.gpu.resources sm_90` prints a line of JSON for each variant. Registers and
stack are read by the `cuobjdump` that Triton brings along, AMD's figures from the assembly.
"""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ramet.kernels.gpu import (
    bitmask,
    draw,
    rms_norm,
    rope_write,
    silu_mul,
    tree_attention,
)
from ramet.kernels.gpu.configs import Variant

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}


@dataclasses.dataclass(frozen=True)
class Resources:
    """What one variant takes."""

    label: str
    registers: int
    """Vector registers of a thread."""
    shared: int
    """Bytes of a program."""
    spilled: int
    """Bytes of a thread's stack, or of its spilled vector registers on AMD."""


def all_variants(arch: str) -> Iterator[Variant]:
    """What all files launch on an architecture."""
    for file in (bitmask, draw, rms_norm, rope_write, silu_mul, tree_attention):
        yield from file.variants(arch)


def compiled(variant: Variant, arch: str) -> Any:
    """Triton's compiled kernel."""
    names = variant.kernel.arg_names
    signature = {name: variant.signature.get(name, "constexpr") for name in names}
    aligned = [(number,) for number, name in enumerate(names) if name in variant.aligned]
    source = ASTSource(
        variant.kernel,
        signature,
        variant.constants,
        {place: [["tt.divisibility", 16]] for place in aligned},
    )
    options = {"num_warps": variant.num_warps, "num_stages": variant.num_stages}
    return triton.compile(source, target=TARGETS[arch], options=options)


def resources(variant: Variant, arch: str) -> Resources:
    """Compile a variant and read what it takes."""
    kernel = compiled(variant, arch)
    if TARGETS[arch].backend == "hip":
        text = kernel.asm["amdgcn"]
        return Resources(
            variant.label,
            _number(r"\.vgpr_count:\s*(\d+)", text),
            kernel.metadata.shared,
            4 * _number(r"\.vgpr_spill_count:\s*(\d+)", text),
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(kernel.asm["cubin"])
        tool = triton.knobs.nvidia.cuobjdump.path
        text = subprocess.run(
            [tool, "--dump-resource-usage", str(file)], capture_output=True, text=True, check=True
        ).stdout
    stack = _number(r"STACK:(\d+)", text) + _number(r"LOCAL:(\d+)", text)
    return Resources(variant.label, _number(r"REG:(\d+)", text), kernel.metadata.shared, stack)


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise ValueError(f"no {pattern!r} in what the compiler says")
    return int(found.group(1))


def main(archs: Sequence[str]) -> None:
    """Print what every variant takes, line by line."""
    for arch in archs or list(TARGETS):
        for variant in all_variants(arch):
            print(json.dumps(dataclasses.asdict(resources(variant, arch))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
