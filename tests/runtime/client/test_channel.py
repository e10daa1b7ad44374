from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Iterator

import pytest

from ramet.runtime.client.channel import (
    FrameReader,
    Mailbox,
    Message,
    encode_frame,
    pump_in,
    pump_out,
    write_frame,
)

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        with contextlib.suppress(OSError):
            os.close(fd)


def _on_thread(target: object, *args: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=args)  # type: ignore[arg-type]
    thread.start()
    return thread


def test_a_frame_gives_back_what_was_written(pipe: tuple[int, int]) -> None:
    read_fd, write_fd = pipe
    messages: list[Message] = [
        {"text": "é\n\u2028\x00\ud800", "none": None, "flag": True},
        {"key": 2**64 - 1, "seed": -(2**63), "nested": [[1, [2.5]], {}]},
    ]
    write_frame(write_fd, messages)
    assert FrameReader(read_fd).read() == messages


@pytest.mark.parametrize("value", [0.1, 1 / 3, 5e-324, -0.0, 1.7976931348623157e308, 1e22])
def test_floats_cross_exactly(pipe: tuple[int, int], value: float) -> None:
    write_frame(pipe[1], [{"x": value}])
    frame = FrameReader(pipe[0]).read()
    assert frame is not None
    assert math.copysign(1, frame[0]["x"]) == math.copysign(1, value)
    assert frame[0]["x"] == value


def test_what_json_lacks_becomes_null(pipe: tuple[int, int]) -> None:
    write_frame(pipe[1], [{"x": [math.nan, math.inf, -math.inf, (1.5,)], "y": 2}])
    assert FrameReader(pipe[0]).read() == [{"x": [None, None, None, [1.5]], "y": 2}]


def test_frames_that_arrive_together_are_read_one_by_one(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"".join(encode_frame([{"i": i}]) for i in range(3)))
    os.close(pipe[1])
    reader = FrameReader(pipe[0])
    assert [reader.read() for _ in range(4)] == [[{"i": 0}], [{"i": 1}], [{"i": 2}], None]


def test_a_frame_larger_than_the_pipe(pipe: tuple[int, int]) -> None:
    messages = [{"ids": list(range(300_000))}]
    writer = _on_thread(write_frame, pipe[1], messages)
    assert FrameReader(pipe[0]).read() == messages
    writer.join()


@pytest.mark.parametrize("cut", [0, 2, 4, 9])
def test_a_pipe_that_ends_reads_as_the_end(pipe: tuple[int, int], cut: int) -> None:
    os.write(pipe[1], encode_frame([{"op": "stats"}])[:cut])
    os.close(pipe[1])
    assert FrameReader(pipe[0]).read() is None


def test_drain_takes_everything_at_once_and_in_order() -> None:
    box = Mailbox()
    box.put([{"i": 0}, {"i": 1}])
    box.put([{"i": 2}])
    assert box.drain(wait=True) == [{"i": 0}, {"i": 1}, {"i": 2}]
    assert box.drain(wait=False) == []


def test_a_closed_mailbox_gives_what_it_holds_and_then_none() -> None:
    box = Mailbox()
    assert box.put([{"i": 0}])
    box.close()
    assert not box.put([{"i": 1}])
    assert box.drain(wait=True) == [{"i": 0}]
    assert box.drain(wait=True) is None
    assert box.drain(wait=False) is None


def test_drain_wakes_for_a_message_and_for_the_end() -> None:
    box = Mailbox()
    seen: list[object] = []

    def drain_all() -> None:
        while (messages := box.drain(wait=True)) is not None:
            seen.extend(messages)

    reader = _on_thread(drain_all)
    box.put([{"i": 1}])
    box.close()
    reader.join()
    assert seen == [{"i": 1}]


def test_messages_of_many_threads_all_arrive_in_each_threads_order() -> None:
    box = Mailbox()

    def put_all(thread: int) -> None:
        for i in range(200):
            box.put([{"thread": thread, "i": i}])

    for thread in [_on_thread(put_all, t) for t in range(4)]:
        thread.join()
    messages = box.drain(wait=False) or []
    assert len(messages) == 800
    for t in range(4):
        assert [m["i"] for m in messages if m["thread"] == t] == list(range(200))


def test_a_reader_that_does_not_read_never_blocks_put(pipe: tuple[int, int]) -> None:
    outbox, inbox = Mailbox(), Mailbox()
    writer = _on_thread(pump_out, outbox, pipe[1])
    for i in range(100):
        assert outbox.put([{"i": i, "text": "x" * 10_000}])  # 1 MB, a pipe holds 64 KB.
    outbox.close()
    reader = _on_thread(pump_in, FrameReader(pipe[0]), inbox)
    writer.join()
    os.close(pipe[1])
    reader.join()
    assert [m["i"] for m in inbox.drain(wait=False) or []] == list(range(100))
    assert inbox.drain(wait=True) is None


def test_a_reader_that_is_gone_closes_the_outbox(pipe: tuple[int, int]) -> None:
    outbox = Mailbox()
    os.close(pipe[0])
    outbox.put([{"i": 0}])
    pump_out(outbox, pipe[1])
    assert not outbox.put([{"i": 1}])
