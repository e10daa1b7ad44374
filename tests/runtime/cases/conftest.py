from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scripted_engine import Bench
from scripted_runtime import idle, start

from ramet.runtime.cache.audit import audit_idle
from ramet.runtime.runtime import Runtime

__all__ = ["start"]


@pytest.fixture
def make() -> Iterator[Callable[..., Bench]]:
    """Builds scripted engines; afterwards each is idle, owns nothing, and serves one more call."""
    made: list[Bench] = []

    def build(*args: Any, **options: Any) -> Bench:
        made.append(Bench(*args, **options))
        return made[-1]

    yield build
    for bench in made:
        bench.run()
        bench.close(*bench.engine._contexts.live)
        call = bench.generate(context := bench.open([7, 7]), max_tokens=1)
        bench.run()
        assert call in bench.done
        bench.close(context)
        at_rest(bench)


@pytest.fixture(scope="module")
def tiny() -> Iterator[Runtime]:
    """The real engine on the model `tiny` in float32, for a module's tests."""
    with Runtime("tiny", dtype="float32", isolation="thread", pool_tokens=16384) as runtime:
        yield runtime
        idle(runtime)


def at_rest(bench: Bench) -> None:
    """Assert that all contexts are closed and nothing is left of any call."""
    engine = bench.engine
    stats = engine.stats()
    left = {name: stats[name] for name in ("held_tokens", "running", "waiting", "contexts")}
    assert left == dict.fromkeys(left, 0)
    assert stats["free_tokens"] + stats["cached_pool_tokens"] == stats["pool_tokens"]
    assert not engine._calls
    assert not engine._queued
    assert not engine._contexts.programs
    assert not [node for node in engine.room.tree.nodes() if node.refs]
    audit_idle(engine.room.tree)
