"""A condition that can also be watched by callbacks, for readers that may not block a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable


class WatchedCondition(threading.Condition):
    """`threading.Condition` whose `notify_all` also calls back whoever watches."""

    def __init__(self) -> None:
        super().__init__()
        self._watchers: tuple[Callable[[], None], ...] = ()

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
