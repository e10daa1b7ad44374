"""Threads that share a step: everything is done once, whoever comes late, and nothing hangs."""

from __future__ import annotations

import os
import threading
import time
import warnings

import numpy as np
import pytest

from ramet.kernels.cpu.fused import team as team_file
from ramet.kernels.cpu.fused.jit import jit
from ramet.kernels.cpu.fused.lanes import fetch_add
from ramet.kernels.cpu.fused.phases import finish, phase_bytes, take, wait
from ramet.kernels.cpu.fused.team import the_team


@jit
def share(counters, size, totals, done, thread, threads):
    """Count each task of each phase, and whether the phase before was over."""
    early = 0
    for phase in range(totals.shape[0]):
        at = counters + phase * size
        task = take(at, totals[phase], thread, threads)
        while task >= 0:
            fetch_add(done.ctypes.data + (phase * done.shape[1] + task) * 8, 1)
            if phase > 0:
                for before in range(totals[phase - 1]):
                    early += done[phase - 1, before] != 1
            finish(at)
            task = take(at, totals[phase], thread, threads)
        wait(at, totals[phase], 0, 0)
    return early


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_each_task_of_each_phase_is_done_once_and_in_order(threads):
    source = np.random.default_rng(threads)
    totals = source.integers(0, 40, 200)
    size = phase_bytes(threads)
    counters = np.zeros(len(totals) * size // 8 + 8, dtype=np.int64)
    done = np.zeros((len(totals), 40), dtype=np.int64)
    early = [0] * threads

    def work(thread):
        time.sleep(0.001 * thread)  # Some come late.
        early[thread] = share(counters.ctypes.data, size, totals, done, thread, threads)

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert early == [0] * threads
    for phase, total in enumerate(totals):
        assert done[phase].tolist() == [1] * total + [0] * (40 - total)


def test_a_process_has_one_team():
    first = the_team(2)
    assert the_team(2) is first
    assert the_team(5) is first


def test_a_forked_process_gets_its_own_team():
    ours = the_team(2)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # There are threads, which is the point.
        pid = os.fork()
    if pid == 0:
        own = team_file.the_team(2)
        os._exit(0 if own is not ours else 1)
    assert os.waitpid(pid, 0)[1] == 0
