"""Values: what variables hold, some of them still on their way.

A variable is a list of values, the last one counts. Reading a value waits for it and raises its
error; nothing else does.
"""

from __future__ import annotations

import abc
import dataclasses
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ramet.lang.backends.protocol import Piece
from ramet.lang.errors import Cancelled, ProgramError
from ramet.lang.loops import Bell
from ramet.lang.session import session
from ramet.lang.typed import Reader, typed_value
from ramet.runtime.client.call import Call, CallResult, Chunk, Logprobs, whole

if TYPE_CHECKING:
    from ramet.lang.instance import Instance


class Value(abc.ABC):
    """One value of a variable."""

    @abc.abstractmethod
    def read(self) -> Any:
        """What `s[name]` gives."""

    def typed(self) -> Any:
        """What `s.value(name)` gives."""
        return self.read()

    def meta(self) -> Any:
        """What `s.meta(name)` gives; raises ProgramError for a value that no call made."""
        raise ProgramError("it was set by the program, so no call describes it")

    def chunks(self) -> Iterator[str]:
        """Its text piece by piece, as it comes."""
        yield str(self.read())

    def pending(self) -> Iterator[Pending]:
        """What it still waits for; reading it waits for nothing once there is none."""
        yield from ()

    async def ready(self) -> None:
        """Wait, without blocking the event loop, until reading it waits for nothing."""
        for part in self.pending():
            await part.settled()

    async def achunks(self) -> AsyncIterator[tuple[str, Chunk | None]]:
        """Its text as it comes, without blocking the event loop, and the chunk behind each piece
        if a call made it."""
        await self.ready()
        yield str(self.read()), None


class Pending(Value):
    """A value that something else than the reader brings."""

    @abc.abstractmethod
    def done(self) -> bool:
        """Whether it is there, or never will be."""

    @abc.abstractmethod
    def on_done(self, callback: Callable[[], object]) -> None:
        """Have `callback()` called once it is done, at once if it is; on whatever thread."""

    def pending(self) -> Iterator[Pending]:
        """Itself, until it is done."""
        if not self.done():
            yield self

    async def settled(self) -> None:
        """Wait for its end without blocking the event loop."""
        if not self.done():
            await session.loops.wait(self.on_done)


class CallValue(Pending):
    """The future value of one call, which also is a piece of the text."""

    def __init__(
        self,
        call: Call[CallResult],
        instance: Instance,
        n: int = 1,
        logprob_texts: bool = True,
        dtype: str | Reader | None = None,
    ) -> None:
        self._call: Call[CallResult] | None = call
        self._instance = instance
        self._n = n
        self._logprob_texts = logprob_texts
        self._dtype = dtype
        self._result: CallResult | None = None
        self._error: Exception | None = None
        self.delivered = False
        """Whether its error, if it has one, needs no more telling."""

    def read(self) -> str | list[str]:
        """The text, or the list of n texts."""
        result = self._outcome()
        return result.texts[0] if self._n == 1 else list(result.texts)

    def typed(self) -> Any:
        """The text as the type that its call has; raises ProgramError for a text cut short."""
        value, dtype = self.read(), self._dtype
        metas = self._outcome().meta
        for meta, text in zip(metas, value if isinstance(value, list) else [value], strict=False):
            if not meta.get("constraint", {}).get("complete", True):
                raise ProgramError(
                    f"{text!r} is only the beginning of what its constraint asks for: the call "
                    f"ended early ({meta['finish_reason']})"
                )
        if dtype is None:
            return value
        if isinstance(value, list):
            return [typed_value(dtype, text) for text in value]
        return typed_value(dtype, value)

    def text(self) -> str:
        """What entered the text."""
        return self._outcome().texts[0]

    def meta(self) -> dict[str, Any] | list[dict[str, Any]]:
        """What the engine says of the call; a list of dicts if there are n samples."""
        metas = self._outcome().meta
        if not self._logprob_texts:
            metas = [_without_texts(meta) for meta in metas]
        return metas[0] if self._n == 1 else metas

    def chunks(self) -> Iterator[str]:
        """The text of sample 0 as it comes; the call's error after what came before it."""
        call = self._call
        if call is None:
            yield self.text()
            return
        if not call.done():
            self._instance.check_may_block()
        chunks = call.chunks()
        while True:
            try:
                chunk = next(chunks, None)
            except Exception as error:
                reason = self._explain(error)
                break
            if chunk is None:
                return
            yield chunk.text
        raise reason

    def peek(self) -> tuple[dict[str, Any] | None, Exception | None]:
        """The meta of sample 0, or the call's error, without having told anybody of it; (None,
        None) while it runs."""
        call = self._call
        if call is None:
            return (None if self._result is None else self._result.meta[0]), self._error
        if not call.done():
            return None, None
        error = call.exception()
        return (None, error) if error is not None else (call.result().meta[0], None)

    async def achunks(self) -> AsyncIterator[tuple[str, Chunk | None]]:
        """The text of sample 0 as it comes, with its chunks; the call's error after them."""
        call = self._call
        if call is None:
            for chunk in whole(self._outcome()):
                yield chunk.text, self._shown(chunk)
            return
        bell = Bell(session.loops)
        call.watch(bell.ring)
        try:
            position, ended = 0, False
            while not ended:
                new, ended = call.chunks_since(position)
                for chunk in new:
                    yield chunk.text, self._shown(chunk)
                position += len(new)
                if not new and not ended:
                    await bell.wait()
        finally:
            call.unwatch(bell.ring)
        self._outcome()  # Raises the call's error.

    def done(self) -> bool:
        """Whether the call has ended."""
        call = self._call
        return call is None or call.done()

    def on_done(self, callback: Callable[[], object]) -> None:
        """Have `callback()` called once the call has ended."""
        call = self._call
        if call is None:
            callback()
        else:
            call.add_done_callback(lambda _: callback())

    def abort(self) -> None:
        """End the call if it is still running."""
        call = self._call
        if call is not None:
            call.abort()

    def settle(self) -> Exception | None:
        """Keep only the result of the call, which has ended; its error if nobody knows of it."""
        call = self._call
        if call is not None and call.done():
            try:
                self._result = call.result()
            except Exception as error:
                self._error = error
            self._call = None
        return None if self.delivered else self._error

    def _shown(self, chunk: Chunk) -> Chunk:
        if self._logprob_texts or chunk.logprobs is None:
            return chunk
        bare: Logprobs = [(logprob, token, None) for logprob, token, _ in chunk.logprobs]
        return dataclasses.replace(chunk, logprobs=bare)

    def _outcome(self) -> CallResult:
        call = self._call
        if call is not None:
            if not call.done():
                self._instance.check_may_block()
            try:
                return call.result()
            except Exception as error:
                reason = self._explain(error)
            # Outside of the handler, so that the reason keeps its own cause and context.
            raise reason
        if self._error is not None:
            raise self._explain(self._error)
        assert self._result is not None
        return self._result

    def _explain(self, error: Exception) -> BaseException:
        """The reason behind `error`: a call of a failed program was only cancelled."""
        self.delivered = True
        if isinstance(error, Cancelled):
            return self._instance.deliver() or error
        return error


class GivenValue(Value):
    """A value that the program set."""

    def __init__(self, value: object) -> None:
        self._value = value

    def read(self) -> Any:
        """The value itself."""
        return self._value


class SharedValue(Value):
    """A value that the program set to another variable's, which may be still on its way."""

    def __init__(self, value: Value) -> None:
        self._value = value

    def read(self) -> Any:
        """The other's value."""
        return self._value.read()

    def pending(self) -> Iterator[Pending]:
        """What the other waits for."""
        yield from self._value.pending()


class GatheredValue(Value):
    """The values of one name in several branches."""

    def __init__(self, values: Sequence[Value]) -> None:
        self.values = list(values)
        """One per branch that has the name."""

    def read(self) -> list[Any]:
        """A list with one value per branch."""
        return self._each(lambda value: value.read())

    def typed(self) -> list[Any]:
        """A list with one typed value per branch."""
        return self._each(lambda value: value.typed())

    def meta(self) -> list[Any]:
        """A list with one meta per branch."""
        return self._each(lambda value: value.meta())

    def pending(self) -> Iterator[Pending]:
        """What its values wait for."""
        waited: list[Iterator[Pending]] = []
        self._each(lambda value: waited.append(value.pending()))
        return itertools.chain.from_iterable(waited)

    def _each(self, read: Callable[[Value], Any]) -> list[Any]:
        # A loop, because forks nest to any depth.
        result: list[Any] = []
        stack: list[tuple[list[Any], Iterator[Value]]] = [(result, iter(self.values))]
        while stack:
            out, rest = stack[-1]
            value = next(rest, None)
            if value is None:
                stack.pop()
            elif isinstance(value, GatheredValue):
                out.append([])
                stack.append((out[-1], iter(value.values)))
            else:
                out.append(read(value))
        return result


Segment = Piece | CallValue
"""A part of a state's text: a literal piece, or the text of a call."""


class SpanValue(Value):
    """A stretch of a state's text."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = list(segments)

    def read(self) -> str:
        """The text of the stretch."""
        return text_of(self._segments)

    def chunks(self) -> Iterator[str]:
        """The text of the stretch as it comes."""
        for segment in self._segments:
            yield from chunks_of(segment)

    def pending(self) -> Iterator[Pending]:
        """The calls in the stretch that are not done."""
        yield from pending_of(self._segments)

    async def achunks(self) -> AsyncIterator[tuple[str, Chunk | None]]:
        """The text of the stretch as it comes."""
        for segment in self._segments:
            async for piece in achunks_of(segment):
                yield piece


def text_of(segments: Sequence[Segment]) -> str:
    """The text of segments, waiting for their calls."""
    return "".join(
        segment.text() if isinstance(segment, CallValue) else segment[0] for segment in segments
    )


def chunks_of(segment: Segment) -> Iterator[str]:
    """The text of one segment as it comes."""
    if isinstance(segment, CallValue):
        yield from segment.chunks()
    else:
        yield segment[0]


async def achunks_of(segment: Segment) -> AsyncIterator[tuple[str, Chunk | None]]:
    """The text of one segment as it comes, with the chunks of its call."""
    if isinstance(segment, CallValue):
        async for piece in segment.achunks():
            yield piece
    else:
        yield segment[0], None


def pending_of(segments: Sequence[Segment]) -> Iterator[Pending]:
    """The calls among segments that are not done."""
    for segment in segments:
        if isinstance(segment, CallValue):
            yield from segment.pending()


def _without_texts(meta: dict[str, Any]) -> dict[str, Any]:
    return {
        key: [(entry[0], entry[1], None) for entry in value]
        if key.endswith("_token_logprobs") and value
        else value
        for key, value in meta.items()
    }
