"""One call on the engine, as its caller holds it: a future, its result, and its stream."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import cached_property
from typing import Any, Generic, TypeVar

ResultT = TypeVar("ResultT")

Logprobs = list[tuple[float | None, int, str]]
"""(log-probability, token id, text) of consecutive tokens."""


@dataclasses.dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of one sample's text as it streams; `text` is never empty."""

    text: str
    ids: list[int]
    """The tokens behind `text`, with those before it that showed no text yet."""
    logprobs: Logprobs | None
    """One entry per id, if the call asked for them."""


@dataclasses.dataclass(frozen=True)
class CallResult:
    """What a finished generation or selection gave."""

    texts: list[str]
    """One text per sample; a selection's is the chosen text."""
    entered: list[int]
    """The ids that the call added to its context."""
    describe: Callable[[], list[dict[str, Any]]] = dataclasses.field(repr=False)
    """Builds `meta`."""
    index: int | None = None
    """The chosen index of a selection."""

    @property
    def text(self) -> str:
        """The text that entered the context."""
        return self.texts[0]

    @cached_property
    def meta(self) -> list[dict[str, Any]]:
        """One dict per sample, built when it is first read: it holds the whole prompt's ids."""
        return self.describe()


class Call(Generic[ResultT]):
    """A call in flight. Its methods may be used from any thread."""

    def __init__(
        self,
        call_id: int,
        decode: Callable[[Mapping[str, Any]], ResultT],
        abort: Callable[[int], None],
        *,
        streams: bool = False,
    ) -> None:
        self.call_id = call_id
        """Its number on the channel."""
        self._decode = decode
        self._abort = abort
        self._future: Future[ResultT] = Future()
        self._grown = threading.Condition()
        self._streams: dict[int, _Stream] | None = {} if streams else None

    def result(self, timeout: float | None = None) -> ResultT:
        """The result, waiting for it; raises the call's error, or TimeoutError after `timeout`
        seconds, which doesn't abort the call."""
        return self._future.result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The call's error, waiting for its end; None if it succeeded."""
        return self._future.exception(timeout)

    def done(self) -> bool:
        """Whether it has ended, well or badly."""
        return self._future.done()

    def add_done_callback(self, callback: Callable[[Call[ResultT]], object]) -> None:
        """Have `callback(call)` run once it ends, at once if it has.

        It runs on the thread that reads the engine's events, so it must not wait for another call.
        """
        self._future.add_done_callback(lambda _: callback(self))

    def abort(self) -> None:
        """Ask the engine to end it now; does nothing once it has ended."""
        if not self.done():
            self._abort(self.call_id)

    def chunks(self, sample: int = 0) -> Iterator[Chunk]:
        """The text of one sample as it arrives, from its beginning, for any number of readers.

        Ends with the call; raises the call's error after what was produced before it. A call that
        wasn't started with `stream=True` gives its whole text as one chunk.
        """
        if self._streams is None:
            yield from _whole(self.result(), sample)
            return
        with self._grown:
            stream = self._streams.setdefault(sample, _Stream())
        position = 0
        while True:
            with self._grown:
                while len(stream.chunks) <= position and not self.done():
                    self._grown.wait()
                new, ended = stream.chunks[position:], self.done()
            yield from new
            position += len(new)
            if ended:
                self.result()
                return

    def feed(self, event: Mapping[str, Any]) -> None:
        """Take a `chunk` event. Only the client's reader calls this."""
        if self._streams is not None:
            with self._grown:
                self._streams.setdefault(event["sample"], _Stream()).add(event)
                self._grown.notify_all()

    def finish(self, event: Mapping[str, Any]) -> None:
        """Take the event with the result. Only the client's reader calls this, once."""
        try:
            result = self._decode(event)
        except Exception as error:
            self.fail(error)
        else:
            self._future.set_result(result)
            self._wake()

    def fail(self, error: Exception) -> None:
        """End it with `error`."""
        self._future.set_exception(error)
        self._wake()

    def _wake(self) -> None:
        with self._grown:
            self._grown.notify_all()


class _Stream:
    """The chunks of one sample so far."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self._ids: list[int] = []
        self._logprobs: Logprobs = []

    def add(self, event: Mapping[str, Any]) -> None:
        # Tokens without text yet (half a character) wait for the chunk that shows them.
        self._ids += event["ids"]
        logprobs = event.get("logprobs")
        if logprobs is not None:
            self._logprobs += [tuple(entry) for entry in logprobs]
        if event["text"]:
            shown = self._logprobs if logprobs is not None else None
            self.chunks.append(Chunk(event["text"], self._ids, shown))
            self._ids, self._logprobs = [], []


def _whole(result: object, sample: int) -> Iterator[Chunk]:
    if isinstance(result, CallResult) and result.texts[sample]:
        meta = result.meta[sample]
        yield Chunk(
            result.texts[sample],
            meta.get("output_token_ids", []),
            meta.get("output_token_logprobs"),
        )
