from __future__ import annotations

import threading

import pytest
from fake_backend import FakeBackend

import ramet.lang as rm
from ramet.lang.instance import Instance

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
