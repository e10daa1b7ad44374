"""A ring: one thread waits, any other wakes it, and an interrupt can't leave it locked."""

from __future__ import annotations

import contextlib
import threading


class Ring:
    """A wake-up call for one waiting thread.

    A plain lock does what an event would, without Python code of its own in which Ctrl-C may strike
    while something is held.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Wake the thread that waits, or the next time that it waits; usable from any thread."""
        with contextlib.suppress(RuntimeError):  # It has been rung already.
            self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a ring since the last wait; False if `timeout` seconds passed first."""
        return self._lock.acquire(timeout=-1 if timeout is None else timeout)
