from __future__ import annotations

import threading
from typing import Any

import pytest

from ramet.runtime.client.call import Call, CallResult, Chunk
from ramet.runtime.errors import BackendError

pytestmark = pytest.mark.timeout(30)


def _result(*texts: str) -> CallResult:
    return CallResult(list(texts), [7], lambda: [{"output_token_ids": [7]} for _ in texts])


def _call(streams: bool = False, *texts: str) -> Call[CallResult]:
    return Call(3, lambda event: _result(*texts), lambda call_id: None, streams=streams)


def _chunk(text: str, *ids: int, sample: int = 0, **more: Any) -> dict[str, Any]:
    return {"ev": "chunk", "sample": sample, "text": text, "ids": list(ids), **more}


def test_chunks_come_as_they_arrive_and_never_empty() -> None:
    call = _call(True, "aéb")
    seen: list[Chunk] = []
    first = threading.Event()

    def read() -> None:
        for chunk in call.chunks():
            seen.append(chunk)
            first.set()

    reader = threading.Thread(target=read)
    reader.start()
    call.feed(_chunk("a", 1))
    assert first.wait(10)
    assert seen == [Chunk("a", [1], None, 1)]
    call.feed(_chunk("", 2, logprobs=[[-1.0, 2, ""]]))
    call.feed(_chunk("é", 3, logprobs=[[-2.0, 3, "é"]]))
    call.feed(_chunk("", 4))
    call.finish({"ev": "done"})
    reader.join()
    assert seen[1:] == [Chunk("é", [2, 3], [(-1.0, 2, ""), (-2.0, 3, "é")], 3)]
    assert list(call.chunks()) == seen  # A later reader gets all of it.


def test_samples_stream_apart() -> None:
    call = _call(True, "ac", "b")
    for text, sample in (("a", 0), ("b", 1), ("c", 0)):
        call.feed(_chunk(text, 5, sample=sample))
    call.finish({"ev": "done"})
    assert [c.text for c in call.chunks(0)] == ["a", "c"]
    assert [c.text for c in call.chunks(1)] == ["b"]


def test_an_error_comes_after_what_was_produced() -> None:
    call = _call(True)
    call.feed(_chunk("a", 1))
    call.fail(BackendError("gone"))
    chunks = call.chunks()
    assert next(chunks).text == "a"
    with pytest.raises(BackendError, match="gone"):
        next(chunks)


def test_a_call_that_does_not_stream_is_one_chunk() -> None:
    call = _call(False, "whole", "")
    call.feed(_chunk("never", 1))
    call.finish({"ev": "done"})
    assert list(call.chunks()) == [Chunk("whole", [7], None, 1)]
    assert list(call.chunks(1)) == []


def test_an_answer_that_cannot_be_decoded_fails_the_call() -> None:
    call: Call[int] = Call(1, lambda event: event["missing"], lambda call_id: None)
    call.finish({"ev": "done"})
    assert isinstance(call.exception(), KeyError)


def test_abort_asks_only_while_the_call_runs() -> None:
    asked: list[int] = []
    call: Call[CallResult] = Call(4, lambda event: _result("x"), asked.append)
    call.abort()
    call.finish({"ev": "done"})
    call.abort()
    assert asked == [4]


def test_meta_is_built_once_and_late() -> None:
    built: list[int] = []

    def describe() -> list[dict[str, Any]]:
        built.append(1)
        return [{"a": 1}]

    result = CallResult(["x"], [], describe)
    assert built == []
    assert result.meta is result.meta
    assert built == [1]
    assert result.text == "x"
