"""Async bodies: how they are run, what may not block, and how they end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fake_backend import FakeBackend, MakeBackend
from scripted_runtime import idle
from stub_server import eventually
from watchdog import watchdog

import ramet.lang as rm
from ramet.lang.instance import Instance
from ramet.runtime.runtime import Runtime

pytestmark = pytest.mark.timeout(120)
State = rm.ProgramState
Body = Callable[[State], Awaitable[Any]]


def run(body: Body, **options: Any) -> State:
    return asyncio.run(asyncio.wait_for(rm.function(body).arun(**options), 30))


@watchdog(30)
def test_an_async_body_reads_by_awaiting(backend: FakeBackend) -> None:
    async def body(s: State) -> Any:
        s += rm.user("hi") + rm.assistant(rm.gen("a"))
        first = await s.get("a")
        fs = s.fork(2)
        fs += lambda i: f"<{i}>" + rm.gen("b")
        assert [await f.get("b") for f in fs] == ["[70]", "[70]"]
        await fs.ajoin()
        assert await s.get("b") == ["[70]", "[70]"]
        more = s.fork(2)
        more += lambda i: f"({i})" + rm.gen("c")
        await more.ajoin("concate_and_append")
        with s.var_scope("span"):
            s += "x" + rm.gen("d")
        assert await s.get("span") == "x" + await s.get("d")
        await s.wait()
        # What is there is read without waiting.
        assert s["a"] == s.value("a") == s.history("a")[0] == first
        assert s.meta("a")["finish_reason"] == "eos"
        assert s.text() == await s.aget_text()
        assert s.messages()[-1] == {"role": "assistant", "content": first}
        assert "".join(s.text_iter("d")) == s["d"]
        assert s.error() is None
        s.sync()
        return first

    state = run(body)
    assert state.ret_value == state["a"]


def blocking() -> dict[str, Callable[[State, Any], object]]:
    """Reads that would wait, of a state and of a group of forks."""
    return {
        "item": lambda s, fs: s["a"],
        "get_var": lambda s, fs: s.get_var("a"),
        "value": lambda s, fs: s.value("a"),
        "meta": lambda s, fs: s.meta("a"),
        "history": lambda s, fs: s.history("a"),
        "span": lambda s, fs: s["span"],
        "text": lambda s, fs: s.text(),
        "messages": lambda s, fs: s.messages(),
        "sync": lambda s, fs: s.sync(),
        "error": lambda s, fs: s.error(),
        "text_iter": lambda s, fs: list(s.text_iter()),
        "text_iter of a name": lambda s, fs: list(s.text_iter("a")),
        "a fork's text": lambda s, fs: fs[0].text(),
        "join": lambda s, fs: fs.join("concate_and_append"),
    }


@watchdog(30)
@pytest.mark.parametrize("read", blocking())
def test_a_read_that_would_block_the_loop_names_what_to_await(
    backend: FakeBackend, read: str
) -> None:
    async def body(s: State) -> None:
        with s.assistant(), s.var_scope("span"):
            s += "x" + rm.gen("a")
        fs = s.fork(2)
        fs += rm.gen("b")
        with pytest.raises(rm.ProgramError, match=r"await s\.get\(name\).*aget_text.*wait\(\)"):
            blocking()[read](s, fs)
        backend.gate.set()
        await fs.ajoin("concate_and_append")
        await s.wait()
        assert s["span"].endswith(s["a"])

    backend.gate.clear()
    run(body)


@watchdog(30)
def test_nested_programs_in_an_async_body(backend: FakeBackend) -> None:
    @rm.function
    def plain(s: State, text: str) -> str:
        s += text + rm.gen("a")
        return str(s["a"])

    @rm.function
    async def inner(s: State, text: str) -> str:
        s += text + rm.gen("a")
        return str(await s.get("a"))

    compiled = plain.compile()

    async def body(s: State) -> None:
        backend.gate.clear()
        state = plain.run("ab")
        several: Any = plain.run_batch([("c",), ("d",)])
        walked = compiled.run("abc")
        for blocked in (
            lambda: state["a"],
            lambda: several[0].text(),
            lambda: walked.sync(),
            lambda: walked["a"],
            lambda: state.error(),
            lambda: plain.run_batch([("c",)], return_exceptions=True),
        ):
            with pytest.raises(rm.ProgramError, match="await"):
                blocked()
        backend.gate.set()
        assert await state.get("a") == "[2]"
        assert [await other.get("a") for other in several] == ["[1]", "[1]"]
        assert await walked.aget_text() == "abc[3]"
        assert (await inner.arun("x")).ret_value == "[1]"
        states = await inner.arun_batch([("x",), ("yz",)])
        assert [other["a"] for other in states] == ["[1]", "[2]"]
        assert (await compiled.arun("x"))["a"] == "[1]"
        assert (await plain.arun("x"))["a"] == "[1]"
        with pytest.raises(rm.ProgramError, match=r"await inner\.arun"):
            inner.run("x")
        with pytest.raises(rm.ProgramError, match=r"await inner\.arun_batch"):
            inner.run_batch([("x",)])

    run(body, seed=3)
    seeds = [handle.seed for handle in backend.roots]
    assert len(set(seeds)) == len(seeds)
    assert None not in seeds


@watchdog(30)
def test_what_the_body_starts_is_inside_of_it(backend: FakeBackend) -> None:
    found: list[Any] = []

    async def body(s: State) -> None:
        async def ask(name: str) -> str:
            found.append(Instance.current())
            with pytest.raises(rm.ProgramError, match="no variable 'never'"):
                s["never"]  # Nobody else could set it: a wait for it would have no end.
            s_name = s.fork(1)[0]
            s_name += name + rm.gen(name)
            return str(await s_name.get(name))

        tasks = [asyncio.create_task(ask(name)) for name in ("x", "yy")]
        assert await asyncio.gather(*tasks) == ["[1]", "[2]"]
        async with asyncio.TaskGroup() as group:
            group.create_task(ask("z"))
        s += rm.gen("a")
        assert await asyncio.to_thread(lambda: s["a"]) == "[0]"
        assert await asyncio.to_thread(s.text) == "[0]"

    state = run(body)
    assert found == [state._branch.instance] * 3


@watchdog(30)
def test_a_reader_outside_waits_for_what_the_body_writes_later(backend: FakeBackend) -> None:
    @rm.function
    async def program(s: State) -> None:
        await asyncio.sleep(0.01)
        s += "a" + rm.gen("x")
        await asyncio.sleep(0.01)
        s["late"] = 3

    async def main() -> None:
        state = await program.arun(stream=True)
        for read in (lambda: state["x"], state.text, lambda: "late" in state, state.sync):
            with pytest.raises(rm.ProgramError, match="await"):
                read()
        from_thread = asyncio.create_task(asyncio.to_thread(lambda: state["late"]))
        assert await state.get("x") == "[1]"
        assert await state.get("late") == 3
        assert await from_thread == 3
        assert await state.aget_text() == "a[1]"
        await state.wait()
        with pytest.raises(rm.ProgramError, match="no variable 'never'"):
            await state.get("never")

    asyncio.run(asyncio.wait_for(main(), 20))


@watchdog(30)
def test_two_event_loops_in_two_threads(backend: FakeBackend) -> None:
    together = threading.Barrier(2)
    texts: dict[int, list[str]] = {}

    @rm.function
    async def program(s: State, text: str) -> None:
        s += text + rm.gen("a")
        await s.get("a")
        s += rm.gen("b")

    def one(number: int) -> None:
        together.wait(20)
        items = [(f"{number}" * (i + 1),) for i in range(30)]
        states = asyncio.run(asyncio.wait_for(program.arun_batch(items), 25))
        texts[number] = [state.text() for state in states]

    threads = [threading.Thread(target=one, args=(i,)) for i in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in (1, 2):
        lengths = [(i + 1, i + 1 + len(f"[{i + 1}]")) for i in range(30)]
        assert texts[number] == [f"{str(number) * a}[{a}][{b}]" for a, b in lengths]


# Ends


@watchdog(30)
@pytest.mark.parametrize("nested", [False, True])
def test_a_timeout_interrupts_whatever_the_body_awaits(backend: FakeBackend, nested: bool) -> None:
    ends: list[str] = []

    async def sleeps(s: State) -> None:
        try:
            s += rm.gen("a")
            await asyncio.sleep(600)
        finally:
            ends.append("cleaned up")

    async def outer(s: State) -> None:
        await rm.function(sleeps).arun()

    with pytest.raises(rm.Cancelled, match=r"after its timeout of 0\.05 s"):
        run(outer if nested else sleeps, timeout=0.05)
    assert ends == ["cleaned up"]


@watchdog(30)
def test_an_exception_reaches_the_caller_and_ends_what_runs(backend: FakeBackend) -> None:
    backend.gate.clear()

    async def body(s: State) -> None:
        s += rm.gen("a")
        asyncio.get_running_loop().call_later(0.01, backend.gate.set)
        await asyncio.sleep(0)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        run(body)
    assert any(entry.name == "body" for entry in caught.traceback)

    async def own(s: State) -> None:
        raise asyncio.CancelledError

    with pytest.raises(rm.Cancelled, match="its body was cancelled"):
        run(own)


@watchdog(30)
def test_a_failing_call_reaches_who_awaits_it(make_backend: MakeBackend) -> None:
    def script(prompt: str, *_: object) -> str:
        if "bad" in prompt:
            raise rm.PoolTooSmall("no room")
        return "ok"

    make_backend(script)

    async def handles(s: State) -> None:
        f = s.fork(1)[0]
        f += "bad" + rm.gen("x")
        with pytest.raises(rm.PoolTooSmall, match="no room"):
            await f.get("x")
        s += rm.gen("a")

    assert run(handles)["a"] == "ok"

    async def reads(s: State) -> None:
        s += "bad" + rm.gen("x")
        await s.wait()

    async def leaves(s: State) -> None:
        s += "bad" + rm.gen("x")

    async def joins(s: State) -> None:
        fs = s.fork(2)
        fs += ["bad", "good"]
        fs += rm.gen("x")
        await fs.ajoin("concate_and_append")

    for body in (reads, leaves, joins):
        with pytest.raises(rm.PoolTooSmall, match="no room"):
            run(body)


@watchdog(30)
def test_an_unread_nested_programs_end_is_told(backend: FakeBackend) -> None:
    @rm.function
    def inner(s: State) -> None:
        s += rm.gen("a")
        s["a"]

    backend.gate.clear()

    async def body(s: State) -> None:
        inner.run(timeout=0.05)

    with pytest.raises(rm.Cancelled, match="inner: aborted after its timeout"):
        run(body)
    with pytest.raises(rm.Cancelled, match="inner: aborted after its timeout"):
        rm.function(lambda s: inner.run(timeout=0.05)).run()


@watchdog(60)
def test_a_loop_that_ends_early_leaves_the_engine_idle() -> None:
    @rm.function
    async def program(s: State) -> None:
        s += rm.gen("a", max_tokens=5000, ignore_eos=True)
        await s.get("a")

    @rm.function
    def plain(s: State) -> str:
        s += rm.gen("a", max_tokens=5000, ignore_eos=True)
        return str(s["a"])

    async def main(runtime: Runtime) -> None:
        for other in (program, plain, plain.compile()):
            asyncio.create_task(other.arun(backend=runtime))  # noqa: RUF006
        asyncio.create_task(program.arun_batch([{}] * 5, backend=runtime))  # noqa: RUF006
        await program.arun(backend=runtime, stream=True)
        while runtime.stats()["running"] + runtime.stats()["waiting"] < 9:
            await asyncio.sleep(0.005)
        raise KeyError("the end")

    with Runtime("tiny", pool_tokens=65536, isolation="thread") as runtime:
        with pytest.raises(KeyError, match="the end"):
            asyncio.run(main(runtime))
        eventually(lambda: not runtime.stats()["contexts"])
        idle(runtime)
        short = rm.function(lambda s: s.__iadd__("x" + rm.gen("a", max_tokens=2, ignore_eos=True)))
        assert short.run(backend=runtime).meta("a")["completion_tokens"] == 2
