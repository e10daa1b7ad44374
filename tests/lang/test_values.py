from __future__ import annotations

import asyncio
import threading

import pytest
from fake_backend import FakeBackend

import ramet.lang as rm
from ramet.lang.instance import Instance
from ramet.lang.values import (
    CallValue,
    GatheredValue,
    GivenValue,
    SharedValue,
    SpanValue,
    Value,
    chunks_of,
    text_of,
)
from ramet.lang.views import ComputedValue
from ramet.runtime.client.call import Call, CallResult
from ramet.runtime.request import SamplingParams


def result(*texts: str) -> CallResult:
    return CallResult(list(texts), [], lambda: [{"text": text} for text in texts])


def call_of(backend: FakeBackend, text: str) -> Call[CallResult]:
    backend.script = lambda *_: text
    handle = backend.open()
    call = handle.generate(SamplingParams(), stream=True, site="a:1")
    handle.close()
    return call


def test_a_call_value_keeps_only_its_result_once_settled(backend: FakeBackend) -> None:
    call = call_of(backend, "abcd")
    value = CallValue(call, Instance("p", backend))
    assert list(value.chunks()) == ["ab", "cd"]
    assert call.done()
    assert value.settle() is None
    assert (value.read(), value.text(), value.typed()) == ("abcd", "abcd", "abcd")
    assert list(value.chunks()) == ["abcd"]
    value.abort()


def test_an_error_is_told_once(backend: FakeBackend) -> None:
    def fail(*_: object) -> str:
        raise rm.PoolTooSmall("no room")

    backend.script = fail
    handle = backend.open()
    call = handle.generate(SamplingParams(), stream=False, site="a:1")
    handle.close()
    value = CallValue(call, Instance("p", backend))
    with pytest.raises(rm.PoolTooSmall):
        call.result(5)
    assert isinstance(value.settle(), rm.PoolTooSmall)
    with pytest.raises(rm.PoolTooSmall, match="no room"):
        value.read()
    with pytest.raises(rm.PoolTooSmall, match="no room"):
        list(value.chunks())
    assert value.settle() is None


def test_a_cancelled_call_of_a_failed_run_gives_the_runs_reason(backend: FakeBackend) -> None:
    backend.gate.clear()
    handle = backend.open()
    call = handle.generate(SamplingParams(), stream=False, site="a:1")
    handle.close()
    instance = Instance("p", backend)
    cause = ValueError("root")
    failure = KeyError("why")
    failure.__cause__ = cause
    instance.fail(failure)
    call.abort()
    with pytest.raises(KeyError, match="why") as caught:
        CallValue(call, instance).read()
    assert caught.value.__cause__ is cause
    assert caught.value.__context__ is None


def test_given_gathered_and_span_values(backend: FakeBackend) -> None:
    given = GivenValue(3)
    assert (given.read(), given.typed(), list(given.chunks())) == (3, 3, ["3"])
    call = CallValue(call_of(backend, "xy"), Instance("p", backend))
    gathered = GatheredValue([given, call])
    assert gathered.read() == gathered.typed() == [3, "xy"]
    assert len(GatheredValue([call]).meta()) == 1
    with pytest.raises(rm.ProgramError, match="no call"):
        gathered.meta()
    segments = [("a", "text"), call, ("b", "content")]
    assert SpanValue(segments).read() == text_of(segments) == "axyb"
    assert "".join(SpanValue(segments).chunks()) == "axyb"
    assert list(chunks_of(("a", "text"))) == ["a"]


def test_only_logprob_entries_lose_their_texts(backend: FakeBackend) -> None:
    call = CallValue(call_of(backend, "x"), Instance("p", backend), logprob_texts=False)
    meta = call.meta()
    assert isinstance(meta, dict)
    assert meta["output_token_logprobs"] == [(-1.0, ord("x"), None)]
    assert meta["output_token_ids"] == [ord("x")]


def test_a_computed_value_comes_once_and_tells_who_waits(backend: FakeBackend) -> None:
    value, told = ComputedValue(Instance("p", backend)), []
    value.on_done(lambda: told.append(1))
    assert list(value.pending()) == [value]
    reader_got: list[object] = []
    reader = threading.Thread(target=lambda: reader_got.append(value.read()))
    reader.start()
    value.put("first")
    value.put("second")
    value.fail()
    reader.join()
    value.on_done(lambda: told.append(2))
    assert (reader_got, value.read(), told) == (["first"], "first", [1, 2])
    assert list(value.pending()) == []
    with pytest.raises(rm.ProgramError, match="no call"):
        value.meta()


def test_a_computed_value_that_never_comes_says_why(backend: FakeBackend) -> None:
    instance = Instance("p", backend)
    value = ComputedValue(instance)
    instance.fail(KeyError("why"))
    value.fail()
    assert value.done()
    with pytest.raises(KeyError, match="why"):
        value.read()


def test_a_shared_value_is_anothers_without_its_call(backend: FakeBackend) -> None:
    computed = ComputedValue(Instance("p", backend))
    shared = SharedValue(computed)
    gathered = GatheredValue([shared, GivenValue(1)])
    assert list(shared.pending()) == list(gathered.pending()) == [computed]
    computed.put(["x"])
    assert shared.read() is computed.read()
    assert gathered.read() == [["x"], 1]
    call = SharedValue(CallValue(call_of(backend, "xy"), Instance("p", backend)))
    assert (call.read(), list(call.chunks())) == ("xy", ["xy"])
    with pytest.raises(rm.ProgramError, match="no call"):
        call.meta()


def test_values_are_awaited_and_streamed_in_a_loop(backend: FakeBackend) -> None:
    async def pieces(value: Value) -> list[tuple[str, object]]:
        await value.ready()
        return [(text, chunk and chunk.num_tokens) async for text, chunk in value.achunks()]

    async def main() -> None:
        running = CallValue(call_of(backend, "abcd"), Instance("p", backend))
        assert await pieces(running) == [("ab", 1), ("cd", 2)]
        assert running.settle() is None
        assert await pieces(running) == [("abcd", 4)]
        assert await pieces(GivenValue(3)) == [("3", None)]
        span = SpanValue([("x", "text"), running])
        assert await pieces(span) == [("x", None), ("abcd", 4)]
        failing = ComputedValue(Instance("p", backend))
        asyncio.get_running_loop().call_later(0.01, failing.put, "late")
        assert await pieces(failing) == [("late", None)]

    asyncio.run(asyncio.wait_for(main(), 20))
