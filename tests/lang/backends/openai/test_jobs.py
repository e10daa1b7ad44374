from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from stub_server import eventually

from ramet.lang.backends.openai.jobs import Job, Jobs
from ramet.lang.errors import BackendError, Cancelled
from ramet.runtime.client.call import CallResult


def result(text: str) -> CallResult:
    return CallResult([text], [], lambda: [{}])


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    made = Jobs(3, "ramet-test-jobs")
    yield made
    made.close()


def test_a_job_runs_after_the_one_before_it(jobs: Jobs) -> None:
    gate = threading.Event()
    order: list[str] = []

    def work(name: str) -> CallResult:
        assert name != "a" or gate.wait(5)
        order.append(name)
        return result(name)

    first = jobs.start(lambda job: work("a"), None)
    second = jobs.start(lambda job: work(first.text + "b"), first)
    third = jobs.start(lambda job: work(second.text + "c"), second)
    assert not third.call.done()
    gate.set()
    assert third.call.result(5).text == "abc"
    assert order == ["a", "ab", "abc"]
    late = jobs.start(lambda job: work("late"), third)
    assert late.call.result(5).text == "late"


def test_threads_are_bounded_and_end(jobs: Jobs) -> None:
    gate = threading.Event()
    running: set[str] = set()

    def work(job: Job) -> CallResult:
        running.add(threading.current_thread().name)
        assert gate.wait(5)
        return result("")

    calls = [jobs.start(work, None).call for _ in range(20)]
    eventually(lambda: jobs.num_running == 3)
    assert (len(running), jobs.num_waiting) == (3, 17)
    gate.set()
    for call in calls:
        call.result(5)
    eventually(lambda: not [t for t in threading.enumerate() if t.name.startswith("ramet-test")])
    assert (jobs.num_running, jobs.num_waiting) == (0, 0)


def test_a_failure_fails_what_is_behind_it_however_much_that_is(jobs: Jobs) -> None:
    gate = threading.Event()

    def fail(job: Job) -> CallResult:
        assert gate.wait(5)
        raise BackendError("broken")

    last = first = jobs.start(fail, None)
    for _ in range(5000):
        last = jobs.start(lambda job: result("never"), last)
    gate.set()
    with pytest.raises(BackendError, match="broken"):
        last.call.result(5)
    assert last.error is not first.error
    later = jobs.start(lambda job: result("never"), last)
    with pytest.raises(BackendError, match="broken"):
        later.call.result(5)


def test_an_error_that_is_not_ours_becomes_one(jobs: Jobs) -> None:
    job = jobs.start(lambda job: result(str(1 // 0)), None)
    with pytest.raises(BackendError, match="ZeroDivisionError"):
        job.call.result(5)


def test_an_abort_ends_a_call_at_once_and_what_is_behind_it(jobs: Jobs) -> None:
    gate = threading.Event()

    def work(job: Job) -> CallResult:
        assert gate.wait(5)
        job.ticket.check()
        return result("x")

    first = jobs.start(work, None)
    second = jobs.start(work, first)
    third = jobs.start(work, second)
    second.call.abort()
    for job in (second, third):
        with pytest.raises(Cancelled):
            job.call.result(0)
    gate.set()
    assert first.call.result(5).text == "x"
    first.call.abort()
    assert first.call.result(0).text == "x"


def test_an_abort_of_a_running_job_does_not_wait_for_its_thread(jobs: Jobs) -> None:
    gate = threading.Event()
    begun = threading.Event()

    def work(job: Job) -> CallResult:
        begun.set()
        assert gate.wait(5)
        return result("too late")

    job = jobs.start(work, None)
    assert begun.wait(5)
    job.call.abort()
    with pytest.raises(Cancelled):
        job.call.result(0)
    gate.set()


def test_streams(jobs: Jobs) -> None:
    def work(job: Job) -> CallResult:
        for text in ("a", "", "b"):
            job.tell(text)
        job.tell("other", 1, [(-1.0, None, "other")])
        return CallResult(["ab", "other"], [], lambda: [{}, {}])

    job = jobs.start(work, None, streams=True)
    assert [chunk.text for chunk in job.call.chunks()] == ["a", "b"]
    assert [c.logprobs for c in job.call.chunks(1)] == [[(-1.0, None, "other")]]
    assert job.ticket.delivered


def test_after_close_there_are_no_jobs() -> None:
    jobs = Jobs(1, "ramet-test-jobs")
    gate = threading.Event()

    def work(job: Job) -> CallResult:
        assert gate.wait(5)
        return result("")

    calls = [jobs.start(work, None).call for _ in range(3)]
    jobs.close()
    for call in calls:
        with pytest.raises(BackendError, match="shut down"):
            call.result(0)
    with pytest.raises(BackendError, match="shut down"):
        jobs.start(work, None)
    gate.set()


def test_without_threads_a_call_fails(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        job = jobs.start(lambda job: result("x"), None)
    with pytest.raises(BackendError, match="no thread"):
        job.call.result(0)
    assert jobs.start(lambda job: result("x"), None).call.result(5).text == "x"
