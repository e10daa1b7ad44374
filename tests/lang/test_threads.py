from __future__ import annotations

import threading
import time

import pytest
from fake_backend import FakeBackend

import ramet.lang as rm
from ramet.lang.threads import Alarm, BodyThreads

pytestmark = pytest.mark.timeout(30)


class Run:
    def __init__(self, hold: threading.Event | None = None) -> None:
        self.hold, self.done = hold, threading.Event()
        self.claimed = False

    def claim(self) -> bool:
        claimed, self.claimed = self.claimed, True
        return not claimed

    def run_body(self) -> None:
        if self.hold:
            assert self.hold.wait(10)
        self.done.set()


def settled(threads: BodyThreads) -> bool:
    deadline = time.monotonic() + 5
    while threads.live and time.monotonic() < deadline:
        time.sleep(0.001)
    return threads.live == 0


def test_runs_beyond_the_limit_wait_unclaimed_and_run_later() -> None:
    threads, hold = BodyThreads(lambda: 2), threading.Event()
    runs = [Run(hold) for _ in range(5)]
    for run in runs:
        threads.start(run)
    assert [run.claimed for run in runs] == [True, True, False, False, False]
    assert threads.live == 2
    assert not threads.spawn(lambda: None)
    assert runs[3].claim()  # A reader takes this one.
    hold.set()
    assert all(run.done.wait(5) for run in (*runs[:3], runs[4]))
    assert settled(threads)
    assert not runs[3].done.is_set()


def test_no_thread_is_kept_without_work() -> None:
    threads = BodyThreads(lambda: 4)
    done = threading.Event()
    assert threads.spawn(done.set)
    assert done.wait(5)
    assert settled(threads)


def test_alarms_ring_in_time_order_and_cleared_ones_never() -> None:
    alarm, rung, last = Alarm(), [], threading.Event()
    alarm.set(0.06, lambda: (rung.append("late"), last.set()))
    alarm.set(0.02, lambda: rung.append("early"))
    alarm.clear(alarm.set(0.01, lambda: rung.append("cleared")))
    assert last.wait(5)
    assert rung == ["early", "late"]


def test_an_alarm_with_nothing_set_has_no_thread() -> None:
    alarm = Alarm()
    alarm.clear(alarm.set(3600, lambda: None))
    for thread in threading.enumerate():
        if thread.name == "ramet-alarm":
            thread.join(5)
    assert not alarm._running
    again = threading.Event()
    alarm.set(0, again.set)
    assert again.wait(5)


def test_where_no_thread_can_be_had_the_waiter_runs_it(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    inner = rm.function(lambda s: s.set_var("x", 1))

    @rm.function
    def outer(s: rm.ProgramState) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            nested = inner.run()
            s["x"] = nested["x"]

    assert outer.run()["x"] == 1


def test_endless_nesting_is_refused(backend: FakeBackend) -> None:
    @rm.function
    def again(s: rm.ProgramState) -> None:
        again.run()["x"]

    with pytest.raises(rm.ProgramError, match="nested more than"):
        again.run()
