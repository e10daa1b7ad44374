"""Values of compiled runs: what functions bring, and other values seen in their own way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ramet.lang.values import Pending, SharedValue

if TYPE_CHECKING:
    from ramet.lang.instance import Instance


class TypedView(SharedValue):
    """What a value is as its type, for a program that passes it on."""

    def read(self) -> Any:
        """The typed value."""
        return self._value.typed()


class ComputedValue(Pending):
    """A value that a function of the user's gives, on some thread."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._done = False
        self._value: Any = None
        self._callbacks: list[Callable[[], object]] = []

    def put(self, value: object) -> None:
        """Give it its value; only the first one counts."""
        with self._instance.changed.lock:
            if self._done:
                return
            self._value, self._done = value, True
            callbacks, self._callbacks = self._callbacks, []
            self._instance.changed.notify_all()
        for callback in callbacks:
            callback()

    def fail(self) -> None:
        """Say that it will never come, because its program has failed."""
        self.put(_Nothing)

    def done(self) -> bool:
        """Whether it is there."""
        return self._done

    def on_done(self, callback: Callable[[], object]) -> None:
        """Have `callback()` called once it is there."""
        with self._instance.changed.lock:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback()

    def read(self) -> Any:
        """The value, waiting for it; raises why its program failed if it never comes."""
        if not self._done:
            self._instance.check_may_block()
        self._instance.changed.wait_until(lambda: self._done)
        if self._value is _Nothing:
            self._instance.raise_failure()
        return self._value


class _Nothing:
    """Stands for a value that will never come."""
