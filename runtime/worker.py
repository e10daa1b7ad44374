"""The engine's side of the channel: the loop that feeds an engine, and its process.

`python -m ramet.runtime.worker` is started by `runtime.transport`; it takes its configuration as
the first frame on its standard input and answers on what was its standard output. On a thread, the
same `run` works on two mailboxes.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Protocol

from ramet.runtime.builtin_model import resolve_model
from ramet.runtime.client.channel import FrameReader, Mailbox, Message, pump_in, pump_out
from ramet.runtime.config import RuntimeConfig
from ramet.runtime.errors import RametError, to_wire
from ramet.runtime.first_start import compiling_beside

FLUSH_SECONDS = 5.0
"""How long a process that ends waits for its last events to be taken."""


class EngineLike(Protocol):
    """What the loop needs of an engine."""

    @property
    def info(self) -> dict[str, Any]:
        """Plain data about the loaded model, sent with the `ready` event."""

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do until new operations come."""

    def submit(self, ops: list[Message]) -> None:
        """Take operations, in order."""

    def step(self) -> None:
        """Advance by one step; does nothing when idle."""

    def take_events(self) -> list[Message]:
        """The events since the last call, in order."""


BuildEngine = Callable[[RuntimeConfig], EngineLike]
"""Loads a model and gives its engine; may raise RametError."""


def build_engine(config: RuntimeConfig) -> EngineLike:
    """The engine of `runtime.engine`, imported only here: the user's process needs no torch.

    A model that can't be had is refused before torch is loaded, which takes seconds.
    """
    with compiling_beside(config):
        resolve_model(config.model)
        from ramet.runtime.engine import Engine

    engine: EngineLike = Engine.build(config)
    return engine


def serve(engine: EngineLike, inbox: Mailbox, outbox: Mailbox) -> None:
    """Drain, submit, step, send; until a `shutdown` operation or the end of `inbox`."""
    while True:
        ops = inbox.drain(wait=engine.idle)
        if ops is None or any(op["op"] == "shutdown" for op in ops):
            return
        if ops:
            engine.submit(ops)
        engine.step()
        if events := engine.take_events():
            outbox.put(events)


def run(build: BuildEngine, config: RuntimeConfig, inbox: Mailbox, outbox: Mailbox) -> int:
    """Build the engine and serve it; the exit status. Every failure is sent as `fatal` first."""
    try:
        engine = build(config)
        outbox.put([{"ev": "ready", **engine.info}])
        serve(engine, inbox, outbox)
    except Exception as error:
        kind, message = to_wire(error)
        if not isinstance(error, RametError):
            message = traceback.format_exc().rstrip()
        outbox.put([{"ev": "fatal", "kind": kind, "message": message}])
        return 1
    return 0


def main(build: BuildEngine = build_engine) -> int:
    """The process: take over the standard pipes, read the configuration, run; the exit status."""
    # A terminal's Ctrl-C is the client's to handle; it shuts this process down in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ops_fd, events_fd = _claim_standard_pipes()
    reader = FrameReader(ops_fd)
    first = reader.read()
    if first is None:
        return 0
    inbox, outbox = Mailbox(), Mailbox()
    pumps = [
        threading.Thread(target=pump_in, args=(reader, inbox), name="ramet-ops", daemon=True),
        threading.Thread(target=pump_out, args=(outbox, events_fd), name="ramet-ev", daemon=True),
    ]
    for pump in pumps:
        pump.start()
    status = run(build, RuntimeConfig(**first[0]["config"]), inbox, outbox)
    outbox.close()
    pumps[1].join(FLUSH_SECONDS)
    return status


def _claim_standard_pipes() -> tuple[int, int]:
    # What a library prints or reads must not touch the channel: descriptor 1 becomes the error
    # stream and descriptor 0 reads as empty.
    ops_fd, events_fd = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return ops_fd, events_fd


if __name__ == "__main__":
    sys.exit(main())
