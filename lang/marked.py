"""Marked text: a text that stands for a value which isn't known while tracing.

`str(symbol)`, `f"{symbol}"` and `"…" + symbol` give one. It can be appended, added to and put into
other texts; what would look into it is refused. A longer f-string is a plain `str` to Python, so
there a look inside can't be seen: `if f"Q: {symbol}" == …` compares the placeholder.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ramet.lang.errors import ProgramError
from ramet.lang.sites import call_site


class MarkedText(str):
    """A text with a placeholder in it."""

    __slots__ = ()

    def __str__(self) -> str:
        return self

    def __format__(self, spec: str) -> str:
        return _refuse(f"format with {spec!r}") if spec else self

    def __add__(self, other: str) -> str:
        return MarkedText(str.__add__(self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> str:
        return MarkedText(str.__add__(other, self)) if isinstance(other, str) else NotImplemented


def plain_text(text: str) -> str:
    """The characters of a text, marks included, as an ordinary `str`."""
    return text if type(text) is str else str.__str__(text)


def _refuse(what: str) -> NoReturn:
    raise ProgramError(
        f"{call_site()}: the text holds a value that is not known while tracing, so it allows no "
        f"{what}; it can be appended, added to other text or given to call(fn, …)"
    )


def _refusing(what: str) -> Any:
    def method(*_args: object, **_kwargs: object) -> NoReturn:
        _refuse(what)

    return method


_SPECIAL = {
    "__contains__": "membership test",
    "__eq__": "comparison",
    "__ge__": "comparison",
    "__getitem__": "indexing",
    "__gt__": "comparison",
    "__hash__": "hashing",
    "__iter__": "iteration",
    "__le__": "comparison",
    "__len__": "length",
    "__lt__": "comparison",
    "__mod__": "%",
    "__mul__": "repetition",
    "__ne__": "comparison",
    "__rmul__": "repetition",
}
for _name, _what in _SPECIAL.items():
    setattr(MarkedText, _name, _refusing(_what))
for _name in dir(str):
    if not _name.startswith("_") and _name != "encode":
        setattr(MarkedText, _name, _refusing(f"method {_name!r}"))
