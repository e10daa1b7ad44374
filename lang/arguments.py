"""A program's own arguments: what its body declares, what is bound, and how a call fills them."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ramet.lang.errors import InvalidArgument
from ramet.runtime.request import shown

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Arguments:
    """The arguments of a body after its state, some of them bound.

    Raises InvalidArgument, naming the program, for whatever doesn't fit.
    """

    def __init__(
        self, name: str, signature: inspect.Signature, bound: Mapping[str, Any] | None = None
    ) -> None:
        self.program = name
        """The program's name, for messages."""
        self.signature = signature
        """The body's signature, state included."""
        self.bound = dict(bound or {})
        """The arguments that are given already."""
        parameters = list(signature.parameters.values())
        if not parameters or parameters[0].kind not in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        ):
            raise InvalidArgument(f"{name}: a program's first parameter is its state")
        self.open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
        """Whether the body takes any keyword."""
        self.names = [p.name for p in parameters[1:] if p.kind not in _VARIADIC]
        """The names of the body's own arguments."""
        own = parameters[1:]
        self._plain = all(p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in own)
        self._required = {p.name for p in own if p.default is p.empty}
        self._state = parameters[0].name

    def bind(self, values: Mapping[str, Any]) -> Arguments:
        """These arguments with some more given."""
        self.check_names(values)
        return Arguments(self.program, self.signature, {**self.bound, **values})

    def without(self, given: Iterable[str]) -> Arguments:
        """Only the arguments that are not `given`, and none of any number."""
        kept = [
            parameter
            for index, parameter in enumerate(self.signature.parameters.values())
            if not index or (parameter.name not in given and parameter.kind not in _VARIADIC)
        ]
        return Arguments(self.program, self.signature.replace(parameters=kept))

    def check_names(self, values: Iterable[str], *, exactly: bool = False) -> None:
        """Refuse a name that the body doesn't declare, unless it takes any (and not `exactly`)."""
        for name in values:
            if name not in self.names and (exactly or not self.open_ended):
                raise self.unknown(name, self.names)

    def fill(self, args: tuple[Any, ...], own: Mapping[str, Any]) -> inspect.BoundArguments:
        """The body's arguments for a call; the state's place holds None."""
        keywords = {**self.bound, **own}
        if self._plain and not args and self._required <= keywords.keys() <= {*self.names}:
            # As `bind` does, in a fraction of its time.
            values: Any = {self._state: None}
            values.update((name, keywords[name]) for name in self.names if name in keywords)
            return inspect.BoundArguments(self.signature, values)
        # A positional argument replaces a bound one.
        for name in self.names[: len(args)]:
            if name in self.bound and name not in own:
                del keywords[name]
        try:
            return self.signature.bind(None, *args, **keywords)
        except TypeError as error:
            raise InvalidArgument(f"{self.program}: {error}") from None

    def fill_item(self, item: object) -> inspect.BoundArguments:
        """The body's arguments for an item of a batch: a dict, or a tuple or list in order."""
        if isinstance(item, inspect.BoundArguments):
            return item
        if isinstance(item, Mapping):
            self.check_names(item)
            return self.fill((), item)
        if isinstance(item, (tuple, list)):
            return self.fill(tuple(item), {})
        raise InvalidArgument(
            f"{self.program}: an item is a dict or a tuple of arguments, not {item!r}"
        )

    def check_items(self, items: Iterable[Any]) -> Iterable[Any]:
        """The items; those of a list are all filled, and so checked, before the first one runs."""
        if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Iterable):
            raise InvalidArgument(f"run_batch takes a list of dicts, not {items!r}")
        if not isinstance(items, (list, tuple)):
            return items
        filled: list[inspect.BoundArguments] = []
        for index, item in enumerate(items):
            try:
                filled.append(self.fill_item(item))
            except InvalidArgument as error:
                raise InvalidArgument(f"item {index} of run_batch: {error}") from None
        return filled

    def call(self, body: Callable[..., object], state: object, values: Mapping[str, Any]) -> object:
        """`body(state, …)` with every argument's value given by name."""
        positional = [
            values[parameter.name]
            for parameter in list(self.signature.parameters.values())[1:]
            if parameter.kind is parameter.POSITIONAL_ONLY
        ]
        rest = dict(list(values.items()))
        for parameter in self.signature.parameters.values():
            if parameter.kind is parameter.POSITIONAL_ONLY:
                rest.pop(parameter.name, None)
        return body(state, *positional, **rest)

    def unknown(self, name: str, known: list[str]) -> InvalidArgument:
        """The error for an argument that doesn't exist."""
        near = difflib.get_close_matches(name, known, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        return InvalidArgument(
            f"{self.program}: there is no argument {shown(name)}{hint}; there are: "
            f"{', '.join(known) or 'none'}"
        )
