from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import fake_engine
import pytest
from fake_engine import ISOLATIONS, children, no_leaks, start_transport

from ramet.runtime.client import transport as module
from ramet.runtime.client.transport import ProcessTransport, launch
from ramet.runtime.config import RuntimeConfig
from ramet.runtime.errors import BackendError
from ramet.runtime.runtime import Runtime

__all__ = ["no_leaks"]
pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("no_leaks")]


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
    # A folder that holds ramet, as a source checkout on the path or PYTHONPATH would.
    root = tmp_path / "checkout"
    (root / "ramet" / "runtime").mkdir(parents=True)
    (root / "ramet" / "runtime" / "worker.py").touch()
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


PROGRAM = textwrap.dedent(
    f"""
    import runpy, sys
    fake = runpy.run_path({fake_engine.__file__!r})
    from ramet.runtime.runtime import Runtime
    runtime = fake["start_runtime"]("process")
    print(runtime.generate("abc", {{"max_new_tokens": 5}})["text"], flush=True)
    """
)
SILENT_ABOUT_TORCH = 'print(any(name.split(".")[0] == "torch" for name in sys.modules))\n'


def _python(*args: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args],
        input=code,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("way", ["-c", "stdin", "script"])
def test_a_program_needs_no_main_guard_and_no_shutdown(way: str, tmp_path: Path) -> None:
    program = PROGRAM + SILENT_ABOUT_TORCH
    if way == "-c":
        done = _python("-c", program)
    elif way == "stdin":
        done = _python("-", code=program)
    else:
        script = tmp_path / "program.py"
        script.write_text(program)
        done = _python(str(script))
    assert (done.returncode, done.stdout) == (0, "len=3\nFalse\n")
    assert "Traceback" not in done.stderr


def test_no_engine_outlives_an_interpreter_that_exits_or_dies() -> None:
    tail = "print(runtime._client._transport.pid, flush=True)\n"
    ends = ["", "raise SystemExit(3)\n", "import os; os._exit(4)\n", "1 / 0\n"]
    for end, code in zip(ends, [0, 3, 4, 1], strict=True):
        done = _python("-c", PROGRAM + tail + end)
        assert done.returncode == code
        _await_end(int(done.stdout.split()[-1]))


def _await_end(pid: int) -> None:
    # A process that lost its client by surprise ends by itself, soon; the test's timeout is the
    # limit.
    pause = threading.Event()
    while Path(f"/proc/{pid}").exists() and "Z" not in _state(pid):
        pause.wait(0.02)
    assert not Path(f"/proc/{pid}").exists() or "Z" in _state(pid)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return "Z"


def test_an_interrupt_of_the_terminal_ends_the_program_in_order() -> None:
    # A shell starts what it puts in the background with interrupts ignored; a terminal doesn't.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += PROGRAM + "print(runtime._client._transport.pid, flush=True)\n"
    code += (
        "from ramet.runtime.request import SamplingParams\n"
        "call = runtime.open().generate(SamplingParams(), site='hang')\n"
        "print('waiting', flush=True)\n"
        "call.result()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline().strip() for _ in range(3)]
            assert lines[2] == "waiting"
            os.killpg(process.pid, signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
        assert "KeyboardInterrupt" in errors
    _await_end(int(lines[1]))


TINY = """
import sys
from ramet.runtime.runtime import Runtime
runtime = Runtime("tiny", dtype="float64")
print(runtime.generate("hello", {"max_tokens": 4, "temperature": 0})["meta"]["output_token_ids"])
print("torch" in sys.modules)
"""


def test_the_real_engine_runs_beside_files_that_shadow_its_modules(tmp_path: Path) -> None:
    for name in ("token.py", "queue.py", "ramet.py"):
        (tmp_path / name).write_text("raise RuntimeError('the wrong one')")
    script = tmp_path / "elsewhere" / "program.py"
    script.parent.mkdir()
    script.write_text(TINY)
    paths = [os.path.abspath(p) for p in sys.path if Path(p, "ramet").is_dir()]
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        timeout=100,
        check=False,
    )
    with Runtime("tiny", dtype="float64", isolation="thread") as runtime:
        output = runtime.generate("hello", {"max_tokens": 4, "temperature": 0})
    assert isinstance(output, dict)
    assert done.stdout == f"{output['meta']['output_token_ids']}\nFalse\n", done.stderr
