"""Recording: what a run has done so far, kept so that its graph can be built when asked for.

Branches note each step as a small tuple; nothing is built before `graph`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from ramet.lang.expr import Expr
from ramet.lang.lowering import lower
from ramet.lang.sites import call_site
from ramet.runtime import graph
from ramet.runtime.graph import NO_BRANCH, Graph, Node
from ramet.runtime.graph_values import Ref, plain

_Note = tuple[Any, ...]


class Recording:
    """The steps of one run in the order in which they were written, by all of its branches."""

    def __init__(self) -> None:
        self._notes: list[_Note] = []
        self._branches = itertools.count(1)

    def append(self, branch: int, expr: Expr) -> None:
        """Note what a branch appends."""
        site = getattr(expr, "site", None)
        self._notes.append(("append", branch, expr, call_site() if site is None else site))

    def fork(self, branch: int, n: int) -> list[int]:
        """Note a fork; the numbers of its branches."""
        children = list(itertools.islice(self._branches, n))
        self._notes.append(("fork", branch, children, call_site()))
        return children

    def join(self, branch: int, children: Sequence[int], mode: str, names: Sequence[str]) -> None:
        """Note a join, and the variables that it gathers."""
        self._notes.append(("join", branch, tuple(children), mode, tuple(names), call_site()))

    def assign(self, branch: int, name: str, value: object) -> None:
        """Note a variable that the program sets."""
        self._notes.append(("assign", branch, name, value, call_site()))

    def span(self, branch: int, name: str, edge: str) -> None:
        """Note where a stretch of text that becomes a variable begins or ends."""
        self._notes.append(("span", branch, name, edge, call_site()))

    def read(self, branch: int, name: str) -> None:
        """Note that the body takes a value out."""
        self._notes.append(("read", branch, name, call_site()))

    def call(self, function: Callable[..., object], args: Sequence[object]) -> None:
        """Note a call of a function of the user's."""
        name = getattr(function, "__qualname__", repr(function))
        self._notes.append(("call", NO_BRANCH, name, tuple(args), call_site()))

    def graph(self, name: str) -> Graph:
        """The graph so far."""
        return Graph(name, (), tuple(_Building(list(self._notes)).nodes))


class KnownGraph(Recording):
    """The recording of a compiled run, whose graph was there before it."""

    def __init__(self, known: Graph) -> None:
        super().__init__()
        self._known = known

    def fork(self, branch: int, n: int) -> list[int]:
        """Nothing to note."""
        return [branch] * n

    def join(self, branch: int, children: Sequence[int], mode: str, names: Sequence[str]) -> None:
        """Nothing to note."""

    def span(self, branch: int, name: str, edge: str) -> None:
        """Nothing to note."""

    def call(self, function: Callable[..., object], args: Sequence[object]) -> None:
        """Nothing to note: a function inside a function's call is that function's own affair."""

    def graph(self, _name: str) -> Graph:
        """The graph that is run."""
        return self._known


class _Building:
    """A graph while it is built from notes."""

    def __init__(self, notes: Sequence[_Note]) -> None:
        self.nodes: list[Node] = []
        self._variables: dict[int, dict[str, Any]] = {0: {}}
        self._inherited: dict[int, dict[str, Any]] = {}
        for kind, branch, *rest in notes:
            getattr(self, f"_{kind}")(branch, *rest)

    def _add(self, kind: type[Node], branch: int, site: str, **fields: Any) -> Ref:
        number = len(self.nodes)
        self.nodes.append(kind(id=number, branch=branch, site=site, **fields))
        return Ref(node=number)

    def _append(self, branch: int, expr: Expr, site: str) -> None:
        kind, fields = lower(expr)
        ref = self._add(kind, branch, site, **fields)
        if fields.get("name") is not None:
            self._variables[branch][fields["name"]] = ref

    def _fork(self, branch: int, children: Sequence[int], site: str) -> None:
        self._add(graph.Fork, branch, site, children=tuple(children))
        for child in children:
            self._inherited[child] = self._variables[branch].copy()
            self._variables[child] = self._variables[branch].copy()

    def _join(
        self, branch: int, children: tuple[int, ...], mode: str, names: Sequence[str], site: str
    ) -> None:
        gathered = {
            name: tuple(
                value for child in children if (value := self._gathered(child, name)) is not None
            )
            for name in names
        }
        self._add(graph.Join, branch, site, children=children, mode=mode, gathered=gathered)
        self._variables[branch].update(gathered)

    def _gathered(self, child: int, name: str) -> Any:
        """A fork's value that a join takes, as `joins.is_new` says; None if it takes none."""
        value, before = self._variables[child].get(name), self._inherited[child].get(name)
        if before is None or (isinstance(before, tuple) and value is not before):
            return value
        return None

    def _assign(self, branch: int, name: str, value: object, site: str) -> None:
        ref = self._add(graph.Read, branch, site, name=name, value=plain(value))
        self._variables[branch][name] = ref

    def _span(self, branch: int, name: str, edge: str, site: str) -> None:
        ref = self._add(graph.Read, branch, site, name=name, edge=edge)
        if edge == "end":
            self._variables[branch][name] = ref

    def _read(self, branch: int, name: str, site: str) -> None:
        self._add(graph.Read, branch, site, value=self._variables[branch].get(name))

    def _call(self, branch: int, function: str, args: Sequence[object], site: str) -> None:
        given = tuple(plain(arg) for arg in args)
        self._add(graph.Call, branch, site, function=function, args=given)
