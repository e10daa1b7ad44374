"""A watchdog: a test that hangs fails, with the stacks of all threads, and the suite goes on."""

from __future__ import annotations

import faulthandler
import functools
import tempfile
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import pytest

ArgsT = ParamSpec("ArgsT")
ResultT = TypeVar("ResultT")

_GRACE = 2.0
"""Seconds after the stacks were written, in which the body may still end."""


def within(seconds: float, body: Callable[[], ResultT]) -> ResultT:
    """What `body()` gives or raises; if it takes longer than `seconds`, the test fails.

    The body runs on a daemon thread, which a hang leaves behind.
    """
    done: list[ResultT] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(body())
        except BaseException as error:
            failed.append(error)

    with tempfile.TemporaryFile("w+") as stacks:
        # Its own thread writes them, which needs no lock that the hang may hold.
        faulthandler.dump_traceback_later(seconds, file=stacks)
        try:
            thread = threading.Thread(target=run, name="watched", daemon=True)
            thread.start()
            thread.join(seconds + _GRACE)
        finally:
            faulthandler.cancel_dump_traceback_later()
        if thread.is_alive():
            stacks.seek(0)
            pytest.fail(f"no end after {seconds} s\n{stacks.read()}", pytrace=False)
    if failed:
        raise failed[0]
    return done[0]


def watchdog(
    seconds: float = 60.0,
) -> Callable[[Callable[ArgsT, ResultT]], Callable[ArgsT, ResultT]]:
    """Have a test run `within` a time."""

    def decorate(test: Callable[ArgsT, ResultT]) -> Callable[ArgsT, ResultT]:
        @functools.wraps(test)
        def watched(*args: ArgsT.args, **kwargs: ArgsT.kwargs) -> ResultT:
            return within(seconds, lambda: test(*args, **kwargs))

        return watched

    return decorate
