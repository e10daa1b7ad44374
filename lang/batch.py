"""`run_batch`: many instances of one program, in order, with a bounded number in flight.

The caller's thread draws the items, starts their instances in order and hands them to body
threads. A body that only queues calls leaves its thread at once, so the engine sees many more
instances than there are threads.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from typing import Any

from ramet.lang.errors import Cancelled, InvalidArgument
from ramet.lang.instance import Instance
from ramet.lang.threads import BodyThreads
from ramet.runtime.request import check_seed

WINDOW = 1024
"""Most items that are in flight at once, so that memory doesn't grow with the number of items."""

_LINGER = 0.02
"""Seconds that a thread waits for its next body before it ends."""


_Outcome = tuple[Any, BaseException | None]


@dataclasses.dataclass(frozen=True, slots=True)
class BatchOptions:
    """How a batch runs; raises InvalidArgument."""

    num_threads: int | str
    progress_bar: bool
    generator_style: bool
    return_exceptions: bool
    seed: int | Sequence[int] | None

    def __post_init__(self) -> None:
        threads = self.num_threads
        if threads != "auto" and (
            isinstance(threads, bool) or not isinstance(threads, int) or threads < 1
        ):
            raise InvalidArgument(
                f'num_threads={threads!r}: must be an int of at least 1 or "auto"'
            )
        for name in ("progress_bar", "generator_style", "return_exceptions"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidArgument(f"{name}={getattr(self, name)!r}: must be True or False")
        if isinstance(self.seed, (list, tuple)):
            for index, seed in enumerate(self.seed):
                check_seed(f"seed[{index}]", seed)
        else:
            check_seed("seed", self.seed)

    @property
    def waits(self) -> bool:
        """Whether the result can only be given with the items' outcomes."""
        return self.progress_bar or self.generator_style or self.return_exceptions

    def with_seeds(self, items: Iterable[Any]) -> Iterator[tuple[Any, int | None]]:
        """Each item with its seed; raises InvalidArgument if a list of seeds doesn't match."""
        seeds = self.seed
        if not isinstance(seeds, (list, tuple)):
            return ((item, seeds) for item in items)  # type: ignore[misc]
        if isinstance(items, Sized) and len(items) != len(seeds):
            raise InvalidArgument(f"seed: a list of {len(seeds)} for {len(items)} items")
        return _strictly_paired(items, seeds)


def run_all(
    name: str,
    items: Iterable[Any],
    make: Callable[[Any, int | None], Instance],
    options: BatchOptions,
    threads: BodyThreads | None,
) -> list[Any] | Iterator[Any]:
    """Run an instance for each item, as `Function.run_batch` says; without `threads`, bodies are
    started by the caller, since that takes no time."""
    total = len(items) if isinstance(items, Sized) else None
    batch = _Batch(name, options.with_seeds(items), make, options, threads)
    outcomes = batch.outcomes(total)
    if options.generator_style:
        return _as_they_come(outcomes, options)
    results: list[Any] = []
    failures: dict[int, BaseException] = {}
    with contextlib.closing(outcomes):
        for index, (state, error) in enumerate(outcomes):
            results.append(state if error is None else error)
            if error is not None:
                failures[index] = error
    if failures and not options.return_exceptions:
        raise batch_failure(failures, results)
    return results


class _Batch:
    """One batch while it runs. Its caller's thread calls `outcomes`, body threads `_work`."""

    def __init__(
        self,
        name: str,
        items: Iterator[tuple[Any, int | None]],
        make: Callable[[Any, int | None], Instance],
        options: BatchOptions,
        threads: BodyThreads | None,
    ) -> None:
        self._name = name
        self._items = items
        self._make = make
        self._threads = threads
        limit = options.num_threads
        self._max_threads = limit if isinstance(limit, int) else sys.maxsize
        self._in_order = options.generator_style
        self._progress_bar = options.progress_bar
        # Taken by itself: an interrupt may leave a condition's own methods with the lock held.
        self._lock = lock = threading.RLock()
        self._progress = threading.Condition(lock)  # For the caller.
        self._supply = threading.Condition(lock)  # For the body threads.
        # Under the lock: bodies nobody runs yet, instances that are not over, outcomes not given
        # out yet, and counts of body threads.
        self._queue: deque[Instance] = deque()
        self._running: dict[int, Instance] = {}
        self._done: dict[int, _Outcome] = {}
        self._live = self._idle = 0
        self._closed = False
        # The caller's own.
        self._num_drawn = self._num_given = self._num_shown = 0
        self._exhausted = False
        self._draw_error: Exception | None = None

    def outcomes(self, total: int | None) -> Generator[_Outcome, None, None]:
        """(state, error) of each item in order, as they finish; closing it aborts the rest."""
        with progress(self._name, total, self._progress_bar) as show:
            try:
                while True:
                    while not self._exhausted and self._has_room():
                        self._draw()
                        if self._in_order and self._num_given in self._done:
                            break  # Somebody waits for it.
                    show(self._count_new())
                    while (outcome := self._take()) is not None:
                        yield outcome
                    if self._exhausted and self._num_given == self._num_drawn:
                        break
                    self._wait()
                show(self._count_new())
            finally:
                self._close()
        if self._draw_error is not None:
            raise self._draw_error

    def _has_room(self) -> bool:
        with self._lock:
            flight = self._num_drawn - self._num_given if self._in_order else len(self._running)
            # Bodies wait in the queue for a thread only as far as threads need a supply.
            return flight < WINDOW and len(self._queue) < max(self._live, 1) * 2

    def _draw(self) -> None:
        try:
            item, seed = next(self._items)
        except StopIteration:
            self._exhausted = True
            return
        except Exception as error:
            # The items' own generator failed: what is in flight still finishes.
            self._exhausted, self._draw_error = True, error
            return
        index = self._num_drawn
        self._num_drawn += 1
        try:
            instance = self._make(item, seed)
        except Exception as error:
            self._end(index, (None, error))
            return
        with self._lock:
            self._running[index] = instance
        instance.on_finish(lambda ended: self._end(index, (ended.state, ended.deliver())))
        if self._threads is None:
            if instance.claim():
                instance.run_body()
            return
        with self._lock:
            self._queue.append(instance)
            self._supply.notify()
            grow = len(self._queue) > self._idle and self._live < self._max_threads
        if grow:
            self._grow(self._threads)

    def _grow(self, threads: BodyThreads) -> None:
        with self._lock:
            self._live += 1
        if not threads.spawn(self._work):
            with self._lock:
                self._live -= 1

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
                self._supply.wait_for(lambda: self._queue or self._closed, _LINGER)
                self._idle -= 1
                if not self._queue:
                    self._live -= 1
                    self._progress.notify()
                    return
                instance = self._queue.popleft()
                self._progress.notify()
            if instance.claim():
                instance.run_body()

    def _end(self, index: int, outcome: _Outcome) -> None:
        with self._lock:
            self._running.pop(index, None)
            self._done[index] = outcome
            self._progress.notify()

    def _count_new(self) -> int:
        with self._lock:
            shown = self._num_given + len(self._done)
        new, self._num_shown = shown - self._num_shown, shown
        return new

    def _take(self) -> _Outcome | None:
        with self._lock:
            outcome = self._done.pop(self._num_given, None)
        if outcome is not None:
            self._num_given += 1
        return outcome

    def _wait(self) -> None:
        """Wait until the caller has something to do; run a body here if no thread can be had."""
        with self._lock:
            self._progress.wait_for(
                lambda: (
                    self._num_given in self._done
                    or self._num_given + len(self._done) != self._num_shown
                    or (not self._exhausted and self._has_room())
                    or (self._live == 0 and self._queue)
                )
            )
            if self._live or not self._queue:
                return
            instance = self._queue.popleft()
        if instance.claim():
            instance.run_body()

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            abandoned = list(self._running.values())
            self._queue.clear()
            self._supply.notify_all()
        for instance in abandoned:
            instance.fail(Cancelled(f"{self._name}: its run_batch was abandoned"))
        if not abandoned:
            with self._lock:
                self._progress.wait_for(lambda: self._live == 0)


def _as_they_come(
    outcomes: Generator[_Outcome, None, None], options: BatchOptions
) -> Iterator[Any]:
    failures: dict[int, BaseException] = {}
    with contextlib.closing(outcomes):
        for index, (state, error) in enumerate(outcomes):
            if error is not None and options.return_exceptions:
                yield error
                continue
            if error is not None:
                failures[index] = error
            yield state
    if failures:
        raise batch_failure(failures, None)


def batch_failure(failures: dict[int, BaseException], results: list[Any] | None) -> BaseException:
    """The first failing item's exception, with a note of its index and all outcomes attached."""
    index, error = next(iter(failures.items()))
    with contextlib.suppress(Exception):  # An exception class may forbid notes and attributes.
        error.add_note(f"raised by item {index} of run_batch ({len(failures)} failed)")
        error.failures = failures  # type: ignore[attr-defined]
        if results is not None:
            error.results = results  # type: ignore[attr-defined]
    return error


def _strictly_paired(
    items: Iterable[Any], seeds: Sequence[int]
) -> Iterator[tuple[Any, int | None]]:
    missing = object()
    for item, seed in itertools.zip_longest(items, seeds, fillvalue=missing):
        if item is missing or seed is missing:
            raise InvalidArgument("seed: the list of seeds and the items differ in number")
        yield item, seed  # type: ignore[misc]


@contextlib.contextmanager
def progress(name: str, total: int | None, shown: bool) -> Iterator[Callable[[int], object]]:
    """A progress bar on stderr for a `with` block, or none; gives what to call with new ends."""
    if not shown:
        yield lambda _: None
        return
    from tqdm import tqdm  # Costs start-up time that most runs can do without.

    class Bar(tqdm):  # type: ignore[misc]
        monitor_interval = 0  # No monitor thread.

    # A terminal is redrawn; a file gets a line now and then, on stderr, and the last one.
    interval = 0.1 if sys.stderr.isatty() else 10.0
    with Bar(total=total, desc=name, file=sys.stderr, mininterval=interval, unit="run") as bar:
        yield bar.update
