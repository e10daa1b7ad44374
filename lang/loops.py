"""Event loops: how what happens on other threads reaches a coroutine, and what may not block one.

Calls end on the backend's thread. A coroutine that waits for one is woken through its loop's
`LoopCalls`, which crosses to the loop once for everything that happened meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable

Wake = Callable[[], object]


class LoopCalls:
    """Calls from any thread into one event loop, many per crossing."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._lock = threading.Lock()
        self._queue: deque[Callable[[], object]] = deque()
        self._crossing = False

    def call(self, function: Callable[[], object]) -> bool:
        """Have `function()` called on the loop's thread; False, and nothing, if it is closed."""
        loop = self._loop()
        if loop is None or loop.is_closed():
            return False
        with self._lock:
            self._queue.append(function)
            if self._crossing:
                return True
            self._crossing = True
        try:
            loop.call_soon_threadsafe(self._drain)
        except RuntimeError:  # The loop is closed: nobody there waits any more.
            with self._lock:
                self._queue.clear()
                self._crossing = False
            return False
        return True

    def _drain(self) -> None:
        with self._lock:
            queue, self._queue = self._queue, deque()
            self._crossing = False
        for function in queue:
            function()


class Loops:
    """The `LoopCalls` of each event loop of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopCalls] = (
            weakref.WeakKeyDictionary()
        )

    def of(self, loop: asyncio.AbstractEventLoop) -> LoopCalls:
        """The calls into `loop`."""
        with self._lock:
            calls = self._calls.get(loop)
            if calls is None:
                calls = self._calls[loop] = LoopCalls(loop)
            return calls

    async def wait(self, subscribe: Callable[[Wake], object]) -> None:
        """Wait until the callback that `subscribe` is given has been called, from any thread."""
        loop = asyncio.get_running_loop()
        calls = self.of(loop)
        future: asyncio.Future[None] = loop.create_future()

        def settle() -> None:
            if not future.done():
                future.set_result(None)

        subscribe(lambda: calls.call(settle))
        await future


class Bell:
    """Something that other threads ring and one coroutine waits for, again and again."""

    def __init__(self, loops: Loops) -> None:
        self._calls = loops.of(asyncio.get_running_loop())
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake the coroutine that waits; usable from any thread."""
        self._calls.call(self._rung.set)

    async def wait(self) -> None:
        """Wait for a ring since the last wait."""
        await self._rung.wait()
        self._rung.clear()


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs on this thread, if any."""
    with contextlib.suppress(RuntimeError):
        return asyncio.get_running_loop()
    return None
