from __future__ import annotations

import threading

import pytest

from ramet.lang.watched import WatchedCondition

pytestmark = pytest.mark.timeout(30)


class Bell:
    def __init__(self) -> None:
        self.rings = 0

    def ring(self) -> None:
        self.rings += 1


def test_watchers_are_called_at_each_change_until_they_stop() -> None:
    condition, bell, other = WatchedCondition(), Bell(), Bell()
    condition.watch(bell.ring)
    condition.watch(other.ring)
    with condition:
        condition.notify_all()
        condition.notify_all()
    condition.unwatch(bell.ring)
    with condition:
        condition.notify_all()
    assert (bell.rings, other.rings) == (2, 3)
    condition.unwatch(bell.ring)
    assert len(condition._watchers) == 1


def test_threads_that_wait_are_woken_too() -> None:
    condition, bell = WatchedCondition(), Bell()
    condition.watch(bell.ring)
    waiting, woken = threading.Event(), threading.Event()

    def wait() -> None:
        with condition:
            waiting.set()
            condition.wait()
        woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(20)
    with condition:
        condition.notify_all()
    assert woken.wait(20)
    thread.join()
    assert bell.rings == 1
