from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable

import pytest
from watchdog import watchdog

from ramet.lang.loops import Bell, LoopCalls, Loops, running_loop

pytestmark = pytest.mark.timeout(60)


@watchdog(30)
def test_calls_from_any_thread_are_made_on_the_loops_thread_in_order() -> None:
    async def main() -> None:
        calls = LoopCalls(asyncio.get_running_loop())
        seen: list[tuple[int, int]] = []
        done = asyncio.Event()

        def ring() -> None:
            for i in range(100):
                calls.call(lambda i=i: seen.append((i, threading.get_ident())))  # type: ignore[misc]
            calls.call(done.set)

        thread = threading.Thread(target=ring)
        thread.start()
        await asyncio.wait_for(done.wait(), 20)
        thread.join()
        assert seen == [(i, threading.get_ident()) for i in range(100)]

    asyncio.run(main())


@watchdog(30)
def test_many_calls_cross_once() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        crossings: list[object] = []
        original = loop.call_soon_threadsafe

        def counted(*args: object) -> object:
            crossings.append(args)
            return original(*args)  # type: ignore[arg-type]

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign,assignment]
        calls = LoopCalls(loop)
        seen: list[int] = []
        for i in range(50):
            calls.call(lambda i=i: seen.append(i))  # type: ignore[misc]
        await asyncio.sleep(0.01)
        assert seen == list(range(50))
        assert len(crossings) == 1
        calls.call(lambda: seen.append(50))
        await asyncio.sleep(0.01)
        assert seen[-1] == 50

    asyncio.run(main())


@watchdog(30)
def test_a_loop_that_is_closed_or_gone_takes_no_calls() -> None:
    loop = asyncio.new_event_loop()
    calls = LoopCalls(loop)
    loop.close()
    called: list[int] = []
    calls.call(lambda: called.append(1))
    del loop
    gc.collect()
    calls.call(lambda: called.append(2))
    assert called == []


@watchdog(30)
def test_each_loop_has_its_own_calls_for_as_long_as_it_lives() -> None:
    loops = Loops()
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    assert loops.of(first) is loops.of(first)
    assert loops.of(first) is not loops.of(second)
    first.close()
    second.close()
    del first, second
    gc.collect()
    assert len(loops._calls) == 0


@watchdog(30)
def test_waiting_for_something_that_another_thread_tells() -> None:
    loops = Loops()

    async def main() -> None:
        await asyncio.wait_for(loops.wait(lambda wake: wake()), 20)
        threads: list[threading.Thread] = []

        def subscribe(wake: Callable[[], None]) -> None:
            def tell() -> None:
                wake()
                wake()

            threads.append(threading.Thread(target=tell))
            threads[0].start()

        await asyncio.wait_for(loops.wait(subscribe), 20)
        threads[0].join()
        late: list[Callable[[], None]] = []
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(loops.wait(late.append), 0.01)
        late[0]()
        await asyncio.sleep(0.01)

    asyncio.run(main())


@watchdog(30)
def test_a_bell_is_heard_again_and_again_and_never_missed() -> None:
    loops = Loops()

    async def main() -> None:
        bell = Bell(loops)
        bell.ring()
        await asyncio.wait_for(bell.wait(), 20)
        heard, total = 0, 0

        def ring() -> None:
            nonlocal total
            for _ in range(200):
                total += 1
                bell.ring()

        thread = threading.Thread(target=ring)
        thread.start()
        while heard < 200:
            await asyncio.wait_for(bell.wait(), 20)
            heard = total
        thread.join()
        assert heard == 200

    asyncio.run(main())


def test_the_running_loop() -> None:
    assert running_loop() is None

    async def main() -> bool:
        return running_loop() is asyncio.get_running_loop()

    assert asyncio.run(main())
