"""The client's end of the channel: starts the engine in a process or on a thread, and stops it.

`launch` is called by `Runtime`; `EngineClient` is the only user of what it returns.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ramet.runtime import worker
from ramet.runtime.client.channel import FrameReader, Mailbox, Message, pump_out
from ramet.runtime.config import RuntimeConfig, set_wait_policy, worker_environment
from ramet.runtime.errors import BackendError

STOP_SECONDS = 5.0
"""How long an engine may take to end by itself before its process is killed."""


class Transport(Protocol):
    """One started engine, as a place to put operations and take events."""

    def send(self, ops: list[Message]) -> None:
        """Queue operations; never blocks."""

    def receive(self) -> list[Message] | None:
        """The next events, blocking; None when the engine has ended."""

    def stop(self, seconds: float) -> None:
        """End the engine within `seconds`, or by force; safe to repeat."""

    def ending(self) -> str:
        """How the engine ended, in words; to be asked after `receive` gave None."""

    def close(self) -> None:
        """Free what `receive` reads from; after the engine ended, with nobody inside it."""


def launch(config: RuntimeConfig) -> Transport:
    """Start the engine where `config.isolation` says."""
    return ThreadTransport(config) if config.isolation == "thread" else ProcessTransport(config)


class ProcessTransport:
    """An engine in a process of its own, so that user code never competes for its GIL.

    It is started as a module and not by multiprocessing, which would run the user's `__main__`
    again. `command` replaces the program that is started.
    """

    def __init__(self, config: RuntimeConfig, command: Sequence[str] | None = None) -> None:
        if command is None:
            if not sys.executable:
                raise BackendError(
                    "this interpreter does not know its own executable, so no engine process can "
                    'be started; use isolation="thread"'
                )
            # -P: a user's file next to the program must not shadow a module of the engine's.
            command = [sys.executable, "-P", "-m", "ramet.runtime.worker"]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                env=_environment(),
                # A session of its own: the terminal's signals reach the user's process alone.
                start_new_session=True,
            )
        except OSError as error:
            raise BackendError(f"the engine process could not be started: {error}") from error
        assert self._process.stdout is not None
        self._events = FrameReader(self._process.stdout.fileno())
        self._outbox = Mailbox()
        self._outbox.put([{"config": dataclasses.asdict(config)}])
        self._pump = threading.Thread(target=self._write, name="ramet-send", daemon=True)
        self._pump.start()

    @property
    def pid(self) -> int:
        """The engine's process id."""
        return self._process.pid

    def send(self, ops: list[Message]) -> None:
        """Queue operations for the pump."""
        self._outbox.put(ops)

    def receive(self) -> list[Message] | None:
        """The next frame of events."""
        if self._process.stdout is None or self._process.stdout.closed:
            return None
        try:
            return self._events.read()
        except OSError:
            return None

    def stop(self, seconds: float) -> None:
        """Ask, wait, kill; the process is gone and reaped afterwards."""
        self._outbox.put([{"op": "shutdown"}])
        self._outbox.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _join(self._pump)

    def ending(self) -> str:
        """The exit code, with the signal's name if one ended it."""
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return "the engine process closed its channel but still runs"
        with contextlib.suppress(ValueError):
            if code < 0:
                return f"the engine process was killed (exit code {code}, {_signal_name(code)})"
        return f"the engine process ended (exit code {code})"

    def close(self) -> None:
        """Close the event pipe."""
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _write(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pump_out(self._outbox, pipe.fileno())
        finally:
            pipe.close()


class ThreadTransport:
    """An engine on a thread of this process: starts faster, but shares the GIL with user code."""

    def __init__(
        self, config: RuntimeConfig, build: worker.BuildEngine = worker.build_engine
    ) -> None:
        _set_wait_policy()
        self._inbox, self._outbox = Mailbox(), Mailbox()
        self._thread = threading.Thread(
            target=self._run, args=(build, config), name="ramet-engine", daemon=True
        )
        self._thread.start()

    def send(self, ops: list[Message]) -> None:
        """Queue operations for the engine's next step."""
        self._inbox.put(ops)

    def receive(self) -> list[Message] | None:
        """The events since the last call."""
        return self._outbox.drain(wait=True)

    def stop(self, seconds: float) -> None:
        """Ask and wait; a thread cannot be killed, so a step that outlasts `seconds` is left."""
        self._inbox.put([{"op": "shutdown"}])
        self._inbox.close()
        _join(self._thread, seconds)

    def ending(self) -> str:
        """That the thread ended."""
        return "the engine thread ended"

    def close(self) -> None:
        """Nothing is left to close."""

    def _run(self, build: worker.BuildEngine, config: RuntimeConfig) -> None:
        try:
            worker.run(build, config, self._inbox, self._outbox)
        finally:
            self._outbox.close()


def _join(thread: threading.Thread, seconds: float | None = None) -> None:
    # A finaliser runs on whatever thread drops the last reference, also on this one.
    if thread is not threading.current_thread():
        thread.join(seconds)


def _signal_name(code: int) -> str:
    return signal.Signals(-code).name


def _environment() -> dict[str, str]:
    # The process must find the same ramet as this one, also when this one found it through an edit
    # of sys.path or has changed its directory since. Site folders are found without help, and
    # naming them in PYTHONPATH would put them before the standard library.
    environment = worker_environment()
    roots = [
        os.path.abspath(entry)
        for entry in sys.path
        if Path(entry).name not in ("site-packages", "dist-packages")
        and Path(entry, "ramet", "runtime", "worker.py").is_file()
    ]
    known = environment.get("PYTHONPATH")
    paths = [*roots, *([known] if known else [])]
    if paths:
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment


def _set_wait_policy() -> None:
    if not set_wait_policy():
        warnings.warn(
            "torch was imported before the engine thread started, so OMP_WAIT_POLICY=passive can "
            "no longer be set: waiting threads spin, which is slow on a shared machine. Set it "
            'before Python starts, or use isolation="process"',
            RuntimeWarning,
            stacklevel=3,
        )
