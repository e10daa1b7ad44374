"""Values: what variables hold, some of them still on their way.

A variable is a list of values, the last one counts. Reading a value waits for it and raises its
error; nothing else does.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ramet.lang.backends.protocol import Piece
from ramet.lang.errors import Cancelled, ProgramError
from ramet.runtime.client.call import Call, CallResult

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


class CallValue(Value):
    """The future value of one call, which also is a piece of the text."""

    def __init__(
        self, call: Call[CallResult], instance: Instance, n: int = 1, logprob_texts: bool = True
    ) -> None:
        self._call: Call[CallResult] | None = call
        self._instance = instance
        self._n = n
        self._logprob_texts = logprob_texts
        self._result: CallResult | None = None
        self._error: Exception | None = None
        self.delivered = False
        """Whether its error, if it has one, needs no more telling."""

    def read(self) -> str | list[str]:
        """The text, or the list of n texts."""
        result = self._outcome()
        return result.texts[0] if self._n == 1 else list(result.texts)

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

    def abort(self) -> None:
        """End the call if it is still running."""
        call = self._call
        if call is not None:
            call.abort()

    def settle(self) -> Exception | None:
        """Keep only the result of the call, which has ended; its error if nobody knows of it."""
        call = self._call
        if call is not None:
            try:
                self._result = call.result()
            except Exception as error:
                self._error = error
            self._call = None
        return None if self.delivered else self._error

    def _outcome(self) -> CallResult:
        call = self._call
        if call is not None:
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


class GatheredValue(Value):
    """The values of one name in several branches."""

    def __init__(self, values: Sequence[Value]) -> None:
        self._values = list(values)

    def read(self) -> list[Any]:
        """A list with one value per branch."""
        return [value.read() for value in self._values]

    def typed(self) -> list[Any]:
        """A list with one typed value per branch."""
        return [value.typed() for value in self._values]

    def meta(self) -> list[Any]:
        """A list with one meta per branch."""
        return [value.meta() for value in self._values]


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


def _without_texts(meta: dict[str, Any]) -> dict[str, Any]:
    return {
        key: [(entry[0], entry[1], None) for entry in value]
        if key.endswith("_token_logprobs") and value
        else value
        for key, value in meta.items()
    }
