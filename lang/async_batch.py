"""`arun_batch`: many instances of one program on an event loop, in order, with no thread each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sized
from typing import Any

from ramet.lang.batch import BatchOptions, batch_failure, progress
from ramet.lang.errors import Cancelled
from ramet.lang.instance import Instance
from ramet.lang.loops import Bell
from ramet.lang.session import session

WINDOW = 10_000
"""Most items that are in flight at once, so that memory doesn't grow with the number of items."""

_BREATH = 64
"""Items that are started before the event loop may do something else."""


async def arun_all(
    name: str,
    items: Iterable[Any],
    make: Callable[[Any, int | None], Instance],
    launch: Callable[[Instance], None],
    options: BatchOptions,
) -> list[Any]:
    """Run an instance for each item, as `Function.arun_batch` says."""
    batch = _AsyncBatch(items, make, launch, options)
    total = len(items) if isinstance(items, Sized) else None
    with progress(name, total, options.progress_bar) as show:
        try:
            outcomes = await batch.run(show)
        except BaseException:
            batch.abandon(Cancelled(f"{name}: its arun_batch was abandoned"))
            raise
    failures = {i: error for i, (_, error) in enumerate(outcomes) if error is not None}
    results = [state if error is None else error for state, error in outcomes]
    if failures and not options.return_exceptions:
        raise batch_failure(failures, results)
    return results


class _AsyncBatch:
    """One batch while it runs, all on its event loop's thread but `_end`."""

    def __init__(
        self,
        items: Iterable[Any],
        make: Callable[[Any, int | None], Instance],
        launch: Callable[[Instance], None],
        options: BatchOptions,
    ) -> None:
        self._items = options.with_seeds(items)
        self._make, self._launch = make, launch
        self._running: dict[int, Instance] = {}
        self._ended: deque[int] = deque()  # Filled by whatever thread ends an instance.
        self._outcomes: dict[int, tuple[Any, BaseException | None]] = {}
        self._num_drawn = 0
        self._exhausted = False
        self._draw_error: Exception | None = None

    async def run(self, show: Callable[[int], object]) -> list[tuple[Any, BaseException | None]]:
        """(state, error) of each item in order; raises what the items' own iterator raised."""
        bell = Bell(session.loops)
        while not self._exhausted or self._running:
            started = 0
            while not self._exhausted and len(self._running) < WINDOW and started < _BREATH:
                self._draw(bell)
                started += 1
            if started == _BREATH:
                await asyncio.sleep(0)
            elif self._running and not self._ended:
                await bell.wait()
            show(self._collect())
        if self._draw_error is not None:
            raise self._draw_error
        return [self._outcomes[index] for index in range(self._num_drawn)]

    def abandon(self, reason: Cancelled) -> None:
        """End what still runs."""
        for instance in list(self._running.values()):
            instance.fail(reason)

    def _draw(self, bell: Bell) -> None:
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
            self._outcomes[index] = None, error
            return
        self._running[index] = instance
        self._launch(instance)

        def end(_instance: Instance) -> None:
            self._ended.append(index)
            bell.ring()

        instance.on_finish(end)

    def _collect(self) -> int:
        count = 0
        while self._ended:
            index = self._ended.popleft()
            instance = self._running.pop(index)
            self._outcomes[index] = instance.state, instance.deliver()
            count += 1
        return count
