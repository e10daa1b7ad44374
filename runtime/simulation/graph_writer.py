"""GraphWriter: writes a simulated program's graph node by node, as a tracer does."""

from __future__ import annotations

from typing import Any

from ramet.runtime.graph import Call, Fork, Gen, Graph, Join, Node, Select, Text
from ramet.runtime.graph_values import Part, Ref


class GraphWriter:
    """A program being written. Its arguments are named in the order in which they are asked for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._args: list[str] = []
        self._nodes: list[Node] = []
        self._branches = 0

    def arg(self) -> Ref:
        """A new argument: a run, a length or seconds, as it is used."""
        self._args.append(f"a{len(self._args)}")
        return Ref(arg=self._args[-1])

    def text(self, *parts: Part, branch: int = 0) -> None:
        """Text of runs and values."""
        self._put(Text, branch=branch, parts=parts)

    def gen(self, limit: int, samples: int = 1, branch: int = 0, site: str | None = None) -> Ref:
        """A generation; its value. The length of each sample is an argument. A `site` is given to
        the calls of a loop, which come from one line; others have one each."""
        params = {"max_new_tokens": limit, "lengths": tuple(self.arg() for _ in range(samples))}
        site = site or f"{self.name}:{len(self._nodes)}"
        return Ref(node=self._put(Gen, branch=branch, params=params, site=site))

    def select(self, *choices: str, branch: int = 0) -> Ref:
        """A choice between runs; its value."""
        site = f"{self.name}:{len(self._nodes)}"
        parts = tuple((choice,) for choice in choices)
        return Ref(node=self._put(Select, branch=branch, choices=parts, site=site))

    def pause(self, *after: Ref) -> Ref:
        """A tool that needs values; its value. Its seconds and its result are arguments."""
        return Ref(node=self._put(Call, function="pause", args=(self.arg(), self.arg(), *after)))

    def fork(self, count: int, branch: int = 0) -> list[int]:
        """New branches."""
        children = list(range(self._branches + 1, self._branches + count + 1))
        self._branches += count
        self._put(Fork, branch=branch, children=tuple(children))
        return children

    def join(self, children: list[int], branch: int = 0) -> None:
        """The end of branches."""
        self._put(Join, branch=branch, children=tuple(children))

    def graph(self) -> Graph:
        """What was written."""
        return Graph(self.name, tuple(self._args), tuple(self._nodes))

    def _put(self, kind: type[Node], **fields: Any) -> int:
        node = kind(id=len(self._nodes), **fields)
        self._nodes.append(node)
        return node.id
