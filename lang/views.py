"""Views: values that read another value in their own way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ramet.lang.values import Pending, Value


class TypedView(Value):
    """What a value is as its type, for a program that passes it on."""

    def __init__(self, value: Value) -> None:
        self._value = value

    def read(self) -> Any:
        """The typed value."""
        return self._value.typed()

    def pending(self) -> Iterator[Pending]:
        """What the value still waits for."""
        yield from self._value.pending()
