"""The first start: kernels are compiled in a process of their own while a model is converted."""

from __future__ import annotations

import sys

import pytest

from ramet.kernels import code_folder
from ramet.runtime import first_start
from ramet.runtime.config import RuntimeConfig


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """An empty cache folder."""
    monkeypatch.setenv("RAMET_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiled(monkeypatch):
    """The folders that this process was to compile into."""
    folders = []
    monkeypatch.setattr(first_start, "compile_kernels", folders.append)
    return folders


@pytest.fixture
def started(monkeypatch):
    """The processes that were started; each only waits."""
    processes, popen = [], first_start.subprocess.Popen

    def start(command, **settings):
        processes.append(popen([sys.executable, "-c", "import time; time.sleep(60)"], **settings))
        assert command == [sys.executable, "-P", "-m", "ramet.runtime.first_start"]
        return processes[-1]

    monkeypatch.setattr(first_start.subprocess, "Popen", start)
    return processes


def test_both_compile_and_none_is_left(started, compiled, cache):
    with first_start.compiling_beside(RuntimeConfig(model="tiny")):
        assert started[0].poll() is None
        assert compiled == []
    assert started[0].poll() is not None
    assert compiled == [code_folder.open_folder(cache / "kernels")]


def test_an_error_of_the_caller_ends_it(started, compiled):
    with pytest.raises(KeyError), first_start.compiling_beside(RuntimeConfig()):
        raise KeyError("no model")
    assert started[0].poll() not in (None, 0)
    assert compiled == []


@pytest.mark.parametrize(
    "settings",
    [{"dtype": "float32"}, {"isolation": "thread"}, {"device": "cuda"}],
    ids=str,
)
def test_what_needs_no_kernels_starts_nothing(started, compiled, settings):
    with first_start.compiling_beside(RuntimeConfig(**settings)):
        pass
    assert started == compiled == []


def test_what_is_compiled_or_can_not_be_kept_starts_nothing(started, compiled, cache):
    folder = code_folder.open_folder(cache / "kernels")
    code_folder.mark_complete(folder)
    with first_start.compiling_beside(RuntimeConfig()):
        pass
    (folder / "complete").unlink()
    folder.rmdir()
    folder.parent.rmdir()
    folder.parent.touch()
    with first_start.compiling_beside(RuntimeConfig()):
        pass
    assert started == compiled == []


def test_a_machine_without_kernels_is_not_asked_again(started, monkeypatch):
    from ramet.kernels import ops

    monkeypatch.setattr(ops, "prepare", lambda folder: "no compiler")
    monkeypatch.setattr(ops, "compile_all", lambda: pytest.fail("nothing to compile"))
    for _ in range(2):
        with first_start.compiling_beside(RuntimeConfig()):
            pass
    assert len(started) == 1
