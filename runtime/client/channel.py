"""How operations and results cross between the user's side and the engine's.

A `Mailbox` is one direction as the two loops see it. When the engine runs on a thread, two of them
are the whole channel. When it runs in its own process, each direction is a pipe of frames with a
thread that pumps a mailbox into it or out of it. A frame is a 4-byte big-endian length and that
many bytes of JSON: a list of messages. Everything is plain data; nothing is ever unpickled.
"""

from __future__ import annotations

import json
import math
import os
import queue
import struct
from collections.abc import Iterable
from typing import Any

Message = dict[str, Any]
"""One operation (client to engine) or one event (engine to client)."""

_HEADER = struct.Struct(">I")
_READ_BYTES = 1 << 20
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


class Mailbox:
    """An unbounded queue of messages between two threads; one of them reads.

    `put` never blocks, so that a slow reader never holds up a writer, and an interrupt never leaves
    it locked; `drain` takes everything at once, so that a reader pays once per step and not once
    per message.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[list[Message] | None] = queue.SimpleQueue()
        self._closed = False
        self._ended = False

    def put(self, messages: Iterable[Message]) -> bool:
        """Queue `messages`, in order and together; False if the mailbox is closed."""
        if self._closed:
            return False
        self._queue.put(list(messages))
        return True

    def drain(self, *, wait: bool) -> list[Message] | None:
        """All queued messages; None once the mailbox is closed and empty.

        With `wait`, blocks until there is a message or the end; else may return an empty list.
        """
        messages: list[Message] = []
        try:
            while not self._ended:
                part = self._queue.get(block=wait and not messages)
                if part is None:
                    self._ended = True
                else:
                    messages += part
        except queue.Empty:
            return messages
        return messages or None

    def close(self) -> None:
        """Take no more messages; what is queued can still be drained."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)


def encode_frame(messages: list[Message]) -> bytes:
    """One frame. Floats cross exactly; those that JSON lacks (NaN, infinities) become null."""
    try:
        text = _ENCODER.encode(messages)
    except ValueError:
        text = _ENCODER.encode(_without_non_finite(messages))
    body = text.encode("ascii")
    return _HEADER.pack(len(body)) + body


def write_frame(fd: int, messages: list[Message]) -> None:
    """Write one frame to the pipe `fd`, blocking; OSError when its reader is gone."""
    rest = memoryview(encode_frame(messages))
    while rest:
        rest = rest[os.write(fd, rest) :]


class FrameReader:
    """Reads frames from the pipe `fd`.

    It works on the plain descriptor: a daemon thread blocked inside a buffered file holds that
    file's lock, which aborts the interpreter at exit. And it reads as much as there is, because
    each read gives up the GIL, which busy user threads make slow to get back.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = bytearray()

    def read(self) -> list[Message] | None:
        """The next frame, blocking; None at the pipe's end, also inside a frame."""
        if not self._fill(_HEADER.size):
            return None
        end = _HEADER.size + _HEADER.unpack_from(self._buffer)[0]
        if not self._fill(end):
            return None
        messages: list[Message] = json.loads(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        return messages

    def _fill(self, num_bytes: int) -> bool:
        while len(self._buffer) < num_bytes:
            part = os.read(self._fd, _READ_BYTES)
            if not part:
                return False
            self._buffer += part
        return True


def pump_out(mailbox: Mailbox, fd: int) -> None:
    """Write what `mailbox` holds to the pipe until it closes; run on a thread.

    Whatever ends it, the mailbox is closed afterwards. A reader that is gone ends it silently: the
    other direction's end is what tells this side.
    """
    try:
        while (messages := mailbox.drain(wait=True)) is not None:
            write_frame(fd, messages)
    except OSError:
        pass
    finally:
        mailbox.close()


def pump_in(reader: FrameReader, mailbox: Mailbox) -> None:
    """Put what arrives on the pipe into `mailbox` until the pipe ends; run on a thread."""
    try:
        while (messages := reader.read()) is not None:
            mailbox.put(messages)
    except OSError:
        pass
    finally:
        mailbox.close()


def _without_non_finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _without_non_finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_non_finite(item) for item in value]
    return value
