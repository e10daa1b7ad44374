"""The fused decoder on processors with less, as far as the compiler is concerned."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from ramet.kernels.cpu import fused
from ramet.kernels.cpu.fused.jit import has
from ramet.runtime.config import cache_dir

HERE = Path(__file__).resolve()
ROOT = HERE.parents[3]
FILES = [HERE.parent / "test_fused.py"]
FILES += [
    ROOT / "tests/kernels/cpu/fused" / f"test_{name}.py"
    for name in ("linear", "tile", "inputs", "same_bits")
]
FORKS = ["1-1", "15-16", "64-1"]
CHOSEN = ["each_family", "prefill_chunk", *(f"(forks and {case})" for case in FORKS)]
CHOSEN += ["(same_to_the_bit and 1)", "(alone_or_in_a_batch and 3-None)"]
CHOSEN += ["beside_any_others", "test_integers", "fractions", "is_turned"]
CHOSEN += ["test_gated_products", "(test_products and 2)"]

PROCESSORS = {
    "no AVX-512": ("haswell", "+sse2,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+popcnt"),
    "nothing but x86-64": ("x86-64", "+sse2"),
}


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="not such a processor")
@pytest.mark.skipif(fused.why_not() is not None, reason="no kernels here")
@pytest.mark.parametrize("processor", PROCESSORS)
def test_on_a_lesser_processor(processor):
    name, features = PROCESSORS[processor]
    if name == "haswell" and not has("avx2"):
        pytest.skip("this processor has less itself")
    environment = {**os.environ, "NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}
    # Compiled once for all runs; the folder's files say for which processor they are.
    environment["RAMET_CACHE"] = str(cache_dir())
    say = "from ramet.kernels.cpu import fused; print(fused.why_not())"
    done = subprocess.run(
        [sys.executable, "-c", say], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "None"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", *map(str, FILES), "-k", " or ".join(CHOSEN)],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
