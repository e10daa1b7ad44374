"""One run of a program: its body, the calls it has made, how it ends.

The body runs on whatever thread claims it. Calls end on the backend's thread, so a run whose body
is over needs no thread to finish: the last call's end finishes it.
"""

from __future__ import annotations

import contextvars
import hashlib
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ramet.lang.backends.protocol import Backend
from ramet.lang.errors import Cancelled, ProgramError
from ramet.lang.session import session
from ramet.lang.values import CallValue

if TYPE_CHECKING:
    from ramet.lang.branch import Branch

_current: contextvars.ContextVar[Instance | None] = contextvars.ContextVar(
    "ramet_instance", default=None
)


MAX_NESTING = 64
"""How deep programs may run programs; a waiting one may run its child on its own stack."""


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
        self.watched = stream or parent is not None
        """Whether somebody else than the body may hold its state while it runs."""
        self.changed = threading.Condition()
        """Guards and announces every change: new text, new variables, ends."""
        self.failure: BaseException | None = None
        """Why it failed: its body's exception, a cancellation, or a call's unread error."""
        self.finished = False
        """Whether it is over, and everything that it held is given back."""
        self.body_over = False
        """Whether the body has ended."""
        self.state: Any = None
        """The ProgramState that the body was given."""
        self._seed = seed
        self._timeout = timeout
        self._claimed = False
        self._runner: int | None = None
        self._body: Callable[[], object] = _no_body
        self._delivered = False
        self._branches: dict[Branch, None] = {}
        self._values: list[CallValue] = []
        self._nested: list[Instance] = []
        self._num_pending = 0
        self._alarm: int | None = None
        self._callbacks: list[Callable[[Instance], object]] = []
        self._depth: int = 0 if parent is None else parent._depth + 1
        if parent is not None:
            parent._adopt(self)

    @staticmethod
    def current() -> Instance | None:
        """The run whose body this code is part of, if any."""
        return _current.get()

    @property
    def inside(self) -> bool:
        """Whether this code is the body's, or may only see what the body has done so far."""
        return not self.watched or self.body_over or self._runner == threading.get_ident()

    def nested_seed(self, name: str) -> int | None:
        """The seed of the nested program `name`, which is about to start; None if this run has
        none. Raises ProgramError if programs are nested too deep."""
        if self._depth >= MAX_NESTING:
            raise ProgramError(f"{name}: programs are nested more than {MAX_NESTING} deep")
        if self._seed is None:
            return None
        stream = f"{self._seed}|nested|{len(self._nested)}".encode()
        return int.from_bytes(hashlib.blake2b(stream, digest_size=8).digest(), "little")

    def prepare(self, state: Any, body: Callable[[], object]) -> None:
        """Set the state, and the body to run on it."""
        self.state, self._body = state, body

    def claim(self) -> bool:
        """Take the right to run the body; True for the first caller only."""
        with self.changed:
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
        except BaseException as error:
            self.fail(error)
        finally:
            _current.reset(token)
            self._body = _no_body  # Its arguments may be large.
            self._end_body()

    def wait_for(self, ready: Callable[[], bool]) -> None:
        """Wait until `ready()`, or until the body is over and can't make it so any more.

        Runs the body here if nobody has started it. Returns at once inside the body.
        """
        if self.inside:
            return
        if self.claim():
            self.run_body()
        with self.changed:
            while not self.body_over and not ready():
                self.changed.wait()

    def wait_finished(self) -> None:
        """Wait until it is over, running what nobody has started."""
        if self.claim():
            self.run_body()
        with self.changed:
            while not self.body_over:
                self.changed.wait()
        for nested in self._nested:
            nested.wait_finished()
        with self.changed:
            while not self.finished:
                self.changed.wait()

    def on_finish(self, callback: Callable[[Instance], object]) -> None:
        """Have `callback(self)` called once it is over, on the thread that ends it."""
        with self.changed:
            if not self.finished:
                self._callbacks.append(callback)
                return
        callback(self)

    def track(self, value: CallValue, add_done_callback: Callable[[Any], object]) -> None:
        """Count a call as this run's."""
        with self.changed:
            self._values.append(value)
            self._num_pending += 1
        add_done_callback(self._part_over)
        if self.failure is not None:
            value.abort()

    def add_branch(self, branch: Branch) -> None:
        """Close `branch` when the body ends, at the latest."""
        with self.changed:
            self._branches[branch] = None

    def drop_branch(self, branch: Branch) -> None:
        """Forget a branch that has been closed."""
        with self.changed:
            self._branches.pop(branch, None)

    def fail(self, error: BaseException) -> None:
        """End it with `error`: everything that isn't done is aborted. Only the first one counts."""
        with self.changed:
            if self.failure is not None or self.finished:
                return
            self.failure = error
            values, nested = list(self._values), list(self._nested)
            unstarted, self._claimed = not self._claimed, True
            self.changed.notify_all()
        for value in values:
            value.abort()
        for instance in nested:
            instance.fail(error)
        if unstarted:
            self._end_body()

    def deliver(self) -> BaseException | None:
        """Why it failed, for somebody who will raise it; None if it didn't."""
        self._delivered = self._delivered or self.failure is not None
        return self.failure

    def raise_failure(self) -> None:
        """Raise why it failed, if it did."""
        failure = self.deliver()
        if failure is not None:
            raise failure

    def _adopt(self, nested: Instance) -> None:
        with self.changed:
            self._nested.append(nested)
            self._num_pending += 1
        nested.on_finish(self._part_over)

    def _time_out(self) -> None:
        self.fail(Cancelled(f"{self.name}: aborted after its timeout of {self._timeout} s"))

    def _end_body(self) -> None:
        with self.changed:
            branches = list(self._branches)
        for branch in branches:
            branch.end()
        with self.changed:
            self.body_over = True
            self.changed.notify_all()
        self._finish_if_over()

    def _part_over(self, _part: object) -> None:
        with self.changed:
            self._num_pending -= 1
        self._finish_if_over()

    def _finish_if_over(self) -> None:
        with self.changed:
            if self.finished or not self.body_over or self._num_pending:
                return
            errors: list[BaseException | None] = [value.settle() for value in self._values]
            errors += [nested._unheard() for nested in self._nested]
            if self.failure is None:
                self.failure = next((error for error in errors if error is not None), None)
            self._values, self._nested = [], []
            self.finished = True
            callbacks, self._callbacks = self._callbacks, []
            if self._alarm is not None:
                session.alarm.clear(self._alarm)
            self.changed.notify_all()
        for callback in callbacks:
            callback(self)

    def _unheard(self) -> BaseException | None:
        return None if self._delivered else self.failure


def _no_body() -> None:
    """A body that does nothing."""
