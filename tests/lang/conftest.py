from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fake_backend import FakeBackend, MakeBackend

import ramet.lang as rm


@pytest.fixture
def make_backend() -> Iterator[MakeBackend]:
    """Makes the default backend; afterwards nothing may be left of any program."""
    made: list[FakeBackend] = []

    def make(*args: Any, **kwargs: Any) -> FakeBackend:
        backend = FakeBackend(*args, **kwargs)
        made.append(backend)
        rm.set_default_backend(backend)
        return backend

    yield make
    rm.set_default_backend(None)
    for backend in made:
        backend.gate.set()
    _wait_for_threads()
    for backend in made:
        backend.audit()
        backend.shutdown()


@pytest.fixture
def backend(make_backend: MakeBackend) -> FakeBackend:
    """A default backend that answers `[length of the prompt]`."""
    return make_backend()


@pytest.fixture
def max_threads() -> Iterator[Callable[[int], None]]:
    """Sets the limit of body threads for one test."""
    before = rm.global_config.max_threads
    yield lambda limit: setattr(rm.global_config, "max_threads", limit)
    rm.global_config.max_threads = before


def _wait_for_threads() -> None:
    deadline = time.monotonic() + 5
    while [t.name for t in threading.enumerate() if t.name.startswith("ramet-")]:
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.002)
