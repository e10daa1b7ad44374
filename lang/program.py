"""`Function`: a decorated Python function, and how it is run."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from ramet.lang.api import SHORT_NAMES, sampling_fields
from ramet.lang.backends.protocol import Backend, Handle
from ramet.lang.batch import BatchOptions, run_all
from ramet.lang.branch import Branch
from ramet.lang.errors import InvalidArgument, UnsupportedFeature
from ramet.lang.instance import Instance
from ramet.lang.session import session
from ramet.lang.state import ProgramState
from ramet.lang.tracer import trace
from ramet.runtime.graph import Graph
from ramet.runtime.request import SamplingParams, check_seed

Body = Callable[..., object]

_SAMPLING = {field.name for field in dataclasses.fields(SamplingParams)} | SHORT_NAMES.keys()
_RUN_OPTIONS = ("backend", "seed", "timeout", "stream")


@dataclasses.dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run a program, as opposed to its own arguments; raises InvalidArgument."""

    backend: Any = None
    seed: int | None = None
    timeout: float | None = None
    stream: bool = False
    sampling: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        check_seed("seed", self.seed)
        if not isinstance(self.stream, bool):
            raise InvalidArgument(f"stream={self.stream!r}: must be True or False")
        timeout = self.timeout
        if timeout is not None and (
            isinstance(timeout, bool)
            or not isinstance(timeout, (int, float))
            or not (math.isfinite(timeout) and timeout > 0)
        ):
            raise InvalidArgument(
                f"timeout={timeout!r}: must be a number of seconds above 0, or None"
            )


class Function:
    """A program. Its body is a function whose first parameter is the state."""

    def __init__(
        self,
        body: Body,
        bound: Mapping[str, Any] | None = None,
        num_api_spec_tokens: int | None = None,
    ) -> None:
        if inspect.iscoroutinefunction(body):
            raise UnsupportedFeature(f"{body.__name__}: an async body is not supported yet")
        self._body = body
        self._speculated = num_api_spec_tokens
        self._bound = dict(bound or {})
        self._signature = inspect.signature(body)
        parameters = list(self._signature.parameters.values())
        if not parameters or parameters[0].kind not in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        ):
            raise InvalidArgument(f"{body.__name__}: a program's first parameter is its state")
        self._open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self.arg_names = [
            p.name for p in parameters[1:] if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        ]
        """The names of the body's own arguments."""
        functools.update_wrapper(self, body)

    def __repr__(self) -> str:
        return f"<program {self.name}({', '.join(self.arg_names)})>"

    @property
    def name(self) -> str:
        """The body's name."""
        return getattr(self._body, "__name__", "program")

    def __call__(self, *args: Any, **kwargs: Any) -> ProgramState:
        """The same as `run`."""
        return self.run(*args, **kwargs)

    def bind(self, **kwargs: Any) -> Function:
        """This program with some of the body's arguments given."""
        for name in kwargs:
            if name not in self.arg_names and not self._open_ended:
                raise self._unknown(name, self.arg_names)
        return Function(self._body, {**self._bound, **kwargs}, self._speculated)

    def trace(self, **constants: Any) -> Graph:
        """The request graph, from one run of the body with symbols for what isn't known.

        Arguments given here are constants, the others symbols. A symbol can be appended, added to
        text, put into an f-string and given to `call(fn, …)`; what needs its value raises
        ProgramError naming the line. No model is called. What else the body does, such as I/O and
        random numbers, happens once, now.
        """
        for name in constants:
            if name not in self.arg_names:
                raise self._unknown(name, self.arg_names)
        given = {**self._bound, **constants}
        open_args = [name for name in self.arg_names if name not in given]
        return trace(self.name, self._body, given, open_args)[0]

    def run(self, *args: Any, **kwargs: Any) -> ProgramState:
        """Run the program and give the state that its body was given.

        A keyword that the body declares is the body's. `backend`, `seed`, `timeout` (seconds),
        `stream`, and the sampling fields (`temperature`, `max_new_tokens`, …) are the run's; the
        latter are what a `gen` inherits where it says nothing. Any other is InvalidArgument.

        Returns when everything is done, and raises what the program raised. With `stream=True`, and
        inside another program, it returns at once and the state's readers wait.
        """
        own, rest = self._split(kwargs)
        options = _options(rest)
        arguments = self._arguments(args, own)
        instance = self._instance(arguments, options)
        state: ProgramState = instance.state
        if instance.watched:
            session.threads.start(instance)
            return state
        try:
            instance.wait_finished()
        except BaseException as error:  # An interrupt while waiting.
            instance.fail(error)
            raise
        instance.raise_failure()
        return state

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
        """Run the program once per item (its arguments as a dict or tuple), in any number.

        Results keep the items' order. Items may come from a generator; only a bounded number is in
        flight. `num_threads` bounds the threads that run bodies; "auto" is the process's limit,
        `global_config.max_threads` (64). `timeout` and `seed` are each item's; a list of seeds has
        one per item. With `generator_style` the states come from a generator as they finish, and
        closing it aborts the rest.

        A failing item lets the others finish; then the first failing item's exception is raised,
        with a note of its index, `.results` (states and exceptions in order) and `.failures` (a
        dict of index to exception). With `return_exceptions` the exceptions stand at their places
        instead. With `generator_style` a failed item's state stands there and raises when read,
        and the first failure is raised after the last item.

        Inside another program the states are returned at once and their readers wait, unless
        `progress_bar`, `generator_style` or `return_exceptions` is asked for.
        """
        for name in sampling:
            if name not in _SAMPLING:
                raise self._unknown(name, sorted(_SAMPLING))
        options = RunOptions(backend, None, timeout, False, sampling_fields(sampling)[0])
        batch = BatchOptions(num_threads, progress_bar, generator_style, return_exceptions, seed)
        items = self._items(batch_kwargs)

        def make(item: object, item_seed: int | None) -> Instance:
            arguments = self._item_arguments(item)
            return self._instance(arguments, dataclasses.replace(options, seed=item_seed))

        if Instance.current() is None or batch.waits:
            options = dataclasses.replace(options, backend=_backend(options.backend))
            return run_all(self.name, items, make, batch, session.threads)
        instances = [make(item, item_seed) for item, item_seed in batch.with_seeds(items)]
        for instance in instances:
            session.threads.start(instance)
        return [instance.state for instance in instances]

    def _split(self, kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The body's own keywords, and the run's."""
        own: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for name, value in kwargs.items():
            if name in self.arg_names:
                own[name] = value
            elif name in _RUN_OPTIONS or name in _SAMPLING:
                rest[name] = value
            elif self._open_ended:
                own[name] = value
            else:
                known = [*_RUN_OPTIONS, *sorted(_SAMPLING - {*_RUN_OPTIONS})]
                raise self._unknown(name, [*self.arg_names, *known])
        return own, rest

    def _arguments(self, args: tuple[Any, ...], own: Mapping[str, Any]) -> inspect.BoundArguments:
        keywords = {**self._bound, **own}
        # A positional argument replaces a bound one.
        for name in self.arg_names[: len(args)]:
            if name in self._bound and name not in own:
                del keywords[name]
        try:
            return self._signature.bind(None, *args, **keywords)
        except TypeError as error:
            raise InvalidArgument(f"{self.name}: {error}") from None

    def _item_arguments(self, item: object) -> inspect.BoundArguments:
        if isinstance(item, Mapping):
            for name in item:
                if name not in self.arg_names and not self._open_ended:
                    raise self._unknown(name, self.arg_names)
            return self._arguments((), item)
        if isinstance(item, (tuple, list)):
            return self._arguments(tuple(item), {})
        raise InvalidArgument(
            f"{self.name}: an item is a dict or a tuple of arguments, not {item!r}"
        )

    def _items(self, items: Iterable[Any]) -> Iterable[Any]:
        """The items; those of a list are all checked before the first one runs."""
        if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Iterable):
            raise InvalidArgument(f"run_batch takes a list of dicts, not {items!r}")
        if isinstance(items, (list, tuple)):
            for index, item in enumerate(items):
                try:
                    self._item_arguments(item)
                except InvalidArgument as error:
                    raise InvalidArgument(f"item {index} of run_batch: {error}") from None
        return items

    def _instance(self, arguments: inspect.BoundArguments, options: RunOptions) -> Instance:
        parent = Instance.current()
        seed = options.seed
        if parent is not None:
            parent.raise_failure()
            nested = parent.nested_seed(self.name)
            seed = nested if seed is None else seed
        backend = _backend(options.backend)
        handle = self._open(backend, seed)
        instance = Instance(
            self.name,
            backend,
            seed=seed,
            sampling=options.sampling,
            stream=options.stream,
            timeout=options.timeout,
            parent=parent,
        )
        state = ProgramState(Branch(instance, handle))

        def body() -> None:
            state.ret_value = self._body(state, *arguments.args[1:], **arguments.kwargs)

        instance.prepare(state, body)
        if parent is not None and parent.failure is not None:
            instance.fail(parent.failure)
        return instance

    def _open(self, backend: Backend, seed: int | None) -> Handle:
        if self._speculated is None:
            return backend.open(seed=seed)
        if "num_api_spec_tokens" not in inspect.signature(backend.open).parameters:
            raise UnsupportedFeature(
                f"{self.name}: num_api_spec_tokens={self._speculated}: {backend!r} can't speculate"
            )
        opener: Any = backend.open
        handle: Handle = opener(seed=seed, num_api_spec_tokens=self._speculated)
        return handle

    def _unknown(self, name: str, known: list[str]) -> InvalidArgument:
        return InvalidArgument(
            f"{self.name}: there is no argument {name!r}; there are: {', '.join(known) or 'none'}"
        )


@overload
def function(body: Body) -> Function:
    """As `@function`."""


@overload
def function(*, num_api_spec_tokens: int | None = None) -> Callable[[Body], Function]:
    """As `@function()`."""


def function(
    body: Body | None = None, *, num_api_spec_tokens: int | None = None
) -> Function | Callable[[Body], Function]:
    """Make a program of a Python function whose first parameter is the state.

    Usable as `@function` and `@function()`. `num_api_spec_tokens` is for completion endpoints
    (`OpenAI`): one longer call writes that many tokens ahead, and later literals and calls are
    matched against them; a backend that can't raises UnsupportedFeature when the program runs.
    Raises UnsupportedFeature for an async body.
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


def _options(rest: Mapping[str, Any]) -> RunOptions:
    run = {name: rest[name] for name in _RUN_OPTIONS if name in rest}
    # The run's `seed` is the program's; as a sampling field it would be every call's.
    sampling = {name: value for name, value in rest.items() if name not in _RUN_OPTIONS}
    return RunOptions(**run, sampling=sampling_fields(sampling)[0] if sampling else {})


def _backend(given: object) -> Backend:
    """The given backend, else the enclosing program's, else the default one."""
    parent = Instance.current()
    return session.backend(given if given is not None or parent is None else parent.backend)
