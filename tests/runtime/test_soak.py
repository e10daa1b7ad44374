"""A mixed load on the real Runtime with its engine process, for a while: outputs stay right, memory
stays flat, nothing is left."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ramet.runtime.client.handle import Handle
from ramet.runtime.client.transport import ProcessTransport
from ramet.runtime.errors import Cancelled
from ramet.runtime.request import SamplingParams
from ramet.runtime.runtime import Runtime

NUM_PROGRAMS = 24
NUM_THREADS = 6
TURNS = ("The quick brown fox", " said:", " Then it rained. ", "So?")
NUM_TENANTS = 12
"""Few enough for the engine's bounded histories (of evicted paths, of calls' ids) to know all that
is ever asked before the first third is over."""
GROWTH = 16 * 2**20
"""Bytes by which the engine's process may be larger at the end than when it was warm."""


def params(number: int, max_tokens: int, **more: object) -> SamplingParams:
    temperature = (0.0, 0.8, 1.2)[number % 3]
    return SamplingParams.build({"max_tokens": max_tokens, "temperature": temperature, **more})


def chat(handle: Handle, number: int) -> list[str]:
    """Turns that follow each other without waiting."""
    calls = []
    for turn, text in enumerate(TURNS):
        handle.append([(f"{text} {number}", "text")])
        calls.append(handle.generate(params(number, 4 + turn), stream=turn == 1))
    return [call.result().text for call in calls]


def branches(handle: Handle, number: int) -> list[str]:
    """A fork, a choice and a turn in each branch, and a word after all have ended."""
    handle.append([(TURNS[0] * (1 + number % 4), "text")])
    forks = handle.fork(3)
    calls = []
    for index, fork in enumerate(forks):
        fork.append([(f" branch {index}:", "text")])
        calls.append(fork.generate(params(number + index, 6)))
        calls.append(fork.select([" yes", " no", " yes and no"], "token_length_normalized"))
    handle.join(forks)
    texts = [call.result().text for call in calls]
    for fork in forks:
        fork.close()
    handle.append([("".join(texts), "content")])
    return [*texts, handle.generate(params(number, 5)).result().text]


def samples(handle: Handle, number: int) -> list[str]:
    """Several samples of one prompt, that stop where they like."""
    handle.append([(f"{number} times {TURNS[number % 4]}", "text")])
    more = {"n": 1 + number % 4, "stop": "e", "frequency_penalty": 0.5}
    return handle.generate(params(number, 20, **more)).result().texts


PROGRAMS: tuple[Callable[[Handle, int], list[str]], ...] = (chat, branches, samples)


def play(runtime: Runtime, number: int, salt: str | None = None, cache: bool = True) -> list[str]:
    """What one program writes, whoever else runs."""
    handle = runtime.open(seed=number, cache_salt=salt, cache=cache, priority=number % 2)
    try:
        return PROGRAMS[number % len(PROGRAMS)](handle, number)
    finally:
        handle.close()


def give_up(runtime: Runtime, number: int) -> None:
    """A program that is aborted, at once or after its first words."""
    handle = runtime.open(seed=number)
    handle.append([(f"{TURNS[number % 4]} and on", "text")])
    long = handle.generate(params(number, 2_000, ignore_eos=True), stream=True)
    forks = handle.fork(2)
    calls = [long, *(fork.generate(params(number, 50)) for fork in forks)]
    if number % 2:
        next(iter(long.chunks()))
    if number % 3:
        runtime.abort(handle.program.program_id)
    else:
        handle.abort()
    for call in calls:
        with pytest.raises(Cancelled):
            call.result()
    for one in (*forks, handle):
        one.close()


def resident(runtime: Runtime) -> int:
    """Bytes of the engine's process in memory (Linux; 0 elsewhere)."""
    transport = runtime._client._transport
    assert isinstance(transport, ProcessTransport)
    try:
        fields = Path(f"/proc/{transport.pid}/statm").read_text().split()
    except OSError:
        return 0
    return int(fields[1]) * 4096


class Load:
    """Threads that play programs until they are told to stop."""

    def __init__(self, runtime: Runtime, expected: list[list[str]]) -> None:
        self.runtime = runtime
        self.expected = expected
        self.numbers = itertools.count()
        self.played = 0
        self.failures: list[BaseException] = []
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self._run) for _ in range(NUM_THREADS)]

    def _run(self) -> None:
        try:
            while not self.stopped.is_set():
                self._one(next(self.numbers))
        except BaseException as error:
            self.failures.append(error)
            self.stopped.set()

    def _one(self, count: int) -> None:
        if count % 7 == 3:
            give_up(self.runtime, count % NUM_PROGRAMS)
            return
        number = count * 5 // 3 % NUM_PROGRAMS
        salt = f"tenant {count % NUM_TENANTS}" if count % 2 else None
        found = play(self.runtime, number, salt, cache=salt is not None or count % 5 > 0)
        assert found == self.expected[number], (count, number)
        self.played += 1

    def sizes(self, seconds: float) -> list[int]:
        """The engine's size, twenty times in so many seconds of load."""
        for thread in self.threads:
            thread.start()
        found = []
        for _ in range(20):
            if not self.stopped.wait(seconds / 20):
                found.append(resident(self.runtime))
        self.stopped.set()
        for thread in self.threads:
            thread.join()
        return found


@pytest.mark.parametrize(
    "seconds",
    [60, pytest.param(1_800, marks=[pytest.mark.full, pytest.mark.timeout(3600)])],
)
def test_a_long_mixed_load_leaves_nothing(seconds: int) -> None:
    with Runtime("tiny", dtype="float64", pool_tokens=1024, max_context=4096) as runtime:
        expected = [play(runtime, number) for number in range(NUM_PROGRAMS)]
        load = Load(runtime, expected)
        sizes = load.sizes(seconds)
        if load.failures:
            raise load.failures[0]
        assert load.played > seconds
        assert len(sizes) == 20
        stats = runtime.stats()
        for name in ("contexts", "held_tokens", "running", "waiting"):
            assert stats[name] == 0, name
        assert stats["evicted_tokens"] > 0
        assert max(sizes[-5:]) <= max(sizes[:8]) + GROWTH, sizes
