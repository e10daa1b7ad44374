"""One call on the engine, as its caller holds it: a future, its result, and its stream."""

from __future__ import annotations

import dataclasses
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from ramet.runtime.client.ring import Ring

ResultT = TypeVar("ResultT")

Logprobs = list[tuple[float | None, int, str | None]]
"""(log-probability, token id, text) of consecutive tokens; no text where it wasn't asked for."""


@dataclasses.dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of one sample's text as it streams; `text` is never empty."""

    text: str
    ids: list[int]
    """The tokens behind `text`, with those before it that showed no text yet."""
    logprobs: Logprobs | None
    """One entry per id, if the call asked for them."""
    num_tokens: int = 0
    """Tokens of the sample up to here, these included."""


@dataclasses.dataclass(slots=True)
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
    _meta: list[dict[str, Any]] | None = dataclasses.field(
        default=None, init=False, repr=False, compare=False
    )

    @property
    def text(self) -> str:
        """The text that entered the context."""
        return self.texts[0]

    @property
    def meta(self) -> list[dict[str, Any]]:
        """One dict per sample, built when it is first read: it holds the whole prompt's ids."""
        if self._meta is None:
            self._meta = self.describe()
        return self._meta


class Call(Generic[ResultT]):
    """A call in flight. Its methods may be used from any thread."""

    __slots__ = (
        "__weakref__",
        "_abort",
        "_callbacks",
        "_decode",
        "_done",
        "_error",
        "_lock",
        "_result",
        "_streams",
        "_watchers",
        "call_id",
    )

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
        # One plain lock: a program makes many calls, and most of them nobody waits for.
        self._lock = threading.Lock()
        self._done = False
        self._result: ResultT | None = None
        self._error: Exception | None = None
        self._callbacks: list[Callable[[Call[ResultT]], object]] = []
        self._watchers: tuple[Callable[[], object], ...] = ()
        self._streams: dict[int, _Stream] | None = {} if streams else None

    def result(self, timeout: float | None = None) -> ResultT:
        """The result, waiting for it; raises the call's error, or TimeoutError after `timeout`
        seconds, which doesn't abort the call."""
        if not self._done:
            self._wait(timeout)
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def exception(self, timeout: float | None = None) -> Exception | None:
        """The call's error, waiting for its end; None if it succeeded."""
        if not self._done:
            self._wait(timeout)
        return self._error

    def done(self) -> bool:
        """Whether it has ended, well or badly."""
        return self._done

    def add_done_callback(self, callback: Callable[[Call[ResultT]], object]) -> None:
        """Have `callback(call)` run once it ends, at once if it has.

        It runs on the thread that reads the engine's events, so it must not wait for another call.
        """
        with self._lock:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback(self)

    def abort(self) -> None:
        """Ask the engine to end it now; does nothing once it has ended."""
        if not self._done:
            self._abort(self.call_id)

    def chunks(self, sample: int = 0) -> Iterator[Chunk]:
        """The text of one sample as it arrives, from its beginning, for any number of readers.

        Ends with the call; raises the call's error after what was produced before it. A call that
        wasn't started with `stream=True` gives its whole text as one chunk.
        """
        news = Ring()
        self.watch(news.ring)
        try:
            position, ended = 0, False
            while not ended:
                new, ended = self.chunks_since(position, sample)
                yield from new
                position += len(new)
                if not new and not ended:
                    news.wait()
        finally:
            self.unwatch(news.ring)
        self.result()

    def chunks_since(self, position: int, sample: int = 0) -> tuple[list[Chunk], bool]:
        """The chunks of a sample from number `position` on that are there, and whether these are
        all; waits for nothing."""
        with self._lock:
            ended = self._done
            stream = None if self._streams is None else self._streams.get(sample)
            chunks = [] if stream is None else stream.chunks[position:]
        if self._streams is None and ended and self._error is None:
            chunks = whole(self._result, sample)[position:]
        return chunks, ended

    def watch(self, callback: Callable[[], object]) -> None:
        """Have `callback()` called for every new chunk and for the end; it must not wait."""
        with self._lock:
            self._watchers = (*self._watchers, callback)

    def unwatch(self, callback: Callable[[], object]) -> None:
        """Stop calling `callback`."""
        with self._lock:
            self._watchers = tuple(known for known in self._watchers if known != callback)

    def feed(self, event: Mapping[str, Any]) -> None:
        """Take a `chunk` event. Only the client's reader calls this."""
        if self._streams is not None:
            with self._lock:
                self._streams.setdefault(event["sample"], _Stream()).add(event)
                watchers = self._watchers
            for watcher in watchers:
                watcher()

    def finish(self, event: Mapping[str, Any]) -> None:
        """Take the event with the result. Only the client's reader calls this, once."""
        try:
            result = self._decode(event)
        except Exception as error:
            self.fail(error)
        else:
            self._end(result, None)

    def fail(self, error: Exception) -> None:
        """End it with `error`."""
        self._end(None, error)

    def _end(self, result: ResultT | None, error: Exception | None) -> None:
        with self._lock:
            self._result, self._error, self._done = result, error, True
            callbacks, self._callbacks = self._callbacks, []
            watchers, self._watchers = self._watchers, ()
        for watcher in watchers:
            watcher()
        for callback in callbacks:
            try:
                callback(self)
            except Exception:  # One reader's mistake must not keep the others waiting.
                traceback.print_exc()

    def _wait(self, timeout: float | None) -> None:
        woken = Ring()
        self.add_done_callback(lambda _: woken.ring())
        if not woken.wait(timeout):
            raise TimeoutError(f"the call has not ended within {timeout} s")


class _Stream:
    """The chunks of one sample so far."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self._ids: list[int] = []
        self._logprobs: Logprobs = []
        self._num_tokens = 0

    def add(self, event: Mapping[str, Any]) -> None:
        # Tokens without text yet (half a character) wait for the chunk that shows them.
        self._ids += event["ids"]
        self._num_tokens += len(event["ids"])
        logprobs = event.get("logprobs")
        if logprobs is not None:
            self._logprobs += [tuple(entry) for entry in logprobs]
        if event["text"]:
            shown = self._logprobs if logprobs is not None else None
            self.chunks.append(Chunk(event["text"], self._ids, shown, self._num_tokens))
            self._ids, self._logprobs = [], []


def whole(result: object, sample: int = 0) -> list[Chunk]:
    """A sample of a result as one chunk; none if it has no text."""
    if not isinstance(result, CallResult) or not result.texts[sample]:
        return []
    meta = result.meta[sample]
    ids = meta.get("output_token_ids", [])
    return [Chunk(result.texts[sample], ids, meta.get("output_token_logprobs"), len(ids))]
