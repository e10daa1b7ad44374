"""A condition that can also be watched by callbacks, for readers that may not block a thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from ramet.lang.loops import Bell
from ramet.lang.session import session
from ramet.lang.threads import Claimable


class WatchedCondition(threading.Condition):
    """`threading.Condition` whose `notify_all` also calls back whoever watches."""

    def __init__(self) -> None:
        super().__init__()
        self._watchers: tuple[Callable[[], None], ...] = ()
        self._spare: deque[Claimable] = deque()

    def watch(self, callback: Callable[[], None]) -> None:
        """Have `callback()` called at each `notify_all`, with the lock held: it must not wait."""
        with self:
            self._watchers = (*self._watchers, callback)

    def unwatch(self, callback: Callable[[], None]) -> None:
        """Stop calling `callback`."""
        with self:
            # By equality: a bound method is a new object each time that it is looked up.
            self._watchers = tuple(known for known in self._watchers if known != callback)

    def notify_all(self) -> None:
        """Wake every thread that waits, and call every watcher."""
        super().notify_all()
        for callback in self._watchers:
            callback()

    def announce(self) -> None:
        """Take the lock and notify everybody."""
        with self:
            self.notify_all()

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait until `ready()`, and meanwhile do here what no thread was free for."""
        while True:
            with self:
                while not ready() and not self._spare:
                    self.wait()
                if ready():
                    return
                part = self._spare.popleft()
            if part.claim():
                part.run_body()

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
            with self:
                self._spare.append(part)
                self.notify_all()

    def drop_parts(self) -> None:
        """Forget the parts that nobody has started; for somebody who holds the lock."""
        self._spare.clear()
