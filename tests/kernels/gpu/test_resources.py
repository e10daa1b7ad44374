"""Every kernel, with every configuration in use, is compiled for every architecture without a GPU,
by a process of its own, where the interpreter is off; what it takes is within what there is.

Bounds: shared memory that one program may have (A100 163 KiB, but 99 KiB on the other 8.x; H100
227 KiB; MI300 64 KiB); 255 registers, 512 on AMD; and next to nothing spilled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="the GPU's kernels need triton")

SHARED = {"sm_80": 99 * 1024, "sm_90": 227 * 1024, "gfx942": 64 * 1024}
REGISTERS = {"sm_80": 255, "sm_90": 255, "gfx942": 512}
SPILLED = {"sm_80": 16, "sm_90": 0, "gfx942": 0}
"""Bytes for each thread."""


@pytest.mark.parametrize("arch", list(SHARED))
def test_all_variants_compile_and_fit(arch):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "ramet.kernels.gpu.resources", arch],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = {one["label"].split()[0] for one in found}
    assert kinds == {
        "attend",
        "merge",
        "rms_norm",
        "rope_write",
        "silu_mul",
        "bitmask",
        "draw_ban",
        "draw_scan",
        "draw_weigh",
        "draw_rank",
        "draw_pick",
    }
    for one in found:
        assert one["shared"] <= SHARED[arch], one
        assert one["registers"] <= REGISTERS[arch], one
        assert one["spilled"] <= SPILLED[arch], one
        if one["label"].startswith("attend") and " x16 " in one["label"] and arch != "gfx942":
            # Three such programs, of 4 warps, in the 65,536 registers of a processor.
            assert one["registers"] <= 168, one
