"""`CompiledFunction`: a program as its graph, run without its body."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ramet.lang.arguments import Arguments
from ramet.lang.batch import BatchOptions
from ramet.lang.instance import Instance
from ramet.lang.plan import Plan, unread
from ramet.lang.recording import KnownGraph
from ramet.lang.runner import Kind, Runner
from ramet.lang.state import ProgramState
from ramet.lang.tracer import Trace
from ramet.lang.walk import Walk
from ramet.runtime.graph import Graph, label_of


class CompiledFunction:
    """A program that was traced. It runs as `Function` does and gives the same results, but its
    body is never executed and no run has a thread of its own."""

    def __init__(self, trace: Trace, arguments: Arguments, speculated: int | None = None) -> None:
        self._arguments = arguments
        self._plan = Plan.of(trace)
        self._speculated = speculated
        self._runner = self._make_runner(arguments)
        self.graph: Graph = self._plan.graph
        """The request graph as it is run, after the passes."""
        for node in unread(self.graph):
            warnings.warn(
                f"{arguments.program}: nobody can read what {label_of(node)} at {node.site} gives; "
                "it still runs",
                UserWarning,
                stacklevel=3,
            )

    def bind(self, **kwargs: Any) -> CompiledFunction:
        """This program with some of its open arguments given."""
        bound = copy.copy(self)
        bound._arguments = self._arguments.bind(kwargs)
        bound._runner = self._make_runner(bound._arguments)
        return bound

    def __repr__(self) -> str:
        return f"<compiled program {self.name}({', '.join(self.arg_names)})>"

    @property
    def name(self) -> str:
        """The program's name."""
        return self._arguments.program

    @property
    def arg_names(self) -> list[str]:
        """The names of the arguments that are still open."""
        return self._arguments.names

    def __call__(self, *args: Any, **kwargs: Any) -> ProgramState:
        """The same as `run`."""
        return self.run(*args, **kwargs)

    def run(self, *args: Any, **kwargs: Any) -> ProgramState:
        """As `Function.run`."""
        return self._runner.run(args, kwargs)

    def run_batch(
        self,
        batch_kwargs: Iterable[Mapping[str, Any] | tuple[Any, ...] | list[Any]],
        *,
        backend: Any = None,
        timeout: float | None = None,
        num_threads: int | str = "auto",
        progress_bar: bool = False,
        generator_style: bool = False,
        return_exceptions: bool = False,
        seed: int | Sequence[int] | None = None,
        **sampling: Any,
    ) -> list[Any] | Iterator[Any]:
        """As `Function.run_batch`. `num_threads` bounds the threads that run bodies, of which there
        are none here."""
        batch = BatchOptions(num_threads, progress_bar, generator_style, return_exceptions, seed)
        return self._runner.run_batch(batch_kwargs, batch, backend, timeout, sampling)

    async def arun(self, *args: Any, **kwargs: Any) -> ProgramState:
        """As `Function.arun`."""
        return await self._runner.arun(args, kwargs)

    async def arun_batch(
        self,
        batch_kwargs: Iterable[Mapping[str, Any] | tuple[Any, ...] | list[Any]],
        *,
        backend: Any = None,
        timeout: float | None = None,
        progress_bar: bool = False,
        return_exceptions: bool = False,
        seed: int | Sequence[int] | None = None,
        **sampling: Any,
    ) -> list[Any]:
        """As `Function.arun_batch`."""
        batch = BatchOptions("auto", progress_bar, False, return_exceptions, seed)
        return await self._runner.arun_batch(batch_kwargs, batch, backend, timeout, sampling)

    def to_mermaid(self) -> str:
        """The graph as a Mermaid flowchart."""
        return self.graph.to_mermaid()

    def to_dict(self) -> dict[str, Any]:
        """The graph as plain data, versioned."""
        return self.graph.to_dict()

    def _repr_html_(self) -> str:
        """The graph as a table for notebooks."""
        return self.graph._repr_html_()

    def _make_runner(self, arguments: Arguments) -> Runner:
        return Runner(arguments, Kind(self._prepare, on_caller=True), self._speculated)

    def _prepare(
        self, instance: Instance, state: ProgramState, arguments: inspect.BoundArguments
    ) -> None:
        arguments.apply_defaults()
        instance.recording = KnownGraph(self.graph)
        walk = Walk(self._plan, instance, state, arguments.arguments)
        instance.prepare(state, walk.start, detached=True, interrupt=walk.wake)
