from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from typing import Any

import fake_engine
import pytest
from fake_engine import FakeEngine, fake_config

from ramet.runtime import worker
from ramet.runtime.client.channel import FrameReader, Mailbox, write_frame
from ramet.runtime.config import worker_environment

pytestmark = pytest.mark.timeout(60)

OPEN = {"op": "open", "ctx": 1, "program": 1}
APPEND = {"op": "append", "ctx": 1, "ids": [1, 2, 3]}


def _generate(call: int, site: str = "", **params: Any) -> dict[str, Any]:
    return {
        "op": "generate",
        "ctx": 1,
        "call": call,
        "params": params,
        "keys": [0],
        "stream": False,
        "site": site,
    }


def _run(model: str, ops: list[dict[str, Any]]) -> tuple[int, list[dict[str, Any]]]:
    inbox, outbox = Mailbox(), Mailbox()
    inbox.put(ops)
    inbox.close()
    status = worker.run(FakeEngine.build, fake_config("thread", model=model), inbox, outbox)
    outbox.close()
    return status, outbox.drain(wait=False) or []


def test_ready_comes_first_with_the_engines_info() -> None:
    status, events = _run("fake", [{"op": "stats", "call": 9}])
    assert status == 0
    assert (events[0]["ev"], events[0]["vocab_size"]) == ("ready", 259)
    assert events[1]["value"]["steps"] == 0


def test_operations_are_submitted_once_per_step_and_in_order() -> None:
    engine = FakeEngine(fake_config("thread"))
    inbox, outbox = Mailbox(), Mailbox()
    inbox.put([OPEN])
    inbox.put([APPEND, _generate(5)])
    inbox.put([{"op": "stats", "call": 6}, {"op": "close", "ctx": 1}])
    inbox.close()
    worker.serve(engine, inbox, outbox)
    outbox.close()
    events = outbox.drain(wait=False) or []
    assert [op["op"] for op in engine.ops] == ["open", "append", "generate", "stats", "close"]
    assert [e["call"] for e in events] == [6]  # The pipe ended: what ran is dropped.


def test_shutdown_ends_the_loop_before_the_inbox_does() -> None:
    inbox, outbox = Mailbox(), Mailbox()
    inbox.put([OPEN, {"op": "shutdown"}])
    worker.serve(FakeEngine(fake_config("thread")), inbox, outbox)
    assert outbox.drain(wait=False) == []


@pytest.mark.parametrize(
    ("model", "kind", "text"),
    [
        ("unsupported", "UnsupportedFeature", "model_type=unsupported: not one of ours"),
        ("broken", "BackendError", 'RuntimeError("broken while loading")'),
    ],
)
def test_a_model_that_does_not_load_is_fatal(model: str, kind: str, text: str) -> None:
    status, events = _run(model, [])
    assert status == 1
    assert [(e["ev"], e["kind"]) for e in events] == [("fatal", kind)]
    assert text in events[0]["message"]


def test_a_crash_in_a_step_is_fatal_with_its_traceback() -> None:
    status, events = _run("fake", [OPEN, APPEND, _generate(5, "crash")])
    assert status == 1
    assert events[-1]["ev"] == "fatal"
    assert "crashed in a step" in events[-1]["message"]
    assert "_decode" in events[-1]["message"]


def _process() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", fake_engine.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=worker_environment(),
        bufsize=0,
    )


def _ends(process: subprocess.Popen[bytes]) -> tuple[int, FrameReader]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin.fileno(), FrameReader(process.stdout.fileno())


def test_the_process_answers_on_its_pipe_alone_and_ends_with_its_client() -> None:
    with _process() as process:
        ops_fd, events = _ends(process)
        write_frame(ops_fd, [{"config": dataclasses.asdict(fake_config("process"))}])
        ready = events.read()
        assert ready is not None
        assert ready[0]["ev"] == "ready"
        process.send_signal(signal.SIGINT)  # A terminal's Ctrl-C is the client's affair.
        write_frame(ops_fd, [{"op": "stats", "call": 3}])
        answer = events.read()
        assert answer is not None
        assert answer[0]["call"] == 3
        process.stdin.close()  # type: ignore[union-attr]
        assert process.wait() == 0
        assert process.stderr is not None
        assert process.stderr.read().decode() == "an engine that prints\n"


def test_the_process_ends_at_once_without_a_configuration() -> None:
    with _process() as process:
        process.stdin.close()  # type: ignore[union-attr]
        assert process.wait() == 0


def test_a_crash_ends_the_process_after_its_last_words() -> None:
    with _process() as process:
        ops_fd, events = _ends(process)
        write_frame(ops_fd, [{"config": dataclasses.asdict(fake_config("process"))}])
        write_frame(ops_fd, [OPEN, APPEND, _generate(5, "crash")])
        frames = []
        while (frame := events.read()) is not None:
            frames += frame
        assert [event["ev"] for event in frames] == ["ready", "fatal"]
        assert process.wait() == 1


def test_the_default_engine_is_imported_only_when_it_is_built() -> None:
    code = "import sys, ramet.runtime.worker as w; print(any('torch' in m for m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ)
    )
    assert (done.stdout, done.stderr) == ("False\n", "")
