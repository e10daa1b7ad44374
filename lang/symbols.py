"""Symbols: values that aren't known while tracing, and the marks that stand for them in texts.

A symbol can be appended, added to text, put into an f-string and given to `call`; whatever would
need its value now raises ProgramError naming the line.
"""

from __future__ import annotations

import dataclasses
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from ramet.lang.errors import ProgramError
from ramet.lang.expr import Expr
from ramet.lang.marked import MarkedText, plain_text
from ramet.lang.sites import call_site
from ramet.lang.values import GatheredValue, GivenValue, Value
from ramet.runtime.graph_values import Opaque, Part, Ref, Template, is_plain
from ramet.runtime.request import shown

_PRIVATE = range(0x100000, 0x10FFFE)
"""Characters without a meaning, of which a mark is made."""
_DIGITS = 4
"""Digits of a mark's number, in base 16."""
_SECRET_BYTES = 6


class Symbols:
    """The symbols of one trace: their marks in texts, and the objects that are no plain data."""

    def __init__(self) -> None:
        self.objects: list[object] = []
        """What `Opaque` values stand for, by their index."""
        # Drawn anew for each trace, so that no text of the program's own is taken for a mark. Where
        # no whole mark is, each of these characters shows that one was cut or changed, and the
        # secret that one was escaped; no change of case leaves the secret as it is.
        draw = secrets.SystemRandom().sample(_PRIVATE, 18)
        self._digits = [chr(code) for code in draw[:16]]
        self._begin, self._end = map(chr, draw[16:])
        self._signs = frozenset([*self._digits, self._begin, self._end])
        self._secret = f"aA{secrets.token_hex(_SECRET_BYTES)}"
        number = f"([{''.join(self._digits)}]{{{_DIGITS}}})"
        self._pattern = re.compile(f"{self._begin}{number}{self._secret}{self._end}")
        self._refs: list[Ref] = []

    def mark(self, ref: Ref) -> str:
        """A text that stands for a value until `parts` finds it again."""
        self._refs.append(ref)
        number = f"{len(self._refs) - 1:0{_DIGITS}x}"
        if len(number) > _DIGITS:
            raise ProgramError(f"{call_site()}: more symbols in texts than a trace can hold")
        digits = "".join(self._digits[int(digit, 16)] for digit in number)
        return MarkedText(f"{self._begin}{digits}{self._secret}{self._end}")

    def parts(self, text: str) -> tuple[Part, ...]:
        """A text as literals and values; raises ProgramError if a mark in it was damaged."""
        pieces = self._pattern.split(plain_text(text))
        found: list[Part] = []
        for index, piece in enumerate(pieces):
            if index % 2:
                number = int("".join(f"{self._digits.index(digit):x}" for digit in piece), 16)
                found.append(self._refs[number])
            elif piece:
                self._check_whole(piece)
                found.append(piece)
        return tuple(found)

    def lower(self, value: object) -> Any:
        """A Python value as a graph holds it: symbols become references, also inside texts and
        containers; what isn't plain data is kept in `objects`."""
        match value:
            case Symbol() | SymbolValue() | SetValue():
                return value.ref
            case GatheredValue():
                return tuple(self.lower(item) for item in value.values)
            case GivenValue():
                return self.lower(value.read())
            case str():
                parts = self.parts(value)
                return (
                    plain_text(value)
                    if all(isinstance(part, str) for part in parts)
                    else Template(parts)
                )
        if type(value) is list:
            return [self.lower(item) for item in value]
        if type(value) is tuple:
            return tuple(self.lower(item) for item in value)
        if type(value) is dict:
            self._refuse_inside(value, "a dict's keys", value)
            return {key: self.lower(item) for key, item in value.items()}
        if is_plain(value):
            return value
        if isinstance(value, (list, tuple, set, frozenset)):
            self._refuse_inside(value, f"a {type(value).__name__}", value)
        elif isinstance(value, Mapping):
            self._refuse_inside(value, f"a {type(value).__name__}", [*value, *value.values()])
        elif isinstance(fields := getattr(value, "__dict__", None), dict):
            self._refuse_inside(value, f"a {type(value).__name__}", list(fields.values()))
        return self.keep(value)

    def keep(self, value: object) -> Opaque:
        """What stands for an object that is no plain data: it is in `objects` once."""
        known = (index for index, found in enumerate(self.objects) if found is value)
        index = next(known, len(self.objects))
        if index == len(self.objects):
            self.objects.append(value)
        return Opaque(shown(value), index)

    def readable(self, text: str) -> str:
        """A message with symbols named in it, and without the characters of marks."""
        text = self._pattern.sub(lambda mark: str(self.parts(mark[0])[0]), text)
        return "".join(char for char in text if char not in self._signs)

    def broken(self) -> str:
        """A text that may stand in a message, but in no text of a program."""
        return self._begin

    def has_mark(self, value: object) -> bool:
        """Whether it is a symbol or a text that holds one, or has such an item."""
        if isinstance(value, str):
            value = plain_text(value)
            return not self._signs.isdisjoint(value) or self._secret.lower() in value.lower()
        if isinstance(value, dict):
            value = [*value, *value.values()]
        if isinstance(value, (list, tuple, set, frozenset)):
            return any(map(self.has_mark, value))
        return isinstance(value, Symbol)

    def _refuse_inside(self, value: object, what: str, items: Iterable[object]) -> None:
        if self.has_mark(list(items)):
            raise ProgramError(
                f"{call_site()}: {what} can't hold a value that is not known while tracing: "
                f"{type(value).__name__} is kept as it is"
            )

    def _check_whole(self, text: str) -> None:
        if self.has_mark(text):
            raise ProgramError(
                f"{call_site()}: a text with a symbol in it was cut or changed while tracing; what "
                "needs a value belongs into call(fn, …)"
            )


class Symbol(Expr):
    """A value that isn't known while tracing."""

    __slots__ = ("_symbols", "ref")

    def __init__(self, symbols: Symbols, ref: Ref) -> None:
        self._symbols = symbols
        self.ref = ref
        """What it stands for."""

    def __repr__(self) -> str:
        # Not what the value's repr will be, so it must not get into a text.
        return f"<symbol {self.ref}>{self._symbols.broken()}"

    def __str__(self) -> str:
        return self._symbols.mark(dataclasses.replace(self.ref, text=True))

    def __add__(self, other: object) -> Any:
        if isinstance(other, (str, Symbol)):  # A text, so that it may stand wherever one may.
            return self._symbols.mark(self.ref) + (other if isinstance(other, str) else "" + other)
        return super().__add__(other)

    def __radd__(self, other: object) -> Any:
        if isinstance(other, str):
            return other + self._symbols.mark(self.ref)
        return super().__radd__(other)

    def __format__(self, spec: str) -> str:
        if spec:
            self._refuse(f"format with {spec!r}")
        return str(self)

    def _refuse(self, what: str) -> NoReturn:
        raise ProgramError(
            f"{call_site()}: <symbol {self.ref}> is not known while tracing, so it allows no "
            f"{what}; it can be appended, added to text, put into an f-string or given to "
            "call(fn, …)"
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse(f"method or attribute {name!r}")

    def __bool__(self) -> NoReturn:
        self._refuse("truth value")

    def __len__(self) -> NoReturn:
        self._refuse("length")

    def __iter__(self) -> NoReturn:
        self._refuse("iteration")

    def __getitem__(self, _key: object) -> NoReturn:
        self._refuse("indexing")

    def __contains__(self, _item: object) -> NoReturn:
        self._refuse("membership test")

    def __eq__(self, _other: object) -> NoReturn:
        self._refuse("comparison")

    __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__

    def __hash__(self) -> NoReturn:
        self._refuse("hashing")

    def __int__(self) -> NoReturn:
        self._refuse("conversion to int")

    def __float__(self) -> NoReturn:
        self._refuse("conversion to float")


class SymbolValue(Value):
    """A variable's value while tracing."""

    def __init__(self, symbols: Symbols, ref: Ref, typed: bool = False) -> None:
        self.ref = ref
        """What it stands for."""
        self._symbols = symbols
        self._typed = typed

    def read(self) -> Any:
        """The symbol of it."""
        return Symbol(self._symbols, self.ref)

    def typed(self) -> Any:
        """The symbol of its typed value."""
        ref = dataclasses.replace(self.ref, part="typed") if self._typed else self.ref
        return Symbol(self._symbols, ref)

    def chunks(self) -> NoReturn:
        """Refused: there is no text yet."""
        raise ProgramError(f"{call_site()}: a call's text is not known while tracing")

    def achunks(self) -> NoReturn:
        """As `chunks`."""
        self.chunks()

    def meta(self) -> NoReturn:
        """Refused: no call has run."""
        raise ProgramError(f"{call_site()}: a call's meta is not known while tracing")


class SetValue(GivenValue):
    """A variable's value that the program set while tracing; read, it is what was set."""

    def __init__(self, value: object, ref: Ref) -> None:
        super().__init__(value)
        self.ref = ref
        """The node that sets it."""
