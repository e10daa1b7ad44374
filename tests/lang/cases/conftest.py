from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from scripted_runtime import idle, scripted_runtime

from ramet.runtime.runtime import Runtime


class Starter:
    """Starts scripted Runtimes and keeps them."""

    def __init__(self) -> None:
        self.runtimes: list[Runtime] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Runtime:
        self.runtimes.append(scripted_runtime(*args, **kwargs))
        return self.runtimes[-1]


@pytest.fixture
def start() -> Iterator[Starter]:
    """Starts scripted Runtimes; afterwards each must be idle and serve the next request."""
    starter = Starter()
    yield starter
    for runtime in starter.runtimes:
        with runtime:
            assert runtime.generate("ping", {"max_tokens": 1})
            idle(runtime)
