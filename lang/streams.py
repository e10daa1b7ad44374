"""Streams: a state's text as it comes, for a `for` loop; closing one ends what it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Self

CLOSED = "its stream was closed"
"""Why a program whose stream was closed ended."""


class TextStream(Iterator[str]):
    """Chunks of text, none empty. Closing it before its end, also before its first chunk, or
    dropping it halfway, aborts what it reads."""

    def __init__(self, source: Iterator[str], cancel: Callable[[str], object]) -> None:
        self._chunks = (chunk for chunk in source if chunk)
        self._cancel = cancel
        self._state = "new"

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        if self._state == "over":
            raise StopIteration
        self._state = "begun"
        try:
            return next(self._chunks)
        except Exception:  # Its end; the program's own failure; or a read that may not wait here.
            self._state = "over"
            raise
        except BaseException:  # Interrupted.
            self._state = "over"
            self._cancel(CLOSED)
            raise

    def close(self) -> None:
        """End it, and what it reads if that isn't over."""
        if self._state != "over":
            self._state = "over"
            self._cancel(CLOSED)

    def __del__(self) -> None:
        if getattr(self, "_state", "new") == "begun":
            self.close()
