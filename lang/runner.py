"""Runner: starts the runs of one program, whatever its body is, and waits for them.

`Function` and `CompiledFunction` own one. What differs between a plain body, an async one and a
compiled graph is only how an instance's body is prepared.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ramet.lang.arguments import Arguments
from ramet.lang.async_batch import arun_all
from ramet.lang.backends.protocol import Backend, Handle
from ramet.lang.batch import BatchOptions, run_all
from ramet.lang.branch import Branch
from ramet.lang.errors import Cancelled, ProgramError, UnsupportedFeature
from ramet.lang.instance import Instance, await_end
from ramet.lang.loops import running_loop
from ramet.lang.options import RunOptions, batch_options, split
from ramet.lang.session import session
from ramet.lang.state import ProgramState
from ramet.lang.tracer import Tracer

Prepare = Callable[[Instance, ProgramState, inspect.BoundArguments], None]
"""Gives a new instance its body."""


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """How bodies are started."""

    prepare: Prepare
    on_loop: bool = False
    """Whether the body needs the event loop that it is started on."""
    on_caller: bool = False
    """Whether starting it takes no time, so that it needs no thread."""


class Runner:
    """The ways to run one program."""

    def __init__(self, arguments: Arguments, kind: Kind, speculated: int | None = None) -> None:
        self._arguments = arguments
        self._kind = kind
        self._speculated = speculated
        self._name = arguments.program

    def run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ProgramState:
        """As `Function.run`."""
        self._refuse("run")
        own, options = split(self._arguments, kwargs)
        instance = self._instance(self._arguments.fill(args, own), options, _backend(options))
        state: ProgramState = instance.state
        if instance.watched:
            self._launch(instance)
            return state
        try:
            if self._kind.on_caller and not self._on_caller:
                self._launch(instance)
            instance.wait_finished()
        except BaseException as error:  # An interrupt while waiting.
            instance.fail(error)
            raise
        instance.raise_failure()
        return state

    def run_batch(
        self,
        items: Iterable[Any],
        batch: BatchOptions,
        backend: Any,
        timeout: float | None,
        sampling: Mapping[str, Any],
    ) -> list[Any] | Iterator[Any]:
        """As `Function.run_batch`."""
        self._refuse("run_batch")
        options = batch_options(self._arguments, backend, timeout, sampling)
        items = self._arguments.check_items(items)
        make = self._maker(options, _backend(options))
        parent = Instance.current()
        if parent is None or batch.waits:
            if parent is not None:
                parent.check_may_block()
            threads = None if self._on_caller else session.threads
            if self._kind.on_caller:  # One thread is enough for bodies that take no time.
                batch = dataclasses.replace(batch, num_threads=1)
            return run_all(self._name, items, make, batch, threads)
        instances = [make(item, item_seed) for item, item_seed in batch.with_seeds(items)]
        for instance in instances:
            self._launch(instance)
        return [instance.state for instance in instances]

    async def arun(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ProgramState:
        """As `Function.arun`."""
        self._refuse_trace()
        own, options = split(self._arguments, kwargs)
        arguments = self._arguments.fill(args, own)
        instance = self._instance(arguments, options, await _abackend(options))
        state: ProgramState = instance.state
        self._launch(instance)
        if options.stream:
            return state
        try:
            await await_end(instance)
        except asyncio.CancelledError:
            instance.fail(Cancelled(f"{self._name}: the task that ran it was cancelled"))
            await await_end(instance)
            raise
        instance.raise_failure()
        return state

    async def arun_batch(
        self,
        items: Iterable[Any],
        batch: BatchOptions,
        backend: Any,
        timeout: float | None,
        sampling: Mapping[str, Any],
    ) -> list[Any]:
        """As `Function.arun_batch`."""
        self._refuse_trace()
        options = batch_options(self._arguments, backend, timeout, sampling)
        items = self._arguments.check_items(items)
        make = self._maker(options, await _abackend(options))
        return await arun_all(self._name, items, make, self._launch, batch)

    def _maker(
        self, options: RunOptions, backend: Backend
    ) -> Callable[[object, int | None], Instance]:
        def make(item: object, seed: int | None) -> Instance:
            arguments = self._arguments.fill_item(item)
            return self._instance(arguments, dataclasses.replace(options, seed=seed), backend)

        return make

    @property
    def _on_caller(self) -> bool:
        """Whether bodies are started by the calling thread. Not by the main one: Ctrl-C strikes
        there, and must not find it between two steps of what others wait for."""
        return self._kind.on_caller and (
            threading.current_thread() is not threading.main_thread() or running_loop() is not None
        )

    def _launch(self, instance: Instance) -> None:
        """Start an instance without waiting for its body."""
        if not (self._kind.on_loop or self._on_caller):
            session.threads.start(instance)
        elif instance.claim():
            instance.run_body()

    def _refuse(self, method: str) -> None:
        if self._kind.on_loop:
            raise ProgramError(
                f"{self._name} has an async body: use `await {self._name}.a{method}(…)`"
            )
        self._refuse_trace()

    def _refuse_trace(self) -> None:
        if Tracer.current() is not None:
            raise ProgramError(
                f"{self._name}: a program run inside another one can't be traced; put it into a "
                "function and run that with call(fn, …)"
            )

    def _instance(
        self, arguments: inspect.BoundArguments, options: RunOptions, backend: Backend
    ) -> Instance:
        parent = Instance.current()
        seed = options.seed
        if parent is not None:
            parent.raise_failure()
            nested = parent.scope.nested_seed(self._name)
            seed = nested if seed is None else seed
        handle = self._open(backend, seed)
        instance = Instance(
            self._name,
            backend,
            seed=seed,
            sampling=options.sampling,
            stream=options.stream,
            logprob_texts=options.return_text_in_logprobs,
            timeout=options.timeout,
            parent=parent,
        )
        state = ProgramState(Branch(instance, handle))
        self._kind.prepare(instance, state, arguments)
        if parent is not None and parent.failure is not None:
            instance.fail(parent.failure)
        return instance

    def _open(self, backend: Backend, seed: int | None) -> Handle:
        if self._speculated is None:
            return backend.open(seed=seed, name=self._name)
        if "num_api_spec_tokens" not in inspect.signature(backend.open).parameters:
            raise UnsupportedFeature(
                f"{self._name}: num_api_spec_tokens={self._speculated}: {backend!r} can't speculate"
            )
        opener: Any = backend.open
        handle: Handle = opener(seed=seed, name=self._name, num_api_spec_tokens=self._speculated)
        return handle


def plain_body(body: Callable[..., object]) -> Kind:
    """A body that is a function, run on a thread."""

    def prepare(instance: Instance, state: ProgramState, arguments: inspect.BoundArguments) -> None:
        def run() -> None:
            state.ret_value = body(state, *arguments.args[1:], **arguments.kwargs)

        instance.prepare(state, run)

    return Kind(prepare)


def async_body(body: Callable[..., Any]) -> Kind:
    """A body that is a coroutine function, run as a task of the event loop that starts it."""

    def prepare(instance: Instance, state: ProgramState, arguments: inspect.BoundArguments) -> None:
        tasks: list[asyncio.Task[Any]] = []

        def start() -> None:
            instance.loop = loop = asyncio.get_running_loop()
            task = loop.create_task(body(state, *arguments.args[1:], **arguments.kwargs))
            tasks.append(task)
            task.add_done_callback(end)

        def end(task: asyncio.Task[Any]) -> None:
            tasks.clear()
            if task.cancelled():
                instance.fail(Cancelled(f"{instance.name}: its body was cancelled"))
            elif (error := task.exception()) is not None:
                instance.fail(error)
            else:
                state.ret_value = task.result()
            instance.end_body()

        def interrupt() -> None:
            for task in list(tasks):
                if not session.loops.of(task.get_loop()).call(task.cancel):
                    instance.end_body()  # Its loop is closed: nobody will.

        instance.prepare(state, start, detached=True, interrupt=interrupt)

    return Kind(prepare, on_loop=True)


def _backend(options: RunOptions) -> Backend:
    """The given backend, else the enclosing program's, else the default one."""
    parent, given = Instance.current(), options.backend
    return session.backend(given if given is not None or parent is None else parent.backend)


async def _abackend(options: RunOptions) -> Backend:
    """`_backend` without blocking the event loop while the default one starts."""
    if options.backend is not None or Instance.current() is not None:
        return _backend(options)
    return await asyncio.to_thread(session.backend)
