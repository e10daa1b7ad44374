"""The first start: kernels are compiled in a process of their own while a model is converted."""

from __future__ import annotations

import sys

import pytest

from ramet.runtime import builtin_model, first_start
from ramet.runtime.config import RuntimeConfig


@pytest.fixture
def started(monkeypatch):
    """The commands that were started; each only waits."""
    commands, popen = [], first_start.subprocess.Popen

    def start(command, **settings):
        commands.append(popen([sys.executable, "-c", "import time; time.sleep(0.3)"], **settings))
        assert command == [sys.executable, "-m", "ramet.runtime.first_start"]
        return commands[-1]

    monkeypatch.setattr(first_start.subprocess, "Popen", start)
    return commands


@pytest.fixture
def unprepared(monkeypatch):
    monkeypatch.setattr(first_start, "is_prepared", lambda name: False)


def test_it_is_waited_for(started, unprepared):
    with first_start.compiling_beside(RuntimeConfig()):
        assert started[0].poll() is None
    assert started[0].poll() == 0


def test_an_error_of_the_caller_ends_it(started, unprepared):
    with pytest.raises(KeyError), first_start.compiling_beside(RuntimeConfig()):
        raise KeyError("no model")
    assert started[0].poll() not in (None, 0)


@pytest.mark.parametrize(
    "settings",
    [{"dtype": "float32"}, {"isolation": "thread"}, {"device": "cuda"}],
    ids=str,
)
def test_what_needs_no_kernels_starts_nothing(started, unprepared, settings):
    with first_start.compiling_beside(RuntimeConfig(**settings)):
        assert started == []


def test_a_prepared_model_starts_nothing(started):
    with first_start.compiling_beside(RuntimeConfig(model="tiny")):
        assert started == []


def test_which_models_are_prepared(tmp_path):
    assert builtin_model.is_prepared("tiny", cache=tmp_path)
    assert builtin_model.is_prepared("some/where", cache=tmp_path)
    assert not builtin_model.is_prepared(None, cache=tmp_path)
    gguf = tmp_path / "a.gguf"
    gguf.write_bytes(b"GGUF")
    assert not builtin_model.is_prepared(str(gguf), cache=tmp_path)
