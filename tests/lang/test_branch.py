from __future__ import annotations

import pytest
from fake_backend import FakeBackend

import ramet.lang as rm
from ramet.lang.branch import Branch
from ramet.lang.instance import Instance
from ramet.lang.values import GivenValue

pytestmark = pytest.mark.timeout(30)


def make(backend: FakeBackend, **kwargs: object) -> Branch:
    instance = Instance("p", backend, **kwargs)  # type: ignore[arg-type]
    branch = Branch(instance, backend.open())
    instance.claim()
    return branch


def finish(branch: Branch) -> None:
    branch.instance.run_body()
    branch.instance.wait_finished()


def test_a_branch_knows_what_it_inherited(backend: FakeBackend) -> None:
    branch = make(backend)
    branch.append("a" + rm.gen("x"))
    branch.assign("y", GivenValue(1))
    (child,) = branch.fork(1)
    child.append("b" + rm.gen("z"))
    assert (child.start, child.inherited) == (2, {"x": None, "y": None})
    assert [call.read() for call in child.calls()] == ["[5]"]
    assert child.reading.text() == "a[1]b[5]"
    assert branch.reading.text() == "a[1]"
    finish(branch)


def test_the_end_of_the_body_ends_all_branches(backend: FakeBackend) -> None:
    branch = make(backend)
    (child,) = branch.fork(1)
    (grandchild,) = child.fork(1)
    grandchild.append(rm.gen("x"))
    finish(branch)
    for one in (branch, child, grandchild):
        with pytest.raises(rm.ProgramError, match="has ended"):
            one.append("more")
    assert grandchild.reading.find("x")[0].read() == "[0]"


def test_the_runs_fields_are_under_the_calls_own(backend: FakeBackend) -> None:
    branch = make(backend, sampling={"temperature": 0.5, "max_new_tokens": 9})
    branch.append(rm.gen("x", max_tokens=2) + rm.gen("y"))
    assert branch.reading.text() == "[0["[:2] + "[2]"
    assert [(p.temperature, p.max_new_tokens) for p in backend.params] == [(0.5, 2), (0.5, 9)]
    finish(branch)


def test_contradictions_between_run_and_call_are_refused(backend: FakeBackend) -> None:
    branch = make(backend, sampling={"min_new_tokens": 50})
    with pytest.raises(rm.InvalidArgument, match="min_new_tokens=50"):
        branch.append("text" + rm.gen("x", max_tokens=10))
    assert branch.reading.text() == ""
    finish(branch)


def test_a_failed_run_takes_nothing_more(backend: FakeBackend) -> None:
    branch = make(backend)
    branch.cancel("not needed")
    with pytest.raises(rm.Cancelled, match="p: not needed"):
        branch.append("a")
    finish(branch)
    assert backend.num_calls == 0


def test_spans_and_streams(backend: FakeBackend) -> None:
    branch = make(backend)
    branch.append("a")
    start = len(branch.segments)
    branch.append("b" + rm.gen("x"))
    branch.assign_span("span", start)
    assert branch.reading.find("span")[-1].read() == "b[2]"
    assert "".join(branch.reading.stream()) == "ab[2]"
    finish(branch)
