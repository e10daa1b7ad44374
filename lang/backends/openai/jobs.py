"""Calls on a remote endpoint: each waits for the one before it, then for one of few threads.

A call of a context needs the text of the one before it, so it is queued when that has ended; calls
of different contexts run side by side. Threads start when there is work and end when there is
none. Used by `handle`; knows nothing of HTTP but the ticket that ends a request.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable

from ramet.lang.backends.openai.speculation import Ahead
from ramet.lang.backends.openai.transport import Ticket
from ramet.runtime.client.call import Call, CallResult
from ramet.runtime.errors import BackendError, Cancelled, RametError

SHUT_DOWN = "the backend is shut down"


class Job:
    """One call, and the work that answers it."""

    def __init__(
        self,
        call_id: int,
        work: Callable[[Job], CallResult],
        abort: Callable[[Job], None],
        *,
        streams: bool = False,
    ) -> None:
        self.call: Call[CallResult] = Call(
            call_id, lambda event: event["result"], lambda _: abort(self), streams=streams
        )
        """What the language holds."""
        self.ticket = Ticket()
        """Ends its requests."""
        self.text = ""
        """Its text, once it has ended well."""
        self.ahead: Ahead | None = None
        """What the endpoint wrote beyond its text."""
        self.error: Exception | None = None
        """Why it failed, once it has."""
        self.ended = False
        """Whether it is over."""
        self.work = work
        self.behind: list[Job] = []
        """Jobs that wait for this one."""

    def tell(self, text: str, sample: int = 0, logprobs: list[object] | None = None) -> None:
        """Hand on text that cannot be taken back; raises Cancelled if nobody wants it any more."""
        self.ticket.check()
        self.ticket.delivered = self.ticket.delivered or bool(text)
        event: dict[str, object] = {"sample": sample, "text": text, "ids": []}
        if logprobs is not None:
            event["logprobs"] = logprobs
        self.call.feed(event)


class Jobs:
    """Runs jobs on at most `limit` threads. All methods may be used from any thread."""

    def __init__(self, limit: int, name: str) -> None:
        self.num_running = 0
        """Jobs that a thread works on."""
        self._limit, self._name = limit, name
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._ready: deque[Job] = deque()
        self._open: set[Job] = set()
        self._live = 0
        self._closed = False

    @property
    def num_waiting(self) -> int:
        """Jobs that wait, for the one before them or for a thread."""
        return len(self._open) - self.num_running

    def start(
        self, work: Callable[[Job], CallResult], after: Job | None, *, streams: bool = False
    ) -> Job:
        """A new job that runs once `after` has ended, and fails if that fails.

        Raises BackendError after `close`.
        """
        job = Job(next(self._numbers), work, self._abort, streams=streams)
        error = None
        with self._lock:
            if self._closed:
                raise BackendError(SHUT_DOWN)
            self._open.add(job)
            if after is None or after.ended:
                error = None if after is None else after.error
                if error is None:
                    self._ready.append(job)
            else:
                after.behind.append(job)
        if error is not None:
            self._end(job, None, _copy(error))
        self._hire()
        return job

    def close(self) -> None:
        """Fail what is left, and take no more."""
        with self._lock:
            self._closed = True
            jobs = list(self._open)
            self._ready.clear()
        for job in jobs:
            job.ticket.cancel()
            self._end(job, None, BackendError(SHUT_DOWN))

    def _abort(self, job: Job) -> None:
        job.ticket.cancel()
        self._end(job, None, Cancelled("the call was aborted"))

    def _hire(self) -> None:
        """Start a thread if there is work for one more."""
        with self._lock:
            if self._live >= self._limit or not self._ready:
                return
            self._live += 1
            number = next(self._numbers)
        try:
            name = f"{self._name}-{number}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        except RuntimeError as error:
            with self._lock:
                self._live -= 1
                # Without any thread nobody would ever do it.
                stuck = [] if self._live else list(self._ready)
            for job in stuck:
                self._end(job, None, BackendError(f"no thread for a request: {error}"))

    def _work(self) -> None:
        while True:
            with self._lock:
                # The end of a thread is decided under the lock, so that no job is left behind.
                job = self._ready.popleft() if self._ready else None
                if job is None:
                    self._live -= 1
                    return
                if job.ended:
                    continue
                self.num_running += 1
            result, error = None, None
            try:
                result = job.work(job)
            except RametError as failure:
                error = failure
            except Exception as failure:
                error = BackendError(f"{type(failure).__name__}: {failure}")
                error.__cause__ = failure
            finally:
                with self._lock:
                    self.num_running -= 1
            self._end(job, result, error)

    def _end(self, job: Job, result: CallResult | None, error: Exception | None) -> None:
        """End a job, and the ones behind it if it failed. The first end counts."""
        failed: deque[tuple[Job, Exception | None]] = deque([(job, error)])
        while failed:
            ending, reason = failed.popleft()
            with self._lock:
                if ending.ended:
                    continue
                ending.ended, ending.error = True, reason
                ending.work = _nothing  # It holds the whole prompt.
                self._open.discard(ending)
                behind, ending.behind = ending.behind, []
                if reason is None and result is not None:
                    ending.text = result.texts[0]
                    self._ready += behind
            if reason is not None:
                # Not by recursion: a context may have thousands of calls behind a failed one.
                failed += ((next_one, _copy(reason)) for next_one in behind)
                ending.call.fail(reason)
            else:
                ending.call.finish({"result": result})
                for _ in behind[1:]:  # This thread does the first one itself.
                    self._hire()


def _copy(error: Exception) -> Exception:
    """One per caller: a raised exception grows a traceback."""
    copy = type(error)(*error.args)
    with contextlib.suppress(AttributeError):
        copy.__dict__.update(error.__dict__)
    return copy


def _nothing(job: Job) -> CallResult:
    raise BackendError("this job is over")
