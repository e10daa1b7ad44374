from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from fake_backend import FakeBackend

import ramet.lang as rm
from ramet.lang.instance import Instance
from ramet.lang.session import session

pytestmark = pytest.mark.timeout(30)


def test_the_current_run_is_known_inside_its_body_only(backend: FakeBackend) -> None:
    seen = []

    @rm.function
    def program(s: rm.ProgramState) -> None:
        seen.append(Instance.current())

    assert Instance.current() is None
    state = program.run()
    assert seen == [state._branch.instance]
    assert Instance.current() is None


def test_only_one_claims_a_body(backend: FakeBackend) -> None:
    instance = Instance("p", backend)
    assert [instance.claim(), instance.claim()] == [True, False]
    instance.run_body()
    assert instance.finished


def test_a_run_that_fails_before_its_start_never_runs(backend: FakeBackend) -> None:
    instance = Instance("p", backend, stream=True)
    instance.prepare(None, lambda: pytest.fail("it ran"))
    instance.fail(KeyError("early"))
    instance.fail(KeyError("late"))
    instance.wait_finished()
    assert str(instance.failure) == "'early'"
    assert instance.finished
    with pytest.raises(KeyError, match="early"):
        instance.raise_failure()


def test_ends_are_announced_once_and_at_once_if_over(backend: FakeBackend) -> None:
    instance, ends = Instance("p", backend), []
    instance.on_finish(ends.append)
    instance.wait_finished()
    instance.on_finish(ends.append)
    assert ends == [instance, instance]


def test_a_body_needs_no_thread_once_its_calls_are_queued(backend: FakeBackend) -> None:
    over = threading.Event()

    @rm.function
    def program(s: rm.ProgramState) -> None:
        s += rm.gen("x") + rm.gen("y")

    backend.gate.clear()
    state = program.run(stream=True)
    instance = state._branch.instance
    instance.on_finish(lambda _: over.set())
    instance.wait_for(lambda: False)
    assert instance.body_over
    assert not instance.finished
    assert not [t for t in threading.enumerate() if t.name.startswith("ramet-body") and t.is_alive()
                and not t.join(5) and t.is_alive()]  # fmt: skip
    backend.gate.set()
    assert over.wait(5)
    assert state["y"] == "[3]"


def test_arguments_are_let_go_after_the_run(backend: FakeBackend) -> None:
    import gc
    import weakref

    class Big: ...

    big = Big()
    alive = weakref.ref(big)
    state = rm.function(lambda s, big: None).run(big)
    del big
    gc.collect()
    assert alive() is None
    assert state.text() == ""


class Part:
    """A part of a run that notes where it ran."""

    def __init__(self, ran: list[str]) -> None:
        self.ran, self.lock = ran, threading.Lock()

    def claim(self) -> bool:
        return self.lock.acquire(blocking=False)

    def run_body(self) -> None:
        self.ran.append(threading.current_thread().name)


def test_parts_run_on_free_threads_or_on_whoever_waits(
    backend: FakeBackend, max_threads: Callable[[int], None]
) -> None:
    instance = Instance("p", backend)
    ran: list[str] = []
    instance.changed.start_part(Part(ran))
    instance.changed.wait_until(lambda: len(ran) == 1)
    assert ran[0].startswith("ramet-body")
    max_threads(1)
    busy, go = threading.Event(), threading.Event()

    def hold() -> None:
        busy.set()
        assert go.wait(20)

    while not session.threads.spawn(hold):  # The first thread may still be on its way out.
        busy.wait(0.001)
    assert busy.wait(20)
    instance.changed.start_part(Part(ran))
    instance.changed.start_part(Part(ran))
    instance.changed.wait_until(lambda: len(ran) == 3)
    assert ran[1:] == [threading.current_thread().name] * 2
    go.set()


def test_nested_seeds_depend_on_the_place_and_not_on_the_order(backend: FakeBackend) -> None:
    def seeds(order: list[int]) -> dict[int, list[int | None]]:
        instance = Instance("p", backend, seed=1)
        found: dict[int, list[int | None]] = {}
        for number in order:
            with instance.scope.call(number):
                found[number] = [instance.scope.nested_seed("n"), instance.scope.nested_seed("n")]
                with instance.scope.call():
                    found[number].append(instance.scope.nested_seed("n"))
        found[-1] = [instance.scope.nested_seed("n")]
        return found

    assert seeds([0, 1, 2]) == seeds([2, 0, 1])
    everything = [seed for each in seeds([0, 1, 2]).values() for seed in each]
    assert len(set(everything)) == len(everything) == 10

    unnumbered = Instance("p", backend, seed=1)
    for number in range(3):
        with unnumbered.scope.call():
            assert unnumbered.scope.nested_seed("n") == seeds([number])[number][0]
    assert Instance("p", backend).scope.nested_seed("n") is None


def test_a_failure_is_told_to_those_outside_only(backend: FakeBackend) -> None:
    outer = Instance("outer", backend)
    inner = Instance("inner", backend, parent=outer)
    failure = KeyError("why")

    def body() -> None:
        inner.fail(failure)
        assert inner.deliver() is failure

    inner.prepare(None, body)
    assert inner.claim()
    inner.run_body()
    outer.wait_finished()
    assert outer.failure is failure, "only its own body had heard of it"

    other = Instance("outer", backend)
    heard = Instance("inner", backend, parent=other)
    heard.fail(failure)
    assert heard.deliver() is failure
    other.wait_finished()
    assert other.failure is None
