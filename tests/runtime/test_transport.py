from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from ramet.runtime import transport as module
from ramet.runtime.config import RuntimeConfig
from ramet.runtime.errors import BackendError
from ramet.runtime.transport import ProcessTransport, launch

from tests.runtime.fake_engine import ISOLATIONS, children, no_leaks, start_transport

__all__ = ["no_leaks"]
pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("no_leaks")]


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_an_engine_starts_answers_and_stops(isolation: str) -> None:
    transport = start_transport(isolation)
    ready = transport.receive()
    assert ready is not None
    assert ready[0]["ev"] == "ready"
    transport.send([{"op": "stats", "call": 1}])
    assert (transport.receive() or [{}])[0]["call"] == 1
    transport.stop(5.0)
    transport.stop(5.0)
    assert transport.receive() is None
    assert "ended" in transport.ending()
    transport.close()


def test_launch_follows_the_isolation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ThreadTransport", lambda config: ("thread", config.model))
    monkeypatch.setattr(module, "ProcessTransport", lambda config: ("process", config.model))
    for isolation in ISOLATIONS:
        got: object = launch(RuntimeConfig(model="tiny", isolation=isolation))
        assert got == (isolation, "tiny")


def test_a_process_that_does_not_stop_is_killed() -> None:
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    transport = ProcessTransport(RuntimeConfig(), sleeper)
    transport.stop(0.1)
    assert not children()
    assert transport.ending() == "the engine process was killed (exit code -9, SIGKILL)"
    transport.close()


def test_the_exit_code_is_named() -> None:
    transport = ProcessTransport(RuntimeConfig(), [sys.executable, "-c", "raise SystemExit(3)"])
    assert transport.receive() is None
    assert transport.ending() == "the engine process ended (exit code 3)"
    transport.stop(1.0)
    transport.close()


def test_an_engine_process_has_a_session_of_its_own() -> None:
    transport = start_transport("process")
    assert isinstance(transport, ProcessTransport)
    assert transport.receive() is not None
    assert os.getsid(transport.pid) == transport.pid
    os.kill(transport.pid, signal.SIGSTOP)  # Even a stopped one is ended by force.
    transport.stop(0.1)
    transport.close()


def test_a_command_that_cannot_start_is_a_backend_error() -> None:
    with pytest.raises(BackendError, match="could not be started"):
        ProcessTransport(RuntimeConfig(), ["/nonexistent/python"])


def test_an_interpreter_without_an_executable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(BackendError, match='isolation="thread"'):
        ProcessTransport(RuntimeConfig())


def test_the_process_finds_the_same_ramet_after_a_change_of_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = next(p for p in sys.path if Path(p, "ramet", "runtime", "worker.py").is_file())
    relative = os.path.relpath(root)
    monkeypatch.setattr(sys, "path", [relative])
    environment = module._environment()
    assert environment["PYTHONPATH"].split(os.pathsep)[0] == os.path.abspath(root)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site-packages")])
    monkeypatch.setenv("PYTHONPATH", "kept")
    assert module._environment()["PYTHONPATH"] == "kept"


def test_an_engine_thread_sets_the_wait_policy_or_says_that_it_cannot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.delenv("KMP_BLOCKTIME", raising=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    module._set_wait_policy()
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
    monkeypatch.setitem(sys.modules, "torch", threading)  # Any module stands for it.
    module._set_wait_policy()
    monkeypatch.delenv("OMP_WAIT_POLICY")
    with pytest.warns(RuntimeWarning, match="OMP_WAIT_POLICY"):
        module._set_wait_policy()
