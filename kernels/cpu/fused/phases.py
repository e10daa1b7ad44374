"""How the threads of a step share the tasks of a phase; see `team`.

A phase has two counters, each in a cache line of its own: the next task, and how many are done.
"""

from __future__ import annotations

from ramet.kernels.cpu.fused.jit import inlined
from ramet.kernels.cpu.fused.lanes import fetch_add, give_way, pause, peek

PHASE_BYTES = 128
_DONE = 64
_LOOKS = 300
"""How often a thread looks whether a phase is over before it gives way in between."""


@inlined
def take(phase, total):
    """The number of a task that is now this thread's, or -1 if none of `total` is left."""
    task = fetch_add(phase, 1)
    return task if task < total else -1


@inlined
def finish(phase):
    """A task that this thread took is done."""
    fetch_add(phase + _DONE, 1)


@inlined
def wait(phase, total):
    """Wait until all tasks of a phase are done, whoever does them."""
    looks = 0
    while peek(phase + _DONE) < total:
        pause()
        looks += 1
        if looks > _LOOKS:
            give_way()
