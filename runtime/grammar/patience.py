"""Patience: how long the reading of a constraint may take in a process that has other work.

Reading is Python's work, and few bytes can mean much of it. So whatever loops in a front end calls
`check`; where the thread's patience is at an end, the reading is given up, for a process of its own
(`probe`) to begin anew. Without `patience` there is no such end.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator


class OutOfPatience(Exception):
    """Reading took longer than it may here. Nothing but the compiler catches it."""


class _Thread(threading.local):
    until: float | None = None


_thread = _Thread()


@contextlib.contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Let `check` raise once this thread has computed for so many seconds."""
    before = _thread.until
    _thread.until = time.thread_time() + seconds
    try:
        yield
    finally:
        _thread.until = before


def check() -> None:
    """Raise OutOfPatience if the thread's patience is at an end."""
    if _thread.until is not None and time.thread_time() > _thread.until:
        raise OutOfPatience
