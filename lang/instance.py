"""One run of a program: its body, the calls it has made, how it ends.

A body runs on whatever thread claims it; or it is detached, and goes on as a task of an event loop
or from callback to callback. Calls end on the backend's thread, so a run whose body is over needs
no thread to finish: the last call's end finishes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ramet.lang.backends.protocol import Backend
from ramet.lang.errors import Cancelled, ProgramError
from ramet.lang.expr import Gen, Select
from ramet.lang.loops import running_loop
from ramet.lang.recording import Recording
from ramet.lang.scope import Scope
from ramet.lang.session import session
from ramet.lang.values import CallValue
from ramet.lang.watched import Changes
from ramet.runtime.client.call import Call

if TYPE_CHECKING:
    from ramet.lang.branch import Branch

_current: contextvars.ContextVar[Instance | None] = contextvars.ContextVar(
    "ramet_instance", default=None
)


def _nothing() -> None:
    """A body, or an interrupt, that does nothing."""


class Instance:
    """A program instance: waiting, running its body, waiting for its calls, finished.

    It has finished when its body, its calls, its branches and its nested programs have.
    """

    def __init__(
        self,
        name: str,
        backend: Backend,
        *,
        seed: int | None = None,
        sampling: Mapping[str, Any] | None = None,
        stream: bool = False,
        logprob_texts: bool = True,
        timeout: float | None = None,
        parent: Instance | None = None,
    ) -> None:
        self.name = name
        """The program's name."""
        self.backend = backend
        """What runs its calls."""
        self.sampling: Mapping[str, Any] = sampling or {}
        """The run's own sampling fields."""
        self.streams = stream
        """Whether calls report their text as it comes."""
        self.logprob_texts = logprob_texts
        """Whether entries of log-probabilities keep the tokens' texts, where a call doesn't say."""
        self.watched = stream or parent is not None
        """Whether somebody else than the body may hold its state while it runs."""
        self.changed = Changes()
        """Guards and announces every change: new text, new variables, ends."""
        self.failure: BaseException | None = None
        """Why it failed: its body's exception, a cancellation, or a call's unread error."""
        self.finished = False
        """Whether it is over, and everything that it held is given back."""
        self.body_over = False
        """Whether the body has ended."""
        self.state: Any = None
        """The ProgramState that the body was given."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop that an async body runs on."""
        self.recording = Recording()
        """What it has done so far, as a graph to be."""
        self._parent = parent
        self.scope: Scope = Scope(self, seed, 0 if parent is None else parent.scope.depth + 1)
        """From which the seeds of nested programs derive."""
        self._detached = False
        self._interrupt: Callable[[], object] = _nothing
        self._timeout = timeout
        self._claimed = False
        self._runner: int | None = None
        self._body: Callable[[], object] = _nothing
        self._delivered = False
        self.branches: dict[Branch, None] = {}
        """Those that are open; the end of the body closes them."""
        self.calls: list[tuple[Gen | Select, str, CallValue]] = []
        """Every call so far with its branch's path, in the order in which they were made."""
        self._nested: list[Instance] = []
        # Added to and taken from by any thread without the lock; see `_part_over`.
        self._open: set[object] = set()
        self._alarm: int | None = None
        self._callbacks: list[Callable[[Instance], object]] = []
        if parent is not None:
            parent._adopt(self)

    @staticmethod
    def current() -> Instance | None:
        """The run whose body this code is part of, if any."""
        return _current.get()

    @property
    def inside(self) -> bool:
        """Whether this code is the body's, or may only see what the body has done so far."""
        if not self.watched or self.body_over:
            return True
        if not self._detached:
            return self._runner == threading.get_ident()
        return self._runs_here()

    def prepare(
        self,
        state: Any,
        body: Callable[[], object],
        *,
        detached: bool = False,
        interrupt: Callable[[], object] = _nothing,
    ) -> None:
        """Set the state, and the body to run on it.

        A detached body only starts what goes on by itself and calls `end_body` in the end;
        `interrupt()` tells it that the run has failed.
        """
        self.state, self._body = state, body
        self._detached, self._interrupt = detached, interrupt

    def claim(self) -> bool:
        """Take the right to run the body; True for the first caller only."""
        with self.changed.lock:
            claimed, self._claimed = self._claimed, True
        return not claimed

    def run_body(self) -> None:
        """Run the body on this thread, which has claimed it. Raises nothing."""
        token = _current.set(self)
        self._runner = threading.get_ident()
        try:
            if self._timeout is not None:
                self._alarm = session.alarm.set(self._timeout, self._time_out)
            self._body()
            over = not self._detached
        except BaseException as error:
            self.fail(error)
            over = True
        _current.reset(token)
        self._body = _nothing  # Its arguments may be large.
        if over:
            self.end_body()

    def wait_for(self, ready: Callable[[], bool]) -> None:
        """Wait until `ready()`, or until the body is over and can't make it so any more.

        Runs the body here if nobody has started it. Returns at once inside the body.
        """
        if self.inside or ready():
            return
        self.check_may_block()
        self._check_loop()
        if self.claim():
            self.run_body()
        self.changed.wait_until(lambda: self.body_over or ready())

    async def await_for(self, ready: Callable[[], bool]) -> None:
        """`wait_for` without blocking the event loop."""
        if not self.inside and not ready():
            await self.changed.await_until(lambda: self.body_over or ready())

    def check_may_block(self) -> None:
        """Raise ProgramError if waiting for this run here would block the loop of an async body."""
        loop = running_loop()
        if loop is None:
            return
        current = _current.get()
        if self.loop is loop or (current is not None and current.loop is loop):
            raise ProgramError(
                f"{self.name}: the value is not there yet, and waiting for it here would block the "
                "event loop; use `await s.get(name)`, `await s.aget_text()`, `await s.wait()`, "
                "`async for … in s.text_async_iter()` or `await forks.ajoin(mode)`"
            )

    def wait_finished(self) -> None:
        """Wait until it is over, running what nobody has started."""
        if self.finished:
            return
        self.check_may_block()
        self._check_loop()
        if self.claim():
            self.run_body()
        self.changed.wait_until(lambda: self.body_over)
        for nested in self._nested:
            nested.wait_finished()
        self.changed.wait_until(lambda: self.finished)

    def on_finish(self, callback: Callable[[Instance], object]) -> None:
        """Have `callback(self)` called once it is over, on the thread that ends it."""
        with self.changed.lock:
            if not self.finished:
                self._callbacks.append(callback)
                return
        callback(self)

    def track(self, value: CallValue, call: Call[Any], node: Gen | Select, path: str) -> None:
        """Count a call as this run's; `path` is its branch's."""
        # In this order, so that an interrupt in between leaves nothing to wait for.
        call.add_done_callback(self._part_over)
        self._open.add(call)
        self.calls.append((node, path, value))
        if call.done():
            self._part_over(call)
        if self.failure is not None:
            value.abort()

    def fail(self, error: BaseException) -> None:
        """End it with `error`: everything that isn't done is aborted. Only the first one counts."""
        with self.changed.lock:
            if self.failure is not None or self.finished:
                return
            self.failure = error
            calls, nested = list(self.calls), list(self._nested)
            unstarted, self._claimed = not self._claimed, True
            self.changed.notify_all()
        for _, _, value in calls:
            value.abort()
        for instance in nested:
            instance.fail(error)
        self._interrupt()
        if unstarted:
            self.end_body()

    def deliver(self) -> BaseException | None:
        """Why it failed, for somebody who will raise it; None if it didn't."""
        # Its own body only fails of it.
        if self.failure is not None and not self._runs_here():
            self._delivered = True
        return self.failure

    def raise_failure(self) -> None:
        """Raise why it failed, if it did."""
        failure = self.deliver()
        if failure is not None:
            raise failure

    def _adopt(self, nested: Instance) -> None:
        self._nested.append(nested)
        self._open.add(nested)
        nested.on_finish(self._part_over)

    def _time_out(self) -> None:
        self.fail(Cancelled(f"{self.name}: aborted after its timeout of {self._timeout} s"))

    def end_body(self) -> None:
        """The body is over: whatever is queued goes on, and nothing new may come."""
        if self.body_over:
            return
        with self.changed.lock:
            branches = list(self.branches)
        for branch in branches:
            branch.end()
        with self.changed.lock:
            self.body_over = True
            self.changed.notify_all()
        self._finish_if_over()

    def _part_over(self, part: object) -> None:
        # No lock: calls end while the body makes others. Whichever comes last, this or the end of
        # the body, sees the other.
        self._open.discard(part)
        if self.body_over and not self._open:
            self._finish_if_over()

    def _finish_if_over(self) -> None:
        with self.changed.lock:
            if self.finished or not self.body_over or self._open:
                return
            errors: list[BaseException | None] = [value.settle() for _, _, value in self.calls]
            errors += [nested._unheard() for nested in self._nested]
            if self.failure is None:
                self.failure = next((error for error in errors if error is not None), None)
            self._nested = []
            self._interrupt = _nothing
            self.changed.drop_parts()
            self.finished = True
            callbacks, self._callbacks = self._callbacks, []
            if self._alarm is not None:
                session.alarm.clear(self._alarm)
            self.changed.notify_all()
        for callback in callbacks:
            callback(self)

    def _check_loop(self) -> None:
        """Fail a run whose body can't go on, because its event loop was closed."""
        if self.loop is not None and self.loop.is_closed() and not self.body_over:
            self.fail(Cancelled(f"{self.name}: the event loop of its body was closed"))

    def _runs_here(self) -> bool:
        """Whether this code is part of this run, or of a program that it runs."""
        current = _current.get()
        while current is not None and current is not self:
            current = current._parent
        return current is self

    def _unheard(self) -> BaseException | None:
        return None if self._delivered else self.failure


@contextlib.contextmanager
def running(instance: Instance) -> Iterator[None]:
    """What runs inside belongs to `instance`."""
    token = _current.set(instance)
    try:
        yield
    finally:
        _current.reset(token)


async def await_end(instance: Instance) -> None:
    """Wait, without blocking the event loop, until a run is over."""
    if not instance.finished:
        await session.loops.wait(lambda wake: instance.on_finish(lambda _: wake()))
