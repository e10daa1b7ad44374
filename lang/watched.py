"""What changes in a run, and who waits for it: threads, coroutines, and parts without a thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from ramet.lang.loops import Bell
from ramet.lang.session import session
from ramet.lang.threads import Claimable
from ramet.runtime.client.ring import Ring


class Changes:
    """A lock, and callbacks for every change under it.

    No `threading.Condition`: an interrupt (Ctrl-C) inside one of its methods may leave its lock
    held, and everybody else waiting.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Guards what changes."""
        self._watchers: tuple[Callable[[], object], ...] = ()
        self._spare: deque[Claimable] = deque()

    def watch(self, callback: Callable[[], object]) -> None:
        """Have `callback()` called at each change, with the lock held: it must not wait."""
        with self.lock:
            self._watchers = (*self._watchers, callback)

    def unwatch(self, callback: Callable[[], object]) -> None:
        """Stop calling `callback`."""
        with self.lock:
            # By equality: a bound method is a new object each time that it is looked up.
            self._watchers = tuple(known for known in self._watchers if known != callback)

    def notify_all(self) -> None:
        """Tell everybody who waits; for somebody who holds the lock."""
        for callback in self._watchers:
            callback()

    def announce(self) -> None:
        """Take the lock and tell everybody who waits."""
        with self.lock:
            self.notify_all()

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait until `ready()`, and meanwhile do here what no thread was free for."""
        ring = Ring()
        self.watch(ring.ring)
        try:
            while not ready():
                part = self._spare_part()
                if part is None:
                    ring.wait()
                elif part.claim():
                    part.run_body()
        finally:
            self.unwatch(ring.ring)

    async def await_until(self, ready: Callable[[], bool]) -> None:
        """Wait until `ready()` without blocking the event loop."""
        bell = Bell(session.loops)
        self.watch(bell.ring)
        try:
            while not ready():
                await bell.wait()
        finally:
            self.unwatch(bell.ring)

    def start_part(self, part: Claimable) -> None:
        """Run a part on a free thread; if there is none, whoever waits may do it, so that a full
        house can't deadlock."""
        if not session.threads.start(part):
            with self.lock:
                self._spare.append(part)
                self.notify_all()

    def drop_parts(self) -> None:
        """Forget the parts that nobody has started; for somebody who holds the lock."""
        self._spare.clear()

    def _spare_part(self) -> Claimable | None:
        with self.lock:
            return self._spare.popleft() if self._spare else None
