from __future__ import annotations

import threading

import pytest

from ramet.lang.watched import Changes

pytestmark = pytest.mark.timeout(30)


class Bell:
    def __init__(self) -> None:
        self.rings = 0

    def ring(self) -> None:
        self.rings += 1


def test_watchers_are_called_at_each_change_until_they_stop() -> None:
    condition, bell, other = Changes(), Bell(), Bell()
    condition.watch(bell.ring)
    condition.watch(other.ring)
    with condition.lock:
        condition.notify_all()
        condition.notify_all()
    condition.unwatch(bell.ring)
    with condition.lock:
        condition.notify_all()
    assert (bell.rings, other.rings) == (2, 3)
    condition.unwatch(bell.ring)
    assert len(condition._watchers) == 1


def test_threads_that_wait_are_woken_too() -> None:
    changes, bell, done = Changes(), Bell(), threading.Event()
    changes.watch(bell.ring)
    seen: list[int] = []

    def wait() -> None:
        changes.wait_until(lambda: len(seen) == 2)
        done.set()

    thread = threading.Thread(target=wait)
    thread.start()
    for number in range(2):
        assert not done.is_set()
        seen.append(number)
        changes.announce()
    assert done.wait(20)
    thread.join()
    assert bell.rings == 2
    assert len(changes._watchers) == 1
