from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from stub_server import Reply, StubServer, eventually

from ramet.lang.backends.openai import OpenAI


def fast_options(**options: Any) -> dict[str, Any]:
    """Options of `OpenAI` with short pauses."""
    return {"backoff": 0.001, "timeout": 20.0, **options}


@pytest.fixture
def serve() -> Iterator[Callable[..., StubServer]]:
    """Starts servers; afterwards no client may hold a connection to one."""
    servers: list[StubServer] = []

    def start(*script: Reply, **options: Any) -> StubServer:
        servers.append(StubServer(*script, **options))
        return servers[-1]

    yield start
    try:
        for server in servers:
            server.gate.set()
            eventually(lambda: not server.sockets)  # noqa: B023
    finally:
        for server in servers:
            server.close()


@pytest.fixture
def connect(serve: Callable[..., StubServer]) -> Iterator[Callable[..., OpenAI]]:
    """Makes backends for a server; afterwards no thread of theirs may be left."""
    backends: list[OpenAI] = []

    def make(server: StubServer, **options: Any) -> OpenAI:
        options = {"model": "stub", **fast_options(**options)}
        backends.append(OpenAI(server.url, **options))
        return backends[-1]

    yield make
    for backend in backends:
        backend.shutdown()
    eventually(lambda: not [t for t in threading.enumerate() if t.name.startswith("ramet-")])
