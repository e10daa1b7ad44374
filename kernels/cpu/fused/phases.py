"""How the threads of a step share the tasks of a phase; see `team`.

Each thread begins with its own share, consecutive tasks, so that it reads weights in one stream,
the same ones in each step; who is done helps the others. A phase is over when all its tasks are
done. Its counters lie in cache lines of their own: how many tasks are done, then for each thread
how many of its share are taken.
"""

from __future__ import annotations

from ramet.kernels.cpu.fused.jit import inlined
from ramet.kernels.cpu.fused.lanes import fetch_add, give_way, pause, peek, prefetch

LINE = 64
"""Bytes of a cache line."""
_LOOKS = 300
"""How often a thread looks whether a phase is over before it gives way in between."""
_AT_ONCE = 8
"""Lines that are asked for between two looks."""


def phase_bytes(threads: int) -> int:
    """Bytes of a phase's counters."""
    return LINE * (1 + threads)


@inlined
def take(phase, total, thread, threads):
    """The number of a task that is now this thread's, or -1 if none of `total` is left."""
    for index in range(threads):
        whose = (thread + index) % threads
        first, last = total * whose // threads, total * (whose + 1) // threads
        counter = phase + LINE * (1 + whose)
        if peek(counter) < last - first:
            task = first + fetch_add(counter, 1)
            if task < last:
                return task
    return -1


@inlined
def finish(phase):
    """A task that this thread took is done."""
    fetch_add(phase, 1)


@inlined
def wait(phase, total, ahead, end):
    """Wait until all tasks of a phase are done, whoever does them.

    What this thread will read next, from address `ahead` to `end`, is asked for meanwhile.
    """
    looks = 0
    while peek(phase) < total:
        if ahead < end:
            for _ in range(_AT_ONCE):
                prefetch(ahead)
                ahead += LINE
        else:
            pause()
            looks += 1
            if looks > _LOOKS:
                give_way()
