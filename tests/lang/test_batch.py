from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_backend import FakeBackend, MakeBackend

import ramet.lang as rm
from ramet.lang import batch

pytestmark = pytest.mark.timeout(120)
State = rm.ProgramState


@rm.function
def ask(s: State, i: int, read: bool = False, fail: bool = False) -> None:
    s += "q" * i + rm.gen("x")
    if read:
        _ = s["x"]
    if fail:
        raise KeyError(f"item {i}")


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("threads", ["auto", 1, 3, 1000])
def test_order_is_kept_whatever_the_threads(backend: FakeBackend, read: bool, threads: Any) -> None:
    items = [{"i": i, "read": read} for i in range(100)]
    states = ask.run_batch(items, num_threads=threads)
    assert [state["x"] for state in states] == [f"[{i}]" for i in range(100)]


def test_the_engine_sees_more_calls_than_there_are_threads(backend: FakeBackend) -> None:
    backend.gate.clear()
    done: list[Any] = []
    thread = threading.Thread(
        target=lambda: done.append(ask.run_batch([{"i": i} for i in range(64)], num_threads=2))
    )
    thread.start()
    deadline = time.monotonic() + 20
    while backend.num_running < 64 and time.monotonic() < deadline:
        time.sleep(0.002)
    peak = backend.num_running
    backend.gate.set()
    thread.join()
    assert peak == 64
    assert len(done[0]) == 64


def test_bodies_that_read_run_at_most_num_threads_at_once(backend: FakeBackend) -> None:
    live, peak, lock = 0, 0, threading.Lock()

    @rm.function
    def slow(s: State) -> None:
        nonlocal live, peak
        with lock:
            live, peak = live + 1, max(peak, live + 1)
        time.sleep(0.005)
        with lock:
            live -= 1

    slow.run_batch([{}] * 30, num_threads=4)
    assert 2 <= peak <= 4


def test_batches_share_the_limit_and_run_on_the_caller_if_need_be(
    backend: FakeBackend, max_threads: Any
) -> None:
    max_threads(1)
    results: list[list[str]] = []

    def one() -> None:
        states = ask.run_batch([{"i": i, "read": True} for i in range(20)])
        results.append([state["x"] for state in states])

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[f"[{i}]" for i in range(20)]] * 4


def test_many_items_from_a_generator_stay_within_the_window(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "WINDOW", 16)
    drawn = finished = 0
    ahead = 0

    def items() -> Iterator[dict[str, Any]]:
        nonlocal drawn, ahead
        for i in range(300):
            drawn += 1
            ahead = max(ahead, drawn - finished)
            yield {"i": i % 3}

    original = FakeBackend._count_down

    def count(self: FakeBackend, call: object) -> None:
        nonlocal finished
        finished += 1
        original(self, call)

    monkeypatch.setattr(FakeBackend, "_count_down", count)
    states = ask.run_batch(items())
    assert [state["x"] for state in states] == [f"[{i % 3}]" for i in range(300)]
    assert ahead <= 16 + 1


def test_a_generator_gives_states_as_they_finish_in_order(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "WINDOW", 8)
    drawn = 0

    def items() -> Iterator[dict[str, Any]]:
        nonlocal drawn
        for i in range(100):
            drawn += 1
            yield {"i": i}

    states = ask.run_batch(items(), generator_style=True)
    assert drawn == 0
    for i, state in enumerate(states):
        assert state["x"] == f"[{i}]"
        assert drawn <= i + 9


def test_closing_a_generator_aborts_the_rest(backend: FakeBackend) -> None:
    states = ask.run_batch([{"i": i} for i in range(50)], generator_style=True)
    assert next(states)["x"] == "[0]"
    backend.gate.clear()
    states.close()
    backend.gate.set()
    with pytest.raises(StopIteration):
        next(states)


def test_a_failing_item_lets_the_others_finish(backend: FakeBackend) -> None:
    items = [{"i": i, "fail": i in (7, 12)} for i in range(20)]
    with pytest.raises(KeyError, match="item 7") as caught:
        ask.run_batch(items)
    error: Any = caught.value
    assert "item 7 of run_batch (2 failed)" in error.__notes__[0]
    assert {index: str(e) for index, e in error.failures.items()} == {
        7: "'item 7'",
        12: "'item 12'",
    }
    assert [isinstance(result, KeyError) for result in error.results] == [
        i in (7, 12) for i in range(20)
    ]
    assert error.results[19]["x"] == "[19]"


def test_exceptions_as_results(backend: FakeBackend) -> None:
    items = [{"i": i, "fail": i == 1} for i in range(3)]
    results = ask.run_batch(items, return_exceptions=True)
    assert (results[0]["x"], str(results[1]), results[2]["x"]) == ("[0]", "'item 1'", "[2]")
    lazily = list(ask.run_batch(items, return_exceptions=True, generator_style=True))
    assert isinstance(lazily[1], KeyError)


def test_a_failing_item_of_a_generator_stands_at_its_place(backend: FakeBackend) -> None:
    items = [{"i": i, "fail": i == 1} for i in range(3)]
    states = ask.run_batch(items, generator_style=True)
    got = [next(states) for _ in items]
    with pytest.raises(KeyError, match="item 1"):
        next(states)
    assert (got[0]["x"], got[2]["x"]) == ("[0]", "[2]")
    with pytest.raises(KeyError, match="item 1"):
        got[1].text()


def test_a_failed_call_of_one_item(make_backend: MakeBackend) -> None:
    def script(prompt: str, *_: Any) -> str:
        if len(prompt) == 2:
            raise rm.ContextOverflow("too long")
        return "ok"

    make_backend(script)
    results = ask.run_batch([{"i": i} for i in range(4)], return_exceptions=True)
    assert isinstance(results[2], rm.ContextOverflow)
    assert [results[i]["x"] for i in (0, 1, 3)] == ["ok"] * 3


def test_the_items_own_error_is_raised_after_what_ran(backend: FakeBackend) -> None:
    def items() -> Iterator[dict[str, Any]]:
        yield {"i": 1}
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        ask.run_batch(items())
    assert backend.num_calls == 1


def test_seeds(backend: FakeBackend) -> None:
    def seeds(**kwargs: Any) -> list[int | None]:
        backend.roots.clear()
        ask.run_batch([{"i": i} for i in range(3)], **kwargs)
        return [handle.seed for handle in backend.roots]

    assert seeds() == [None] * 3
    assert seeds(seed=5) == [5] * 3
    assert seeds(seed=[7, 8, 9]) == [7, 8, 9]
    with pytest.raises(rm.InvalidArgument, match="2 for 3"):
        seeds(seed=[1, 2])
    with pytest.raises(rm.InvalidArgument, match="differ in number"):
        ask.run_batch(iter([{"i": 1}]), seed=[1, 2])


def test_items_are_dicts_or_tuples(backend: FakeBackend) -> None:
    states = ask.run_batch([(2,), [3], {"i": 4}])
    assert [state["x"] for state in states] == ["[2]", "[3]", "[4]"]
    assert ask.run_batch([]) == []


@pytest.mark.parametrize(
    ("items", "kwargs", "message"),
    [
        ([{"i": 1}, {"j": 1}], {}, "item 1 of run_batch.*'j'"),
        ([{"i": 1}, {}], {}, "item 1.*'i'"),
        ([3], {}, "item 0"),
        ({"i": 1}, {}, "list of dicts"),
        (3, {}, "list of dicts"),
        ([{"i": 1}], {"num_threads": 0}, "num_threads"),
        ([{"i": 1}], {"num_threads": "many"}, "num_threads"),
        ([{"i": 1}], {"progress_bar": 1}, "progress_bar"),
        ([{"i": 1}], {"seed": "x"}, "seed"),
        ([{"i": 1}], {"seed": [2**70]}, r"seed\[0\]"),
        ([{"i": 1}], {"temperature": -1}, "temperature"),
        ([{"i": 1}], {"timeout": -1}, "timeout"),
        ([{"i": 1}], {"threads": 4}, "'threads'"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(
    backend: FakeBackend, items: Any, kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(rm.InvalidArgument, match=message):
        ask.run_batch(items, **kwargs)
    assert backend.num_calls == 0


def test_a_timeout_is_each_items(backend: FakeBackend) -> None:
    backend.gate.clear()
    results = ask.run_batch([{"i": i} for i in range(3)], timeout=0.05, return_exceptions=True)
    assert [type(result) for result in results] == [rm.Cancelled] * 3


def test_two_batches_one_after_the_other_and_after_a_failure(backend: FakeBackend) -> None:
    with pytest.raises(KeyError):
        ask.run_batch([{"i": 1, "fail": True}] * 50)
    for _ in range(2):
        assert len(ask.run_batch([{"i": 1, "read": True}] * 50)) == 50
    assert backend.num_running == 0


def test_the_progress_bar_ends_full_and_keeps_to_stderr(
    backend: FakeBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    ask.run_batch([{"i": 1}] * 64, progress_bar=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "64/64" in err.splitlines()[-1]
    assert err.endswith("\n")
    assert len(err.splitlines()) <= 3
    ask.run_batch(({"i": 1} for _ in range(3)), progress_bar=True)
    assert "3run" in capsys.readouterr().err


def test_an_unfinished_generator_does_not_hold_up_the_interpreters_end() -> None:
    code = """
import sys; sys.path.insert(0, {folder!r})
import ramet.lang as rm
from fake_backend import FakeBackend
rm.set_default_backend(FakeBackend())
states = rm.function(lambda s, i: s.__iadd__(rm.gen("x"))).run_batch(
    ({{"i": i}} for i in range(10**9)), generator_style=True)
print(next(states)["x"])
"""
    folder = str(Path(__file__).parent.parent / "helpers")
    done = subprocess.run(
        [sys.executable, "-c", code.format(folder=folder)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == "[0]\n"
