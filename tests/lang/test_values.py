from __future__ import annotations

import pytest
from fake_backend import FakeBackend

import ramet.lang as rm
from ramet.lang.instance import Instance
from ramet.lang.values import CallValue, GatheredValue, GivenValue, SpanValue, chunks_of, text_of
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
