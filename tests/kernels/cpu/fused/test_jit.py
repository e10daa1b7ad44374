"""Where compiled code is kept, whatever happens to it there, and machines without a compiler."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ramet.kernels.cpu.fused.jit as jit_file

ROOM = Path(jit_file.__file__).parents[2]

# Compiles the smallest kernels, tries them, and says what there was to compile.
SCRIPT = """
import sys
from pathlib import Path
import numba
from ramet.kernels.cpu import fused
before = numba.config.CACHE_DIR
print(fused.prepare(Path(sys.argv[1])), numba.config.CACHE_DIR == before)
from ramet.kernels.cpu.fused import jit, tile, trial
assert numba.config.CACHE_DIR == before
stats = trial._multiply.stats
print(len(stats.cache_hits), len(stats.cache_misses), tile.times_bytes.compiled.cache_hits)
print(jit.__file__)
"""
COMPILED, FOUND = "0 1 0", "1 0 1"


def start(code, *arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, **environment}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def lines(process):
    """What a process prints, if it ends well and complains of nothing."""
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, ""), err[-3000:]
    return out.splitlines()


def run(*arguments, **environment):
    return lines(start(SCRIPT, *arguments, **environment))[:2]


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_code_is_kept_and_found_again(tmp_path):
    assert run(tmp_path) == ["None True", COMPILED]
    kept = files(tmp_path)
    assert {path.suffix for path in kept} == {".nbc"}
    assert run(tmp_path) == ["None True", FOUND]
    assert files(tmp_path) == kept


def test_two_processes_may_start_at_once(tmp_path):
    both = [start(SCRIPT, tmp_path) for _ in range(2)]
    for process in both:
        assert lines(process)[0] == "None True"
    assert run(tmp_path) == ["None True", FOUND]


def test_damaged_files_are_compiled_again(tmp_path):
    run(tmp_path)
    kept = files(tmp_path)
    source = random.Random(0)
    whole = [path.read_bytes() for path in kept]

    def halve(data):
        return data[: len(data) // 2]

    def scratch(data):
        return data[:-2000] + source.randbytes(2000)

    for damage in (halve, scratch, lambda data: b"", lambda data: source.randbytes(len(data))):
        for path, data in zip(kept, whole, strict=True):
            path.write_bytes(damage(data))
        assert run(tmp_path) == ["None True", COMPILED]
        assert files(tmp_path) == kept
    assert run(tmp_path) == ["None True", FOUND]


def test_a_file_that_cannot_be_replaced_is_done_without(tmp_path):
    run(tmp_path)
    kept = files(tmp_path)
    for path in kept:
        path.unlink()
        path.mkdir()
        (path / "in the way").touch()
    assert run(tmp_path) == ["None True", COMPILED]
    assert [path.name for path in files(tmp_path)] == ["in the way"] * len(kept)


def test_without_a_folder_nothing_is_kept_and_nothing_said(tmp_path):
    """Below a file there can be no folder, not even root's."""
    own = tmp_path / "own"
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "kernels"
    assert run(below, NUMBA_CACHE_DIR=str(own)) == ["None True", COMPILED]
    assert not own.exists()


def test_the_users_own_folder_is_left_alone(tmp_path):
    code = SCRIPT + (
        "numba.njit(cache=True)(fused.prepare)\n"  # Any function that has a file.
        "own = Path(numba.config.CACHE_DIR)\n"
        "print(own, [path.name for path in own.iterdir()])"
    )
    own = tmp_path / "own"
    printed = lines(start(code, tmp_path / "ours", NUMBA_CACHE_DIR=str(own)))
    assert printed[1] == COMPILED
    (name,) = os.listdir(own)
    assert printed[-1] == f"{own} ['{name}']"
    assert files(own) == []
    assert files(tmp_path / "ours")


def test_an_install_that_can_only_be_read(tmp_path):
    """Another place, other sources: code of its own, and nothing is written beside them."""
    place = tmp_path / "lib" / "ramet"
    for room in ("kernels", "runtime"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOM.parent / room, place / room, ignore=ignored)
    fused, before = place / "kernels" / "cpu" / "fused", files(place)
    for path in (place, *place.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)
    install = {"PYTHONPATH": str(tmp_path / "lib"), "PYTHONDONTWRITEBYTECODE": "1"}
    cache = tmp_path / "cache"

    def run_there(folder, told):
        printed = lines(start(SCRIPT, folder, **install))
        assert printed == ["None True", told, str(fused / "jit.py")]

    run_there(tmp_path / "lib" / "ramet" / "kernels" / "ops.py" / "no folder", COMPILED)
    run_there(cache, COMPILED)
    run_there(cache, FOUND)
    assert files(place) == before
    changed = fused / "exponential.py"
    changed.chmod(0o644)
    changed.write_text(changed.read_text() + "\n")
    run_there(cache, COMPILED)
    assert len(list(cache.iterdir())) == 2
    for path in (place, *place.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)


RUNTIME = """
import sys
if sys.argv[1] == "blocked":
    sys.modules["numba"] = sys.modules["llvmlite"] = None
from ramet.kernels.cpu import fused
from ramet.runtime.config import RuntimeConfig
from ramet.runtime.engine import Engine
from ramet.runtime.errors import UnsupportedFeature
print(fused.why_not())
print(Engine.build(RuntimeConfig(model="tiny", pool_tokens=256)).info["dtype"])
try:
    Engine.build(RuntimeConfig(model="tiny", pool_tokens=256, dtype="int8"))
except UnsupportedFeature as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("how", "environment", "reason"),
    [
        ("blocked", {}, "the package numba can't be imported"),
        ("off", {"NUMBA_DISABLE_JIT": "1"}, "NUMBA_DISABLE_JIT is set"),
    ],
)
def test_without_kernels_another_dtype_is_announced_once(tmp_path, how, environment, reason):
    process = start(RUNTIME, how, RAMET_CACHE=str(tmp_path), **environment)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    printed = out.splitlines()
    assert printed[0].startswith(reason)
    assert printed[1] in ("bfloat16", "float32")
    assert printed[2].startswith('dtype="int8": ' + reason)
    (said,) = err.splitlines()
    assert f"runs in {printed[1]}: {reason}" in said


UNKEPT = """
from ramet.runtime.config import RuntimeConfig
from ramet.runtime.engine import Engine
for dtype in ("float32", "float64"):
    Engine.build(RuntimeConfig(model="tiny", pool_tokens=256, dtype=dtype))
"""


def test_a_folder_that_can_not_be_written_is_named_once(tmp_path):
    (tmp_path / "file").touch()
    process = start(UNKEPT, RAMET_CACHE=str(tmp_path / "file"))
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, ""), err
    (said,) = err.splitlines()
    assert f"{tmp_path / 'file' / 'kernels'} can't be written" in said
    assert "RAMET_CACHE" in said


def test_nothing_is_said_where_there_is_nothing_to_keep(tmp_path):
    (tmp_path / "file").touch()
    process = start(UNKEPT, RAMET_CACHE=str(tmp_path / "file"), NUMBA_DISABLE_JIT="1")
    assert process.communicate(timeout=120) == ("", "")
