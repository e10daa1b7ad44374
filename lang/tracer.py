"""Tracing: a body run once with symbols for what isn't known yet, giving its whole graph.

A symbol stands for an argument or for what a call will give. It can be appended, added to text and
put into an f-string; whatever would need its value now raises ProgramError naming the line.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from ramet.lang.errors import InvalidArgument, ProgramError
from ramet.lang.expr import Expr, Gen, RoleBegin, RoleEnd, Select, Text, nodes_of
from ramet.lang.values import GatheredValue, GivenValue, Value
from ramet.runtime import graph
from ramet.runtime.graph import Graph, Node, Part, Ref

_active: contextvars.ContextVar[Tracer | None] = contextvars.ContextVar(
    "ramet_tracer", default=None
)


class Tracer:
    """One trace: the nodes so far, and the marks that stand for symbols inside texts."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.functions: dict[str, Callable[..., object]] = {}
        """The functions of `call` nodes, by the names that the graph has for them."""
        self._branches = itertools.count(1)
        # A mark can't be guessed, so no text of the program's own is ever taken for one.
        self._mark = f"\x00{secrets.token_hex(8)}:"
        self._pattern = re.compile(re.escape(self._mark) + r"(\d+)\x00")
        self._refs: list[Ref] = []

    def mark(self, ref: Ref) -> str:
        """A text that stands for a value until `parts` finds it again."""
        self._refs.append(ref)
        return f"{self._mark}{len(self._refs) - 1}\x00"

    def parts(self, text: str) -> tuple[Part, ...]:
        """A text as literals and values."""
        pieces = self._pattern.split(text)
        found: list[Part] = []
        for index, piece in enumerate(pieces):
            if index % 2:
                found.append(self._refs[int(piece)])
            elif piece:
                found.append(piece)
        return tuple(found)

    def new_branch(self) -> int:
        """The number of a branch that a fork makes."""
        return next(self._branches)

    def add(self, kind: type[Node], branch: int, site: str, **fields: Any) -> int:
        """Append a node; its number."""
        number = len(self.nodes)
        self.nodes.append(kind(id=number, branch=branch, site=site, **fields))
        return number

    def call(self, function: Callable[..., object], args: Sequence[object]) -> Symbol:
        """Note a call of a function of the user's on values."""
        name = getattr(function, "__qualname__", repr(function))
        if self.functions.setdefault(name, function) is not function:
            name = f"{name}#{len(self.functions)}"
            self.functions[name] = function
        given = tuple(arg.ref if isinstance(arg, Symbol) else arg for arg in args)
        node = self.add(graph.Call, 0, place(), function=name, args=given)
        return Symbol(self, Ref(node=node))

    @staticmethod
    def current() -> Tracer | None:
        """The trace that this code runs in, if any."""
        return _active.get()


def place() -> str:
    """The innermost line of code that isn't ramet's, as file:line."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("ramet."):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class Symbol(Expr):
    """A value that isn't known while tracing."""

    __slots__ = ("_tracer", "ref")

    def __init__(self, tracer: Tracer, ref: Ref) -> None:
        self._tracer = tracer
        self.ref = ref
        """What it stands for."""

    def __repr__(self) -> str:
        return f"<symbol {self.ref}>"

    def __str__(self) -> str:
        return self._tracer.mark(self.ref)

    def __format__(self, spec: str) -> str:
        if spec:
            self._refuse(f"format with {spec!r}")
        return str(self)

    def _refuse(self, what: str) -> NoReturn:
        raise ProgramError(
            f"{place()}: {self!r} is not known while tracing, so it allows no {what}; it can be "
            "appended, added to text, put into an f-string or given to call(fn, …)"
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

    def __init__(self, tracer: Tracer, ref: Ref) -> None:
        self.tracer, self.ref = tracer, ref

    def read(self) -> Any:
        """The symbol of it."""
        return Symbol(self.tracer, self.ref)

    def meta(self) -> NoReturn:
        """Refused: no call has run."""
        raise ProgramError(f"{place()}: a call's meta is not known while tracing")


class TraceBranch:
    """What a traced ProgramState writes to: the interface of `Branch`, over a Tracer."""

    def __init__(self, tracer: Tracer, number: int = 0, parent: TraceBranch | None = None) -> None:
        self.tracer = tracer
        self.number = number
        self.is_root = parent is None
        self.segments: list[Any] = []
        self.variables: dict[str, list[Value]] = {}
        if parent is not None:
            self.variables = {name: list(values) for name, values in parent.variables.items()}
        self.inherited = frozenset(self.variables)
        self._ended: str | None = None
        self.instance = self
        self.name = "a traced program"

    def append(self, value: object) -> None:
        """Note what is appended."""
        self._check_open()
        for node in nodes_of(value):
            self._note(node)

    def fork(self, n: int) -> list[TraceBranch]:
        """Note a fork."""
        self._check_open()
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise InvalidArgument(f"n={n!r}: must be an int of at least 1")
        children = tuple(self.tracer.new_branch() for _ in range(n))
        self.tracer.add(graph.Fork, self.number, place(), children=children)
        return [TraceBranch(self.tracer, child, self) for child in children]

    def join(self, branches: Sequence[TraceBranch], mode: str) -> None:
        """Note a join, and gather the branches' new variables if that is its mode."""
        children = tuple(branch.number for branch in branches)
        gathered: dict[str, tuple[Ref, ...]] = {}
        if mode == "gather_variable":
            names = dict.fromkeys(n for b in branches for n in b.variables if n not in b.inherited)
            for name in names:
                values = [b.variables[name][-1] for b in branches if name in b.variables]
                self.variables.setdefault(name, []).append(GatheredValue(values))
                gathered[name] = tuple(v.ref for v in values if isinstance(v, SymbolValue))
        self.tracer.add(
            graph.Join, self.number, place(), children=children, mode=mode, gathered=gathered
        )

    def assign(self, name: str, value: Value) -> None:
        """Note a variable that the program sets."""
        given = value.read() if isinstance(value, GivenValue) else value
        if isinstance(given, Symbol):
            self.tracer.add(graph.Read, self.number, place(), name=name, value=given.ref)
            value = SymbolValue(self.tracer, given.ref)
        elif isinstance(value, GivenValue):
            plain = given if isinstance(given, (str, int, float, bool, type(None))) else repr(given)
            self.tracer.add(graph.Read, self.number, place(), name=name, value=plain)
        self.variables.setdefault(name, []).append(value)

    def assign_span(self, _name: str, _start: int) -> NoReturn:
        """Refused: spans aren't traced yet."""
        raise ProgramError(f"{place()}: var_scope is not supported while tracing")

    def find(self, name: str) -> list[Value]:
        """All values of a variable."""
        if name not in self.variables:
            known = ", ".join(sorted(self.variables)) or "none"
            raise ProgramError(f"there is no variable {name!r}; the variables are: {known}")
        return self.variables[name]

    def has(self, name: str) -> bool:
        """Whether there is such a variable."""
        return name in self.variables

    def end(self, why: str = "has ended") -> None:
        """Take no more text and calls."""
        self._ended = self._ended or why

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ProgramError(f"{place()}: {name}() needs what is not known while tracing")

    def _check_open(self) -> None:
        if self._ended is not None:
            raise ProgramError(f"the branch {self._ended}: it takes no more text and calls")

    def _note(self, node: Expr) -> None:
        add, tracer = self.tracer.add, self.tracer
        match node:
            case Symbol():
                add(graph.Text, self.number, place(), parts=(node.ref,))
            case Text():
                parts = tracer.parts(node.text)
                add(graph.Text, self.number, place(), parts=parts, special=node.special)
            case RoleBegin():
                add(graph.Text, self.number, place(), role=node.role, edge="begin")
            case RoleEnd():
                add(graph.Text, self.number, place(), role=node.role, edge="end")
            case Gen():
                self._name(
                    node.name,
                    add(graph.Gen, self.number, node.site, name=node.name, params=node.fields),
                )
            case Select():
                choices = tuple(tracer.parts(choice) for choice in node.choices)
                number = add(
                    graph.Select,
                    self.number,
                    node.site,
                    name=node.name,
                    choices=choices,
                    method=str(node.method),
                    temperature=node.temperature,
                )
                self._name(node.name, number)
            case _:
                raise ProgramError(f"cannot append {node!r}")

    def _name(self, name: str | None, node: int) -> None:
        if name is not None:
            self.variables.setdefault(name, []).append(SymbolValue(self.tracer, Ref(node=node)))


def trace(
    name: str, body: Callable[..., object], given: Mapping[str, Any], open_args: Sequence[str]
) -> tuple[Graph, Mapping[str, Callable[..., object]]]:
    """Run `body` once with `given` as constants and the rest as symbols.

    Returns the graph, and the functions that its Call nodes name. What the body does besides, such
    as I/O and random numbers, happens once, now, and isn't part of the graph.
    """
    from ramet.lang.state import ProgramState  # The state is a client of this room's branches.

    tracer = Tracer()
    state = ProgramState(TraceBranch(tracer))  # type: ignore[arg-type]
    symbols = {arg: Symbol(tracer, Ref(arg=arg)) for arg in open_args}
    with _tracing(tracer):
        body(state, **given, **symbols)
    return Graph(name, tuple(open_args), tuple(tracer.nodes)), tracer.functions


@contextlib.contextmanager
def _tracing(tracer: Tracer) -> Iterator[None]:
    token = _active.set(tracer)
    try:
        yield
    finally:
        _active.reset(token)


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of yours, a tool, on values: `call(fn, s["x"])`.

    In a body that runs, this is `fn(*args)`. In one that is traced, the call becomes part of the
    graph and its result a symbol. Raises InvalidArgument if `function` isn't callable.
    """
    if not callable(function):
        raise InvalidArgument(f"function={function!r}: must be callable")
    tracer = Tracer.current()
    return function(*args) if tracer is None else tracer.call(function, args)
