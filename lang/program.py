"""`Function`: a decorated Python function, and how it is run."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from ramet.lang.arguments import Arguments
from ramet.lang.batch import BatchOptions
from ramet.lang.compiled import CompiledFunction
from ramet.lang.errors import InvalidArgument
from ramet.lang.runner import Runner, async_body, plain_body
from ramet.lang.state import ProgramState
from ramet.lang.tracer import Trace, trace
from ramet.runtime.graph import Graph
from ramet.runtime.request import shown

Body = Callable[..., Any]
Items = Iterable[Mapping[str, Any] | tuple[Any, ...] | list[Any]]


class Function:
    """A program. Its body is a function, plain or async, whose first parameter is the state."""

    def __init__(
        self,
        body: Body,
        bound: Mapping[str, Any] | None = None,
        num_api_spec_tokens: int | None = None,
    ) -> None:
        if not callable(body):
            raise InvalidArgument(f"body={shown(body)}: a program is made of a function")
        self._body = body
        self._speculated = num_api_spec_tokens
        self._arguments = Arguments(self.name, inspect.signature(body), bound)
        if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
            raise InvalidArgument(
                f"{self.name}: the body is a generator (it has a yield), which nobody would run"
            )
        kind = async_body(body) if inspect.iscoroutinefunction(body) else plain_body(body)
        self._runner = Runner(self._arguments, kind, num_api_spec_tokens)
        functools.update_wrapper(self, body)

    def __repr__(self) -> str:
        return f"<program {self.name}({', '.join(self.arg_names)})>"

    def __get__(self, owner: object, _type: type | None = None) -> Function:
        """A program that is a method: its body gets the object before the state."""
        if owner is None:
            return self
        body = types.MethodType(self._body, owner)
        return Function(body, self._arguments.bound, self._speculated)

    @property
    def name(self) -> str:
        """The body's name."""
        return getattr(self._body, "__name__", "program")

    @property
    def arg_names(self) -> list[str]:
        """The names of the body's own arguments."""
        return self._arguments.names

    def __call__(self, *args: Any, **kwargs: Any) -> ProgramState:
        """The same as `run`."""
        return self.run(*args, **kwargs)

    def bind(self, **kwargs: Any) -> Function:
        """This program with some of the body's arguments given."""
        return Function(self._body, self._arguments.bind(kwargs).bound, self._speculated)

    def trace(self, **constants: Any) -> Graph:
        """The request graph, from one run of the body with symbols for what isn't known.

        Arguments given here are constants, the others symbols. A symbol can be appended, added to
        text, put into an f-string and given to `call(fn, …)`; what needs its value raises
        ProgramError naming the line. A longer f-string is an ordinary text to Python: what looks
        into one, as `f"Q: {q}" == …` does, sees the symbol's placeholder. No model is called. What
        else the body does, such as I/O and random numbers, happens once, now.
        """
        return self._trace(constants).graph

    def compile(self, **constants: Any) -> CompiledFunction:
        """This program as its graph: it runs without its body and without a thread of its own.

        Takes what `trace` takes. Runs of the result give what runs of this program give, equal
        seeds included; only functions in `call(fn, …)` still run, as soon as their arguments are
        known. Values that the body sets are taken as they are while it is traced. A call whose
        value nobody can read is warned of.
        """
        given = {*self._arguments.bound, *constants}
        arguments = self._arguments.without(given)
        return CompiledFunction(self._trace(constants), arguments, self._speculated)

    def run(self, *args: Any, **kwargs: Any) -> ProgramState:
        """Run the program and give the state that its body was given.

        A keyword that the body declares is the body's. `backend`, `seed`, `timeout` (seconds),
        `stream`, and the sampling fields (`temperature`, `max_new_tokens`, …) are the run's; the
        latter are what a `gen` inherits where it says nothing. Any other is InvalidArgument. After
        its timeout a run's calls are aborted, and its body ends at its next step.

        Returns when everything is done, and raises what the program raised. With `stream=True`, and
        inside another program, it returns at once and the state's readers wait. A program with an
        async body is run with `arun`.
        """
        return self._runner.run(args, kwargs)

    def run_batch(
        self,
        batch_kwargs: Items,
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
        """Run the program once per item (its arguments as a dict or tuple), in any number.

        Results keep the items' order. Items may come from a generator; only a bounded number is in
        flight. `num_threads` bounds the threads that run bodies; "auto" is the process's limit,
        `global_config.max_threads` (64). `timeout` and `seed` are each item's; a list of seeds has
        one per item. With `generator_style` the states come from a generator as they finish, and
        closing it aborts the rest.

        A failing item lets the others finish; then the first failing item's exception is raised,
        with a note of its index, `.results` (states and exceptions in order) and `.failures` (a
        dict of index to exception). With `return_exceptions` the exceptions stand at their places
        instead. With `generator_style` a failed item's state stands there (`state.error()` has the
        exception; what was produced before it can be read), and the first failure is raised after
        the last item.

        Inside another program the states are returned at once and their readers wait, unless
        `progress_bar`, `generator_style` or `return_exceptions` is asked for.
        """
        batch = BatchOptions(num_threads, progress_bar, generator_style, return_exceptions, seed)
        return self._runner.run_batch(batch_kwargs, batch, backend, timeout, sampling)

    async def arun(self, *args: Any, **kwargs: Any) -> ProgramState:
        """`run` in an event loop: `state = await program.arun(…)`; takes what `run` takes.

        An async body runs as a task of the loop, a plain one on a thread. Returns when everything
        is done, also inside another program; with `stream=True` at once, for
        `async for … in state.text_async_iter()`. Cancelling the task that awaits it aborts the run.
        """
        return await self._runner.arun(args, kwargs)

    async def arun_batch(
        self,
        batch_kwargs: Items,
        *,
        backend: Any = None,
        timeout: float | None = None,
        progress_bar: bool = False,
        return_exceptions: bool = False,
        seed: int | Sequence[int] | None = None,
        **sampling: Any,
    ) -> list[Any]:
        """`run_batch` in an event loop: `states = await program.arun_batch(items)`.

        Takes what `run_batch` takes and treats failing items alike. Async bodies need no threads;
        10,000 items are in flight at once at most.
        """
        batch = BatchOptions("auto", progress_bar, False, return_exceptions, seed)
        return await self._runner.arun_batch(batch_kwargs, batch, backend, timeout, sampling)

    def _trace(self, constants: Mapping[str, Any]) -> Trace:
        self._arguments.check_names(constants, exactly=True)
        given = {**self._arguments.bound, **constants}
        open_args = [name for name in self.arg_names if name not in given]
        return trace(self._arguments, self._body, given, open_args)


@overload
def function(body: Body) -> Function:
    """As `@function`."""


@overload
def function(*, num_api_spec_tokens: int | None = None) -> Callable[[Body], Function]:
    """As `@function()`."""


def function(
    body: Body | None = None, *, num_api_spec_tokens: int | None = None
) -> Function | Callable[[Body], Function]:
    """Make a program of a Python function, plain or async, whose first parameter is the state.

    Usable as `@function` and `@function()`. `num_api_spec_tokens` is for completion endpoints
    (`OpenAI`): one longer call writes that many tokens ahead, and later literals and calls are
    matched against them; a backend that can't raises UnsupportedFeature when the program runs.
    """
    if num_api_spec_tokens is not None and (
        isinstance(num_api_spec_tokens, bool)
        or not isinstance(num_api_spec_tokens, int)
        or num_api_spec_tokens < 1
    ):
        raise InvalidArgument(
            f"num_api_spec_tokens={num_api_spec_tokens!r}: must be an int of at least 1 or None"
        )
    if body is None:
        return lambda given: Function(given, num_api_spec_tokens=num_api_spec_tokens)
    return Function(body, num_api_spec_tokens=num_api_spec_tokens)
