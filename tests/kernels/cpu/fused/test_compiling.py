"""Kernels compiled ahead of time, by two processes together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Compiles everything, and says what had to be compiled.
COMPILE = """
import gc, sys
from pathlib import Path
from ramet.kernels import ops
from ramet.kernels.cpu.fused import code_files
save, saved = code_files.CodeFiles.save, []
def count(self, key, data):
    saved.append(key[0])
    save(self, key, data)
code_files.CodeFiles.save = count
assert ops.prepare(Path(sys.argv[1])) is None
tried = set(saved)
ops.compile_all()
assert gc.isenabled()
print(*sorted(name for name in saved if name not in tried))
"""

# Runs a model as the engine does: prompts, greedy and drawn tokens, every kind of filter.
RUN = """
import sys
from ramet.runtime.runtime import Runtime
with Runtime("tiny", isolation="thread", pool_tokens=256, dtype="int8") as runtime:
    for settings in ({"temperature": 0}, {"temperature": 1}, {"top_k": 5, "top_p": 0.5}):
        runtime.generate(["abc", "abd"], {"max_new_tokens": 3, **settings})
"""


def start(code: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, **environment},
        text=True,
        stdout=subprocess.PIPE,
    )


def printed(process: subprocess.Popen[str]) -> list[str]:
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    return out.split()


def test_each_part_is_compiled_once_and_nothing_is_left_to_compile(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    first, second = map(printed, [start(COMPILE, kernels) for _ in range(2)])
    assert first or second
    assert not set(first) & set(second)
    (folder,) = kernels.iterdir()
    files = {path: path.stat().st_mtime_ns for path in folder.glob("*.nbc")}
    assert printed(start(COMPILE, kernels)) == []
    assert printed(start(RUN, RAMET_CACHE=str(tmp_path))) == []
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*.nbc")} == files
