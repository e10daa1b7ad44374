"""The threads that compute a step together, and how they share its work.

A step is a row of *phases*, each a number of tasks. Whoever is there takes the next task of the
phase; a phase is over when all its tasks are done, not when all threads have come, so a thread that
the system has put aside holds up nobody unless it does so in the middle of a task. There is no
OpenMP here, no barrier, and one process has one team: kernels of two engines never run at once.

Between steps the threads look for the next one for about a millisecond, then sleep.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from ramet.kernels.cpu.fused.jit import inlined, jit
from ramet.kernels.cpu.fused.jobs import perform
from ramet.kernels.cpu.fused.lanes import fetch_add, give_way, pause, peek, poke
from ramet.kernels.cpu.fused.phases import LINE

_GATE, _INSIDE, _KIND, _JOB, _ASLEEP = 0, LINE, 2 * LINE, 2 * LINE + 8, 3 * LINE
_LOOKS = 1500
"""How often a thread looks for the next step before it sleeps; about a millisecond of quiet."""
_EAGER = 50
"""Looks without giving way in between."""


@inlined
def _wait_for_step(control, seen, thread):
    """The gate's number of a step that this thread has entered, later than `seen`; -1 to sleep."""
    looks = 0
    while True:
        gate = peek(control + _GATE)
        if gate & 1 and gate != seen:
            fetch_add(control + _INSIDE, 1)
            if peek(control + _GATE) == gate:
                return gate
            fetch_add(control + _INSIDE, -1)
        looks += 1
        if looks > _LOOKS:
            poke(control + _ASLEEP + thread * LINE, 1)
            if peek(control + _GATE) == gate:
                return -1
            poke(control + _ASLEEP + thread * LINE, 0)
            looks = 0
        for _ in range(20):
            pause()
        if looks > _EAGER:
            give_way()


@jit
def _serve(control, seen, thread):
    """Do this thread's part of step after step, until nothing came for a while."""
    while True:
        gate = _wait_for_step(control, seen, thread)
        if gate < 0:
            return seen
        seen = gate
        perform(peek(control + _KIND), peek(control + _JOB), thread)
        fetch_add(control + _INSIDE, -1)


@jit
def _open(control, kind, job):
    """Let the others into a step."""
    poke(control + _KIND, kind)
    poke(control + _JOB, job)
    fetch_add(control + _GATE, 1)


@jit
def _lead(control, kind, job):
    """Do an open step with the others, and close it behind the last."""
    perform(kind, job, 0)
    fetch_add(control + _GATE, 1)
    looks = 0
    while peek(control + _INSIDE) > 0:
        pause()
        looks += 1
        if looks > 1000:
            give_way()


KERNELS: tuple[Any, ...] = (_serve, _open, _lead)
"""Each takes three int64."""


class Team:
    """`size` threads, the caller's among them, for one job at a time."""

    def __init__(self, size: int) -> None:
        self.size = size
        """Threads; a job's scratch memory is for as many."""
        self._lock = threading.Lock()
        self._memory = np.zeros((size + 4) * LINE // 8, dtype=np.int64)
        skipped = -self._memory.ctypes.data % LINE
        self._control = self._memory.ctypes.data + skipped
        first = (skipped + _ASLEEP) // 8
        self._asleep = self._memory[first : first + size * LINE // 8 : LINE // 8]
        self._wakes = [threading.Semaphore(0) for _ in range(size)]
        for number in range(1, size):
            threading.Thread(
                target=self._serve, args=(number,), name=f"kernel-team-{number}", daemon=True
            ).start()

    def run(self, kind: int, job: int) -> None:
        """Do the job at an address together; `jobs.perform` says which kinds there are."""
        with self._lock:
            _open(self._control, kind, job)
            # Whoever falls asleep says so first, then looks at the gate once more.
            for number in range(1, self.size):
                if self._asleep[number]:
                    self._asleep[number] = 0
                    self._wakes[number].release()
            _lead(self._control, kind, job)

    def _serve(self, number: int) -> None:
        seen = 0
        while True:
            seen = _serve(self._control, seen, number)
            self._wakes[number].acquire()


class _TheTeam:
    """The one team of this process."""

    lock = threading.Lock()
    team: Team | None = None


def the_team(size: int) -> Team:
    """The team of this process: the first caller decides how many threads it has."""
    with _TheTeam.lock:
        if _TheTeam.team is None:
            _TheTeam.team = Team(size)
        return _TheTeam.team


def _forget() -> None:
    """After a fork the threads are gone, and a lock may be held by one of them."""
    _TheTeam.lock = threading.Lock()
    _TheTeam.team = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
