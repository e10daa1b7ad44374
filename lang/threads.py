"""The threads that the language uses: bodies share a limited number, time-outs share one.

Neither keeps an idle thread: a thread ends when it has no more to do.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Protocol


class Claimable(Protocol):
    """A program run that has not started; whoever claims it runs its body."""

    def claim(self) -> bool:
        """Take the right to run the body; True for the first caller only."""

    def run_body(self) -> None:
        """Run the body on this thread."""


def _run_if_free(run: Claimable) -> None:
    if run.claim():
        run.run_body()


class BodyThreads:
    """At most `limit()` live threads for program bodies; what finds none free waits in a backlog.

    A run in the backlog isn't claimed: a reader that needs it first may claim it and run it on its
    own thread, so a full house can't deadlock.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._live = 0
        self._numbers = itertools.count()
        self._backlog: deque[Claimable] = deque()

    @property
    def live(self) -> int:
        """Threads that exist now."""
        return self._live

    def start(self, run: Claimable) -> bool:
        """Run a body on a thread of its own now, or when one is free; whether one was free."""
        with self._lock:
            if self._live >= self._limit():
                self._backlog.append(run)
                return False
            self._live += 1
        # Not claimed before its thread exists: where none can be had, whoever waits runs it.
        try:
            self._spawn(functools.partial(_run_if_free, run))
        except RuntimeError:  # The system gives no more threads.
            with self._lock:
                self._backlog.append(run)
            return False
        return True

    def spawn(self, work: Callable[[], None]) -> bool:
        """Run `work` on a thread; False, and nothing is done, when none is free."""
        with self._lock:
            if self._live >= self._limit():
                return False
            self._live += 1
        self._spawn(work)
        return True

    def _spawn(self, work: Callable[[], object]) -> None:
        name = f"ramet-body-{next(self._numbers)}"
        try:
            threading.Thread(target=self._work, args=(work,), name=name, daemon=True).start()
        except BaseException:
            with self._lock:
                self._live -= 1
            raise

    def _work(self, work: Callable[[], object]) -> None:
        work()
        while True:
            with self._lock:
                # The end of a thread is decided under the lock, so that no run is left behind.
                if not self._backlog or self._live > self._limit():
                    self._live -= 1
                    return
                run = self._backlog.popleft()
            _run_if_free(run)


class Alarm:
    """Calls back after given times, on one thread that lives while something is set."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._rings: list[tuple[float, int, Callable[[], None]]] = []
        self._set: set[int] = set()
        self._numbers = itertools.count()
        self._running = False

    def set(self, seconds: float, ring: Callable[[], None]) -> int:
        """Have `ring()` called in `seconds`; gives a number to `clear` it by."""
        with self._lock:
            number = next(self._numbers)
            heapq.heappush(self._rings, (time.monotonic() + seconds, number, ring))
            self._set.add(number)
            if not self._running:
                threading.Thread(target=self._run, name="ramet-alarm", daemon=True).start()
                self._running = True
            self._changed.notify()
        return number

    def clear(self, number: int) -> None:
        """Forget a ring; does nothing if it has rung."""
        with self._lock:
            self._set.discard(number)
            if len(self._rings) > 2 * len(self._set) + 64:
                self._rings = [ring for ring in self._rings if ring[1] in self._set]
                heapq.heapify(self._rings)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._lock:
                while self._rings and self._rings[0][1] not in self._set:
                    heapq.heappop(self._rings)
                if not self._rings:
                    self._running = False
                    return
                due, number, ring = self._rings[0]
                wait = due - time.monotonic()
                if wait > 0:
                    self._changed.wait(min(wait, threading.TIMEOUT_MAX))
                    continue
                heapq.heappop(self._rings)
                self._set.discard(number)
            try:
                ring()
            except Exception:  # The other rings must not be lost.
                traceback.print_exc()
