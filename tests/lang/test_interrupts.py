"""Ctrl-C at any moment, and texts beyond all measure: the engine stays whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tiny_programs import at_rest, runtime  # noqa: F401

import ramet.lang as rm

State = Any


def branching(s: State, q: str) -> None:
    s += q
    forks = s.fork(12)
    for number, fork in enumerate(forks):
        fork += str(number) + rm.gen("a", 2, ignore_eos=True)
    forks.join()
    s += rm.gen("z", 2, ignore_eos=True)


# A finaliser may be where it strikes, which Python only tells of.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs setitimer")
@pytest.mark.parametrize("compiled", [False, True])
def test_interrupts_at_any_moment_leave_nothing_behind(runtime: rm.Runtime, compiled: bool) -> None:  # noqa: F811
    program = rm.function(branching)
    run: Callable[..., Any] = program.compile().run if compiled else program.run

    armed: list[bool] = []

    def interrupt(*_: object) -> None:
        if armed:
            armed.clear()
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    stuck = threading.Timer(100, lambda: signal.raise_signal(signal.SIGABRT))
    stuck.start()
    struck = 0
    try:
        for number in range(80):
            try:
                try:
                    armed.append(True)
                    signal.setitimer(signal.ITIMER_REAL, 0.0004 * (number % 25 + 1))
                    run("q", backend=runtime)
                finally:
                    armed.clear()
            except KeyboardInterrupt:  # Once at most: it disarms itself, also in the lines above.
                struck += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        stuck.cancel()
    assert struck > 20
    assert run("q", backend=runtime)["z"] is not None


def test_a_text_beyond_every_context_is_refused_before_it_is_read(runtime: rm.Runtime) -> None:  # noqa: F811
    program = rm.function(lambda s, q: s.__iadd__(q + rm.gen("x", max_tokens=1)))
    with pytest.raises(rm.ContextOverflow, match="characters"):
        program.run("ab " * 3_000_000, backend=runtime)
