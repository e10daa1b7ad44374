from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fake_backend import FakeBackend, MakeBackend
from random_programs import RecordingBackend, outcome
from scripted_runtime import idle
from watchdog import watchdog

import ramet.lang as rm
from ramet.lang import async_batch
from ramet.runtime.runtime import Runtime

pytestmark = pytest.mark.timeout(240)
State = rm.ProgramState


@rm.function
async def asking(s: State, i: int) -> int:
    s += f"{i}:" + rm.gen("a")
    s += await s.get("a") + rm.gen("b")
    if i == 3:
        raise KeyError("three")
    return i


@rm.function
def plain(s: State, i: int) -> int:
    s += f"{i}:" + rm.gen("a")
    if i == 3 and s["a"]:
        raise KeyError("three")
    return i


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 100))


@watchdog(60)
@pytest.mark.parametrize("program", [asking, plain], ids=["async", "plain"])
def test_order_is_kept_and_failures_stand_beside_results(
    backend: FakeBackend, program: rm.Function
) -> None:
    items = [{"i": i} for i in range(8)]
    good = run(program.arun_batch([item for item in items if item["i"] != 3]))
    assert [state.ret_value for state in good] == [0, 1, 2, 4, 5, 6, 7]
    with pytest.raises(KeyError, match="three") as caught:
        run(program.arun_batch(items))
    error: Any = caught.value
    assert error.__notes__ == ["raised by item 3 of run_batch (1 failed)"]
    assert error.failures == {3: error}
    assert [getattr(result, "ret_value", result) for result in error.results] == [
        0, 1, 2, error, 4, 5, 6, 7
    ]  # fmt: skip
    mixed = run(program.arun_batch(items, return_exceptions=True))
    assert [isinstance(item, KeyError) for item in mixed] == [i == 3 for i in range(8)]
    assert run(program.arun_batch([])) == []


@watchdog(60)
def test_seeds_and_options_are_the_items(backend: FakeBackend) -> None:
    run(asking.arun_batch([(0,), (1,)], seed=[5, 6], temperature=0, max_tokens=3))
    run(asking.arun_batch([(0,), (1,)], seed=9))
    assert [handle.seed for handle in backend.roots] == [5, 6, 9, 9]
    assert {(p.temperature, p.max_new_tokens) for p in backend.params[:4]} == {(0, 3)}
    for bad in (
        {"seed": [1]},
        {"seed": "x"},
        {"typo": 1},
        {"timeout": -1},
        {"return_exceptions": 1},
    ):
        with pytest.raises(rm.InvalidArgument):
            run(asking.arun_batch([(0,), (1,)], **bad))
    with pytest.raises(rm.InvalidArgument, match="item 1"):
        run(asking.arun_batch([(0,), (1, 2)]))


@watchdog(60)
def test_items_of_a_generator(backend: FakeBackend) -> None:
    def items(stop: int, fail: bool) -> Iterator[Any]:
        for i in range(stop):
            yield {"i": 10 + i} if i != 2 else {"wrong": i}
        if fail:
            raise ZeroDivisionError("items")

    with pytest.raises(rm.InvalidArgument, match="'wrong'") as caught:
        run(asking.arun_batch(items(5, False)))
    results: Any = caught.value.results  # type: ignore[attr-defined]
    assert [getattr(r, "ret_value", None) for r in results] == [10, 11, None, 13, 14]
    with pytest.raises(ZeroDivisionError, match="items"):
        run(asking.arun_batch(items(2, True)))
    backend.audit()
    with pytest.raises(rm.InvalidArgument, match="seeds"):
        run(asking.arun_batch(items(2, False), seed=[1, 2, 3]))


@watchdog(60)
def test_only_a_window_of_items_is_in_flight(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_batch, "WINDOW", 5)
    drawn = 0

    def items() -> Iterator[Any]:
        nonlocal drawn
        for i in range(20, 60):
            drawn += 1
            yield (i,)

    async def main() -> None:
        backend.gate.clear()
        batch = asyncio.create_task(asking.arun_batch(items()))
        while backend.num_running < 5:
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.05)
        assert drawn == 5
        backend.gate.set()
        assert [state.ret_value for state in await batch] == list(range(20, 60))

    run(main())
    assert backend.peak_running == 5


@watchdog(60)
@pytest.mark.parametrize("program", [asking, plain, plain.compile], ids=["async", "plain", "walk"])
def test_cancelling_the_task_aborts_and_frees(backend: FakeBackend, program: Any) -> None:
    if program == plain.compile:
        program = rm.function(lambda s, i: s.__iadd__(rm.gen("a"))).compile()

    async def main() -> None:
        backend.gate.clear()
        batch = asyncio.create_task(program.arun_batch([(i,) for i in range(6)]))
        alone = asyncio.create_task(program.arun(7))
        while backend.num_running < 7:
            await asyncio.sleep(0.002)
        for task in (batch, alone):
            task.cancel()
        for task in (batch, alone):
            with pytest.raises(asyncio.CancelledError):
                await task

    run(main())
    backend.audit()
    backend.gate.set()


@watchdog(60)
def test_timeouts_are_each_items(backend: FakeBackend) -> None:
    backend.gate.clear()
    found = run(asking.arun_batch([(0,), (1,)], timeout=0.05, return_exceptions=True))
    assert [str(error)[:30] for error in found] == ["asking: aborted after its time"] * 2


@watchdog(60)
def test_the_progress_bar_ends_full(
    backend: FakeBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    run(asking.arun_batch([(i,) for i in (1, 2)], progress_bar=True))
    assert "2/2" in capsys.readouterr().err


@watchdog(60)
def test_a_seed_decides_everything_however_a_program_is_run() -> None:
    backend = RecordingBackend()
    rm.set_default_backend(backend)

    def steps(s: State, i: int) -> Any:
        s += f"{i}" + rm.gen("a", n=2)
        fs = s.fork(2)
        fs += rm.gen("b") + rm.select("c", ["x", "y"], 1.0, rm.exact_likelihood)
        return fs

    @rm.function
    def sync(s: State, i: int) -> None:
        steps(s, i).join("concate_and_append")
        s += rm.gen("d")

    @rm.function
    async def waiting(s: State, i: int) -> None:
        await steps(s, i).ajoin("concate_and_append")
        s += rm.gen("d")

    expected = [outcome(sync.run(i, seed=i)) for i in range(5)]
    items, seeds = [(i,) for i in range(5)], list(range(5))
    for program in (sync, waiting, sync.compile(), waiting.compile()):
        assert [outcome(s) for s in run(program.arun_batch(items, seed=seeds))] == expected
        assert outcome(run(program.arun(4, seed=4))) == expected[4]

    @rm.function
    async def outer(s: State, i: int) -> None:
        states = await asyncio.gather(*(waiting.arun(i) for _ in range(3)))
        s["texts"] = [state.text() for state in states]

    texts = run(outer.arun(1, seed=1))["texts"]
    assert run(outer.arun(1, seed=1))["texts"] == texts
    assert len(set(texts)) == 3
    assert (
        rm.function(lambda s, i: s.set_var("texts", nested(sync, i))).run(1, seed=1)["texts"]
        == texts
    )
    rm.set_default_backend(None)
    backend.audit()
    backend.shutdown()


def nested(program: rm.Function, i: int) -> list[str]:
    return [program.run(i).text() for _ in range(3)]


@watchdog(200)
def test_ten_thousand_instances_of_three_calls_need_no_threads(make_backend: MakeBackend) -> None:
    backend = make_backend(lambda *_: "ok")
    backend.gate.clear()

    async def main() -> None:
        batch = asyncio.create_task(three_calls.arun_batch([(i,) for i in range(10_000)]))
        while backend.num_running < 10_000:
            await asyncio.sleep(0.1)
        assert threading.active_count() <= threads + 1, "the event loop's own"
        backend.gate.set()
        assert [state["c"] for state in await batch] == ["ok"] * 10_000
        assert threading.active_count() <= threads + 1

    threads = threading.active_count()
    asyncio.run(main())
    assert backend.peak_running >= 10_000


@watchdog(230)
def test_ten_thousand_instances_on_a_model() -> None:
    with Runtime("tiny", pool_tokens=131072) as runtime:
        threads = threading.active_count()
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, threading.active_count())
                await asyncio.sleep(0.01)

        async def main() -> list[State]:
            watching = asyncio.create_task(watch())
            try:
                return await three_calls.arun_batch(
                    [(i,) for i in range(10_000)], backend=runtime, max_tokens=1, ignore_eos=True
                )
            finally:
                watching.cancel()

        states = asyncio.run(main())
        assert [state.meta("c")["completion_tokens"] for state in states] == [1] * 10_000
        assert 0 < most <= threads + 1
        idle(runtime)


@rm.function
async def three_calls(s: State, i: int) -> None:
    s += f"{i}:" + rm.gen("a")
    s += f" {await s.get('a')}" + rm.gen("b") + rm.gen("c")
    await s.get("c")
