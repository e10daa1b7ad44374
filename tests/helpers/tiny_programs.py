"""What tests of programs on the model `tiny` share: a default Runtime, and the watch on its rest.

A test module takes the fixtures by importing `runtime` and `at_rest`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scripted_runtime import idle
from stub_server import eventually

import ramet.lang as rm
from ramet.runtime.runtime import Runtime


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    """The default backend of a module's tests."""
    with Runtime("tiny", pool_tokens=65536, seed=5) as runtime:
        yield runtime


@pytest.fixture(autouse=True)
def at_rest(runtime: Runtime) -> Iterator[None]:
    """After each test the engine comes to rest, and nothing is left of its programs."""
    rm.set_default_backend(runtime)
    yield
    rm.set_default_backend(None)

    def is_at_rest() -> bool:
        stats = runtime.stats()
        return not (stats["contexts"] or stats["running"] or stats["waiting"])

    if not is_at_rest():  # What was dropped or cancelled may still be on its way out.
        gc.collect()
        eventually(is_at_rest)
    idle(runtime)


def gen(name: str = "x", max_tokens: int = 2, **options: Any) -> Any:
    """A short generation of a fixed length."""
    return rm.gen(name, max_tokens, ignore_eos=True, **options)


def run(body: Callable[..., Any], *args: Any, **kwargs: Any) -> rm.ProgramState:
    """Run a body that isn't decorated."""
    return rm.function(body).run(*args, **kwargs)
