"""The client of one engine: numbers its calls, sends its operations, hands out its events.

`Runtime` owns it; `Handle` submits through it. It knows calls and errors, but not text.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from ramet.runtime.client.call import Call
from ramet.runtime.client.channel import Message
from ramet.runtime.client.transport import STOP_SECONDS, Transport
from ramet.runtime.errors import BackendError, RametError, from_wire

SHUT_DOWN = "the Runtime is shut down"


class EngineClient:
    """A started engine and the calls that wait for it. All methods may be used from any thread.

    Building one waits until the engine is ready, and raises the engine's error if it can't start.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._pid = os.getpid()
        # Reentrant: a finaliser may shut down on a thread that is inside `submit`.
        self._lock = threading.RLock()
        self._calls: dict[int, Call[Any]] = {}
        self._failure: RametError | None = None
        self._held = threading.local()
        self._ids = itertools.count(1)
        self._reader = threading.Thread(target=self._read, name="ramet-receive", daemon=True)
        try:
            self.info = self._await_ready()
            """What the engine said of its model; plain data."""
        except BaseException:
            transport.stop(0.0)
            transport.close()
            raise
        self._reader.start()

    @property
    def ended(self) -> bool:
        """Whether the engine is gone."""
        return self._failure is not None

    def next_id(self) -> int:
        """A number for a program, a context or a call, never given before."""
        return next(self._ids)

    def submit(self, ops: list[Message], calls: Sequence[Call[Any]] = ()) -> None:
        """Send `ops` together and wait for nothing; `calls` are those that they start.

        Raises BackendError, and sends nothing, once the engine has ended.
        """
        if os.getpid() != self._pid:
            raise BackendError("the Runtime belongs to the process that this one was forked from")
        with self._lock:
            if self._failure is not None:
                raise _copy(self._failure)
            for call in calls:
                self._calls[call.call_id] = call
            self._send(ops)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """What this thread submits inside is sent at the end, in one message."""
        if getattr(self._held, "ops", None) is not None:
            yield
            return
        ops: list[Message] = []
        self._held.ops = ops
        try:
            yield
        finally:
            self._held.ops = None
            with self._lock:
                if ops and self._failure is None:
                    self._transport.send(ops)

    def request(self, op: str) -> dict[str, Any]:
        """Ask for a value (`stats`, `flush`) and wait for it."""
        call: Call[dict[str, Any]] = Call(
            self.next_id(), lambda event: event["value"], self.abort_call
        )
        self.submit([{"op": op, "call": call.call_id}], [call])
        return call.result()

    def abort_call(self, call_id: int) -> None:
        """Ask the engine to end a call."""
        self._send_quietly({"op": "abort", "call": call_id})

    def abort_program(self, program: int) -> None:
        """Ask the engine to end all calls of a program."""
        self._send_quietly({"op": "abort", "program": program})

    def close_context(self, ctx: int) -> None:
        """Tell the engine that a context will get no more operations."""
        self._send_quietly({"op": "close", "ctx": ctx})

    def shutdown(self) -> None:
        """Fail what waits, end the engine and the reader; safe to repeat, and in a forked child."""
        if os.getpid() != self._pid:
            return
        self._fail_all(BackendError(SHUT_DOWN))
        self._transport.stop(STOP_SECONDS)
        if self._reader is not threading.current_thread():
            self._reader.join(STOP_SECONDS)
        self._transport.close()

    def _send_quietly(self, op: Message) -> None:
        # An engine that has ended has freed everything already.
        if os.getpid() == self._pid:
            with self._lock:
                if self._failure is None:
                    self._send([op])

    def _send(self, ops: list[Message]) -> None:
        # Everything of one thread in its order, what it holds back included.
        held = getattr(self._held, "ops", None)
        if held is None:
            self._transport.send(ops)
        else:
            held += ops

    def _await_ready(self) -> dict[str, Any]:
        events = self._transport.receive()
        if not events:
            raise BackendError(f"{self._transport.ending()} before it was ready")
        first = events[0]
        if first["ev"] == "fatal":
            raise from_wire(first["kind"], first["message"])
        return {key: value for key, value in first.items() if key != "ev"}

    def _read(self) -> None:
        # The reader's thread: whatever ends it, no caller is left waiting.
        fatal = None
        try:
            while (events := self._transport.receive()) is not None:
                for event in events:
                    if event["ev"] == "fatal":
                        fatal = event["message"]
                    else:
                        self._dispatch(event)
        finally:
            if self._failure is None:
                message = self._transport.ending()
                self._fail_all(BackendError(f"{message}:\n{fatal}" if fatal else message))

    def _dispatch(self, event: Message) -> None:
        # Without the lock: one look into a dict, and who fails all calls puts another in its place.
        kind, number = event["ev"], event["call"]
        if kind == "chunk":
            if (call := self._calls.get(number)) is not None:
                call.feed(event)
        elif (call := self._calls.pop(number, None)) is None:
            return
        elif kind == "error":
            call.fail(from_wire(event["kind"], event["message"]))
        else:
            call.finish(event)

    def _fail_all(self, failure: RametError) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = failure
            calls, self._calls = self._calls, {}
        for call in calls.values():
            call.fail(_copy(failure))


def _copy(error: RametError) -> RametError:
    # One instance per caller: a raised exception grows a traceback.
    return type(error)(*error.args)
