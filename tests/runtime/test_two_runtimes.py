"""Two engines in one process share its threads: both answer, and as they would alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import threading
import numba, numpy as np
import ramet.lang as rm

PROMPTS = [f"Number {i} of them all" for i in range(6)]
PARAMS = {"temperature": 0.8, "seed": 3, "max_new_tokens": 24, "ignore_eos": True}

@numba.njit(parallel=True)
def total(x):
    found = 0.0
    for i in numba.prange(x.shape[0]):
        found += x[i]
    return found

def ask(runtime, out):
    for prompt in PROMPTS:
        out.append(runtime.generate(prompt, PARAMS)["text"])

if __name__ == "__main__":
    with rm.Runtime(model="tiny", isolation="thread", pool_tokens=4096) as first, \\
            rm.Runtime(model="tiny", isolation="thread", pool_tokens=4096) as second:
        alone = []
        ask(first, alone)
        found = [[], [], []]
        threads = [
            threading.Thread(target=ask, args=(runtime, out))
            for runtime, out in zip((first, second, first), found)
        ]
        for thread in threads:
            thread.start()
        sums = {total(np.ones(100_000)) for _ in range(200)}  # The user's own kernels.
        for thread in threads:
            thread.join()
        assert found == [alone] * 3, (alone, found)
        assert sums == {100_000.0}
    print("done")
"""


@pytest.mark.parametrize("layer", [None, "workqueue"])
def test_two_runtimes_beside_the_users_own_kernels(tmp_path, monkeypatch, layer):
    if layer:
        monkeypatch.setenv("NUMBA_THREADING_LAYER", layer)
    script = tmp_path / "two.py"
    script.write_text(SCRIPT)
    ran = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=200, check=False
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "done"), ran.stderr[-3000:]
