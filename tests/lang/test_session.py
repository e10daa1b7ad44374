from __future__ import annotations

import gc
from typing import Any

import pytest
from fake_backend import FakeBackend

import ramet.lang as rm
from ramet.lang.session import Session


def test_the_default_backend_is_set_and_used(backend: FakeBackend) -> None:
    assert rm.get_server_info() == backend.stats()
    rm.flush_cache()
    assert backend.num_flushes == 1


def test_a_default_backend_may_be_started_at_the_first_need(backend: FakeBackend) -> None:
    started = []

    def start() -> FakeBackend:
        started.append(backend)
        return backend

    session = Session()
    session.set_default(start)
    assert not started
    assert session.backend() is backend
    assert session.backend() is backend
    assert len(started) == 1


@pytest.mark.parametrize("bad", ["gpt", 3, object()])
def test_what_is_no_backend_is_refused(bad: Any) -> None:
    with pytest.raises(rm.InvalidArgument, match="backend"):
        rm.set_default_backend(bad)


def test_chat_pieces_are_kept_per_backend_and_freed_with_it() -> None:
    session = Session()
    other = FakeBackend()
    assert session.chat(other) is session.chat(other)
    other.shutdown()
    del other
    gc.collect()
    assert len(session._chats) == 0


@pytest.mark.parametrize("bad", [0, -1, True, "4", None])
def test_the_thread_limit_is_a_positive_number(bad: Any) -> None:
    with pytest.raises(rm.InvalidArgument, match="max_threads"):
        rm.global_config.max_threads = bad


def test_a_refused_default_leaves_the_old_one(backend: FakeBackend) -> None:
    program = rm.function(lambda s: s.__iadd__("a" + rm.gen("x")))
    with pytest.raises(rm.InvalidArgument, match="backend='tiny'"):
        rm.set_default_backend("tiny")  # type: ignore[arg-type]
    assert program.run()["x"] == program.run(backend=backend)["x"]
    with pytest.raises(rm.InvalidArgument, match="backend="):
        program.run(backend=rm.Runtime)
