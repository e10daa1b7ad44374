"""Tracing: a body run once with symbols for what isn't known yet, giving its whole graph."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import inspect
import itertools
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from ramet.lang.arguments import Arguments
from ramet.lang.errors import InvalidArgument, ProgramError, RametError
from ramet.lang.expr import Expr, Gen, nodes_of
from ramet.lang.instance import Instance
from ramet.lang.joins import inheritance, is_new, new_names
from ramet.lang.lowering import lower
from ramet.lang.reasoning import SUFFIX
from ramet.lang.sites import call_site, raised_at
from ramet.lang.symbols import SetValue, Symbol, Symbols, SymbolValue
from ramet.lang.typed import Reader
from ramet.lang.values import GatheredValue, Value
from ramet.runtime import graph
from ramet.runtime.graph import Graph, Node
from ramet.runtime.graph_values import Ref

_active: contextvars.ContextVar[Tracer | None] = contextvars.ContextVar(
    "ramet_tracer", default=None
)


class Tracer:
    """One trace: the nodes so far, and the symbols."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.symbols = Symbols()
        """The values that aren't known."""
        self.functions: list[Callable[..., object]] = []
        """The functions of `call` nodes, in the order of the nodes."""
        self.state: object = None
        """The state that the body was given."""
        self._branches = itertools.count(1)

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
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004
        ):
            raise InvalidArgument(f"function={function!r}: a compiled program takes no coroutines")
        self._check_captured(function)
        name = getattr(function, "__qualname__", repr(function))
        given = tuple(self.lower(arg) for arg in args)
        node = self.add(graph.Call, graph.NO_BRANCH, call_site(), function=name, args=given)
        self.functions.append(function)
        return Symbol(self.symbols, Ref(node=node))

    def _check_captured(self, function: object) -> None:
        """Refuse a function that has symbols in it: only arguments are known when it runs."""
        captured: list[object] = []
        while isinstance(function, functools.partial):
            captured += [*function.args, *function.keywords.values()]
            function = function.func
        for cell in getattr(function, "__closure__", None) or ():
            with contextlib.suppress(ValueError):  # An empty cell.
                captured.append(cell.cell_contents)
        captured += [*(getattr(function, "__defaults__", None) or ())]
        if any(map(self.symbols.has_mark, captured)):
            raise ProgramError(
                f"{call_site()}: {function!r} uses a value that is not known while tracing; give "
                "it as an argument: call(fn, value)"
            )

    def lower(self, value: object) -> Any:
        """A value that leaves the program, as a graph holds it; no state can leave it but the
        program's own, which stands for the run's."""
        known = len(self.symbols.objects)
        lowered = self.symbols.lower(value)
        for found in self.symbols.objects[known:]:
            branch = getattr(found, "_branch", getattr(found, "_parent", None))
            if not isinstance(branch, TraceBranch):
                branch = getattr(branch, "_branch", None)  # A group's parent is a state.
            if found is not self.state and isinstance(branch, TraceBranch):
                raise ProgramError(
                    f"{call_site()}: the state of a traced program has no value to pass on; pass "
                    "what is read from it"
                )
        return lowered

    @staticmethod
    def current() -> Tracer | None:
        """The trace that this code runs in, if any."""
        return _active.get()


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
        self.inherited = inheritance(self.variables)
        self._ended: str | None = None
        self.instance = self.reading = self
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
        self.tracer.add(graph.Fork, self.number, call_site(), children=children)
        return [TraceBranch(self.tracer, child, self) for child in children]

    def join(self, branches: Sequence[TraceBranch], mode: str) -> None:
        """Note a join, and gather the branches' new variables if that is its mode."""
        children = tuple(branch.number for branch in branches)
        gathered: dict[str, tuple[Any, ...]] = {}
        if mode == "gather_variable":
            for name in new_names(branches):
                values = [b.variables[name][-1] for b in branches if is_new(b, name)]
                value = GatheredValue(values)
                self.variables.setdefault(name, []).append(value)
                gathered[name] = self.tracer.symbols.lower(value)
        self.tracer.add(
            graph.Join, self.number, call_site(), children=children, mode=mode, gathered=gathered
        )

    def assign(self, name: str, value: Value) -> None:
        """Note a variable that the program sets."""
        self._refuse_symbol("a variable's name", name)
        plain = self.tracer.symbols.lower(value)
        node = self.tracer.add(graph.Read, self.number, call_site(), name=name, value=plain)
        self.variables.setdefault(name, []).append(SetValue(value.read(), Ref(node=node)))

    def start_span(self, name: str) -> str:
        """Note the beginning of a stretch of text that becomes a variable."""
        self._refuse_symbol("a variable's name", name)
        self.tracer.add(graph.Read, self.number, call_site(), name=name, edge="begin")
        return name

    def assign_span(self, name: str, _start: str) -> None:
        """Note the end of a stretch of text that becomes a variable."""
        node = self.tracer.add(graph.Read, self.number, call_site(), name=name, edge="end")
        self._name(name, node)

    def find(self, name: str) -> list[Value]:
        """All values of a variable."""
        if name not in self.variables:
            known = ", ".join(sorted(self.variables)) or "none"
            raise ProgramError(f"there is no variable {name!r}; the variables are: {known}")
        return self.variables[name]

    async def afind(self, name: str) -> list[Value]:
        """As `find`."""
        return self.find(name)

    def has(self, name: str) -> bool:
        """Whether there is such a variable."""
        return name in self.variables

    def note_read(self, name: str) -> None:
        """Nothing: what uses the value names it."""

    def check_may_wait(self) -> None:
        """Nothing: a trace waits for nothing."""

    async def ready(self) -> None:
        """Nothing, likewise."""

    def end(self, why: str = "has ended") -> None:
        """Take no more text and calls."""
        self._ended = self._ended or why

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ProgramError(f"{call_site()}: {name}() needs what is not known while tracing")

    def _check_open(self) -> None:
        if self._ended is not None:
            raise ProgramError(f"the branch {self._ended}: it takes no more text and calls")

    def _note(self, node: Expr) -> None:
        tracer = self.tracer
        if isinstance(node, Symbol):
            tracer.add(graph.Text, self.number, call_site(), parts=(node.ref,))
            return
        name = getattr(node, "name", None)
        self._refuse_symbol("a variable's name", name)
        kind, fields = lower(node, tracer.symbols.parts)
        if isinstance(node, Gen) and isinstance(node.dtype, Reader):
            fields["dtype"] = tracer.symbols.keep(node.dtype)
        for key, value in (fields.get("params") or {}).items():
            self._refuse_symbol(key, value)
        number = tracer.add(kind, self.number, getattr(node, "site", None) or call_site(), **fields)
        self._name(name, number, node)

    def _refuse_symbol(self, what: str, value: object) -> None:
        if self.tracer.symbols.has_mark(value):
            raise ProgramError(
                f"{call_site()}: {what} can't hold a value that is not known while tracing; give "
                "it to compile() as a constant"
            )

    def _name(self, name: str | None, node: int, expr: Expr | None = None) -> None:
        if name is None:
            return
        ref = Ref(node=node)
        symbols = self.tracer.symbols
        if isinstance(expr, Gen) and expr.reasoning is not None:
            for key, part in ((name, "answer"), (name + SUFFIX, "reasoning")):
                self._put(key, SymbolValue(symbols, dataclasses.replace(ref, part=part)))
        else:
            typed = isinstance(expr, Gen) and expr.dtype is not None
            self._put(name, SymbolValue(symbols, ref, typed))

    def _put(self, name: str, value: Value) -> None:
        self.variables.setdefault(name, []).append(value)


@dataclasses.dataclass(frozen=True, slots=True)
class Trace:
    """A traced body: its graph, and what a graph can't hold."""

    graph: Graph
    functions: Sequence[Callable[..., object]]
    """The functions of its Call nodes, in their order."""
    objects: Sequence[object]
    """What its Opaque values stand for."""
    state: object
    """The state that the body was given."""


def trace(
    arguments: Arguments,
    body: Callable[..., object],
    given: Mapping[str, Any],
    open_args: Sequence[str],
) -> Trace:
    """Run `body` once with `given` as constants and the rest as symbols.

    What the body does besides, such as I/O and random numbers, happens once, now, and isn't part
    of the graph. An error of ours names the line of the body that it comes from.
    """
    from ramet.lang.state import ProgramState  # The state is a client of this room's branches.

    tracer = Tracer()
    state = ProgramState(TraceBranch(tracer))  # type: ignore[arg-type]
    tracer.state = state
    symbols = {arg: Symbol(tracer.symbols, Ref(arg=arg)) for arg in open_args}
    with _tracing(tracer), _naming_lines(tracer.symbols):
        returned = arguments.call(body, state, {**given, **symbols})
        if inspect.iscoroutine(returned):
            returned = _run_at_once(returned)
        if returned is not None:
            value = tracer.lower(returned)
            tracer.add(graph.Read, 0, call_site(), value=value, edge="return")
    return Trace(
        Graph(arguments.program, tuple(open_args), tuple(tracer.nodes)),
        tracer.functions,
        tracer.symbols.objects,
        state,
    )


def _run_at_once(body: Coroutine[Any, Any, object]) -> object:
    """Run an async body, which waits for nothing while it is traced."""
    try:
        body.send(None)
    except StopIteration as end:
        return end.value
    finally:
        body.close()
    raise ProgramError(
        "an async body awaits something that is no value of its state, so it can't be traced; what "
        "it needs belongs into call(fn, …)"
    )


@contextlib.contextmanager
def _naming_lines(symbols: Symbols) -> Iterator[None]:
    """Has errors of ours, and those of Python's own about symbols, name the user's line."""
    try:
        yield
    except RametError as error:
        site, message = raised_at(error), symbols.readable(str(error))
        place = "" if site is None or site in message else f"{site}: "
        error.args = (f"{place}{message}",)
        raise
    except TypeError as error:
        if Symbol.__name__ not in str(error):
            raise
        raise ProgramError(
            f"{raised_at(error)}: {error}: a value that is not known while tracing can be "
            "appended, added to text, put into an f-string, made text by str() or given to "
            "call(fn, …)"
        ) from error


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
    graph and its result a symbol; a compiled program runs it on one of its threads as soon as its
    arguments are known, so calls that don't need each other may run in any order.

    Raises InvalidArgument if `function` isn't callable.
    """
    if not callable(function):
        raise InvalidArgument(f"function={function!r}: must be callable")
    tracer = Tracer.current()
    if tracer is not None:
        return tracer.call(function, args)
    instance = Instance.current()
    if instance is None:
        return function(*args)
    instance.recording.call(function, args)
    with instance.scope.call():
        return function(*args)
