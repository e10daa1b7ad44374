from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fake_engine import ISOLATIONS, children, no_leaks, start_client

from ramet.runtime.client.call import Call, CallResult
from ramet.runtime.client.connection import SHUT_DOWN, EngineClient
from ramet.runtime.client.generation import generation_result
from ramet.runtime.client.token_path import TokenPath
from ramet.runtime.client.transport import ProcessTransport
from ramet.runtime.errors import BackendError, Cancelled, PoolTooSmall, UnsupportedFeature

__all__ = ["no_leaks"]
pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("no_leaks")]


@pytest.fixture(params=ISOLATIONS)
def client(request: pytest.FixtureRequest) -> Iterator[EngineClient]:
    client = start_client(request.param)
    yield client
    client.shutdown()


def _begin(client: EngineClient, site: str = "", **more: Any) -> Call[CallResult]:
    """A generation on a new context of a new program."""
    ctx = client.next_id()
    call: Call[CallResult] = Call(
        client.next_id(),
        lambda event: generation_result(event, TokenPath(None, [1, 2])),
        client.abort_call,
        streams=more.get("stream", False),
    )
    op = {"op": "generate", "ctx": ctx, "call": call.call_id, "site": site}
    client.submit(
        [
            {"op": "open", "ctx": ctx, "program": more.get("program", ctx)},
            {"op": "append", "ctx": ctx, "ids": [1, 2]},
            {**op, "params": {}, "keys": [0], "stream": more.get("stream", False)},
        ],
        [call],
    )
    return call


def test_info_is_what_the_engine_said(client: EngineClient) -> None:
    assert client.info["vocab_size"] == 259
    assert "ev" not in client.info


def test_a_call_is_a_future(client: EngineClient) -> None:
    seen: list[Call[CallResult]] = []
    ended = threading.Event()

    def note(done: Call[CallResult]) -> None:
        seen.append(done)
        ended.set()

    call = _begin(client)
    call.add_done_callback(note)
    assert call.result(20).text == "len=2 é"
    assert ended.wait(20)
    assert seen == [call]
    assert call.done()
    assert call.exception() is None


def test_results_reach_the_call_they_belong_to(client: EngineClient) -> None:
    calls = [_begin(client) for _ in range(30)]
    assert {call.result(20).text for call in calls} == {"len=2 é"}


def test_an_error_of_a_call_leaves_the_engine_healthy(client: EngineClient) -> None:
    bad, good = _begin(client, "fail"), _begin(client)
    with pytest.raises(PoolTooSmall, match="17 tokens"):
        bad.result(20)
    assert good.result(20).text
    assert client.request("stats")["contexts"] == 2


def test_a_result_can_time_out_and_still_come(client: EngineClient) -> None:
    call = _begin(client, "hang")
    with pytest.raises(TimeoutError):
        call.result(0.05)
    assert not call.done()
    call.abort()
    with pytest.raises(Cancelled):
        call.result(20)
    call.abort()  # Nothing is left to abort.


def test_abort_of_a_program_ends_its_calls_alone(client: EngineClient) -> None:
    mine, other = _begin(client, "hang", program=70), _begin(client, "hang", program=71)
    client.abort_program(70)
    assert isinstance(mine.exception(20), Cancelled)
    assert not other.done()
    client.abort_call(other.call_id)
    assert isinstance(other.exception(20), Cancelled)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_shutdown_fails_what_waits_and_what_comes(isolation: str) -> None:
    client = start_client(isolation)
    call = _begin(client, "hang")
    client.shutdown()
    client.shutdown()
    for error in (call.exception(1), *[_error_of(client) for _ in range(2)]):
        assert isinstance(error, BackendError)
        assert str(error) == SHUT_DOWN
    client.abort_program(1)
    client.close_context(1)


def _error_of(client: EngineClient) -> BaseException:
    with pytest.raises(BackendError) as caught:
        _begin(client)
    return caught.value


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_crash_fails_every_caller_with_its_traceback(isolation: str) -> None:
    client = start_client(isolation)
    waiting = [_begin(client, "hang") for _ in range(3)]
    calls = [*waiting, _begin(client, "crash")]
    errors = [call.exception(20) for call in calls]
    assert all(isinstance(error, BackendError) for error in errors)
    assert len({id(error) for error in errors}) == 4
    for error in (*errors, _error_of(client)):
        assert "crashed in a step" in str(error)
        assert isolation == "thread" or "exit code 1" in str(error)
    client.shutdown()


@pytest.mark.parametrize("stream", [False, True])
def test_a_killed_process_fails_every_caller_naming_its_exit(stream: bool) -> None:
    client = start_client("process")
    calls = [_begin(client, "hang", stream=stream) for _ in range(3)]
    assert isinstance(client._transport, ProcessTransport)
    os.kill(client._transport.pid, signal.SIGKILL)
    for call in calls:
        with pytest.raises(BackendError, match="exit code -9, SIGKILL"):
            list(call.chunks()) if stream else call.result(20)
    assert "SIGKILL" in str(_error_of(client))
    with pytest.raises(BackendError, match="SIGKILL"):
        client.request("stats")
    client.shutdown()


def test_a_process_that_exits_names_its_code() -> None:
    client = start_client("process")
    with pytest.raises(BackendError, match="exit code 7"):
        _begin(client, "exit").result(20)
    client.shutdown()


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_an_engine_that_cannot_start_raises_its_own_error(isolation: str) -> None:
    with pytest.raises(UnsupportedFeature, match="not one of ours"):
        start_client(isolation, model="unsupported")
    with pytest.raises(BackendError, match="broken while loading"):
        start_client(isolation, model="broken")


def test_a_process_that_dies_while_loading_names_its_code() -> None:
    with pytest.raises(BackendError, match=r"exit code 9\) before it was ready"):
        start_client("process", model="dead")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_may_not_use_or_end_its_parents_engine() -> None:
    client = start_client("process")
    pid = os.fork()
    if pid == 0:
        try:
            client.shutdown()
            client.abort_program(1)
            client.submit([{"op": "stats", "call": 1}])
        except BackendError as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert client.request("stats")["steps"] == 0
    client.shutdown()
    assert children() == []


def test_many_threads_submit_at_once(client: EngineClient) -> None:
    texts: list[str] = []

    def work() -> None:
        texts.extend(_begin(client).result(20).text for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["len=2 é"] * 40
