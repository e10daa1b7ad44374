"""What tests share: a path without the rooms' bare names, and a watch on leftovers."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# No test asserts how fast the machine is, and the same examples run everywhere.
hypothesis.settings.register_profile(
    "ramet",
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("ramet")

# Other packages probe for a top-level `kernels`; the checkout's folders must not answer.
_HERE = Path(__file__).resolve().parent
sys.path[:] = [p for p in sys.path if Path(p or os.curdir).resolve() not in (_HERE, _HERE.parent)]

# A waiting OpenMP thread that spins makes every test several times slower on a shared machine.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def _children() -> set[int]:
    """Process ids of this process's living children (Linux; elsewhere nothing is watched)."""
    found: set[int] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        try:
            found.update(int(pid) for pid in task.read_text().split())
        except OSError:
            continue
    return found


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test may leave a thread or a process that it started; shared fixtures start before."""
    threads, children = set(threading.enumerate()), _children()
    yield
    ours = [
        thread
        for thread in threading.enumerate()
        if thread not in threads and thread.name.startswith("ramet")
    ]
    for thread in ours:
        thread.join(5)
    alive = [thread.name for thread in ours if thread.is_alive()]
    assert not alive, f"threads left behind: {alive}"
    left = {pid for pid in _children() - children if _is_engine(pid)}
    assert not left, f"processes left behind: {left}"


def _is_engine(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return b"ramet.runtime" in command and state != "Z"
