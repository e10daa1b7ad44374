"""Walk: one run of a compiled program. It needs no thread: what ends wakes what waits for it.

Each branch goes on until a step needs a value that isn't there; the end of the call that brings it
goes on from there, on the thread that reports it. Steps are done by one thread at a time. Only
functions of the user's run on threads of their own.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from ramet.lang.branch import APPEND, Branch
from ramet.lang.expr import Expr, Gen, Select
from ramet.lang.instance import Instance, running
from ramet.lang.plan import Plan, Step
from ramet.lang.reasoning import SplitValue
from ramet.lang.state import ProgramState
from ramet.lang.values import GatheredValue, GivenValue, SharedValue, Value
from ramet.lang.views import ComputedValue, TypedView
from ramet.runtime.errors import InvalidArgument
from ramet.runtime.graph_values import Opaque, Part, Ref, Template
from ramet.runtime.request import shown


class Walk:
    """The run of a plan by one instance."""

    def __init__(
        self, plan: Plan, instance: Instance, state: ProgramState, arguments: Mapping[str, Any]
    ) -> None:
        self._plan = plan
        self._instance = instance
        self._state = state
        self._arguments = arguments
        # Touched only by the thread that is walking.
        self._branches: dict[int, Branch] = {0: state._branch}
        self._next = dict.fromkeys(plan.branches, 0)
        self._over: set[int] = set()
        self._values: dict[int, Value] = {}
        self._spans: dict[tuple[int, str], list[int]] = {}
        self._wanted: dict[tuple[str, int], list[int]] = {}
        # Under the lock: branches that may go on, whether some thread is walking, functions.
        self._lock = threading.Lock()
        self._ready: deque[int] = deque(number for number in plan.branches if number <= 0)
        self._walking = False
        self._functions = [ComputedValue(instance) for _ in plan.calls]
        # Where the backend can, what one go submits is sent in one message.
        self._together = getattr(instance.backend, "together", contextlib.nullcontext)
        self._num_running = 0
        self._claimed: set[int] = set()
        self._open = len(plan.branches) + len(plan.calls)
        for node, value in zip(plan.calls, self._functions, strict=True):
            self._values[node.id] = value

    def start(self) -> None:
        """Go as far as nothing has to be waited for."""
        self._go_on()

    def wake(self, branch: int | None = None) -> None:
        """Let a branch go on; with None, only look whether the run has failed."""
        with self._lock:
            if branch is not None:
                self._ready.append(branch)
        self._go_on()

    # What steps do, on the thread that is walking

    def append(self, branch: int, expression: Expr) -> None:
        """Append a literal."""
        self._branches[branch].apply(expression)

    def call(
        self, branch: int, node: int, expression: Gen | Select, label: tuple[int, int]
    ) -> None:
        """Append a call, and keep its value."""
        self._make(node, self._branches[branch].call(expression, label))

    def fork(self, branch: int, children: Sequence[int]) -> None:
        """Make the branches of a fork, and let them start."""
        made = self._branches[branch].fork(len(children))
        self._branches.update(zip(children, made, strict=True))
        with self._lock:
            self._ready.extend(children)

    def join_text(self, branch: int, children: Sequence[int]) -> None:
        """Append the text of branches."""
        branches = [self._branches[child] for child in children]
        self._branches[branch].join(branches, APPEND)
        self._end(branches)

    def join_values(
        self, branch: int, children: Sequence[int], gathered: Mapping[str, tuple[Any, ...]]
    ) -> None:
        """Gather values of branches as variables."""
        branches = [self._branches[child] for child in children]
        self._branches[branch].expect(branches)
        for name, values in gathered.items():
            self._branches[branch].put(name, GatheredValue([self._value(v) for v in values]))
        self._end(branches)

    def assign(self, branch: int, node: int, name: str | None, value: Any) -> None:
        """Set a variable, if the value has a name."""
        if name is not None:
            lazy = isinstance(value, Ref) and not value.text and value.node is not None
            held = SharedValue(self._value(value)) if lazy else GivenValue(self._resolve(value))
            self._branches[branch].put(name, held)
            self._make(node, held)

    def span(self, branch: int, node: int, name: str, edge: str) -> None:
        """Begin or end a stretch of text that becomes a variable."""
        here = self._branches[branch]
        starts = self._spans.setdefault((branch, name), [])
        if edge == "begin":
            starts.append(here.start_span(name))
        else:
            self._make(node, here.assign_span(name, starts.pop()))

    def compute(self, index: int) -> None:
        """Have a function run on a thread; its arguments are there."""
        node = self._plan.calls[index]
        self._instance.changed.start_part(_FunctionRun(self, index, self._resolve(node.args)))

    def put_returned(self, value: Any) -> None:
        """Keep the program's return value."""
        self._state.ret_value = self._resolve(value)

    def text(self, parts: Sequence[Part]) -> str:
        """A text of literals and values; raises InvalidArgument for a value that isn't one."""
        return "".join([part if isinstance(part, str) else self._text_of(part) for part in parts])

    # Values

    def _text_of(self, ref: Ref) -> str:
        value = self._resolve(ref)
        if not isinstance(value, str):
            raise InvalidArgument(
                f"cannot append {shown(value)} of type {type(value).__name__} for {ref}: a state "
                "takes text (str(...) makes text)"
            )
        return value

    def _value(self, held: Any) -> Value:
        """What a join gathers, or a node gives, as a variable holds it; waits for nothing."""
        if isinstance(held, Ref):
            assert held.node is not None
            return self._view(held)
        return GatheredValue([self._value(item) for item in held])

    def _resolve(self, held: Any) -> Any:
        """A graph's value as a Python value; what it needs is there."""
        if isinstance(held, Template):
            return self.text(held.parts)
        if isinstance(held, (list, tuple)):
            items = [self._resolve(item) for item in held]
            return items if isinstance(held, list) else tuple(items)
        if isinstance(held, dict):
            return {key: self._resolve(item) for key, item in held.items()}
        return self._leaf(held)

    def _leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, Opaque):
            assert leaf.index is not None
            found = self._plan.objects[leaf.index]
            return self._state if found is self._plan.state else found
        if not isinstance(leaf, Ref):
            return leaf
        value = self._arguments[leaf.arg] if leaf.arg is not None else self._view(leaf).read()
        return str(value) if leaf.text else value

    def _view(self, ref: Ref) -> Value:
        """What a node gives, or the part of it that is meant."""
        assert ref.node is not None
        value = self._values[ref.node]
        if ref.part is None:
            return value
        if ref.part == "typed":
            return TypedView(value)
        return SplitValue(value, self._plan.reasoning[ref.node], ref.part)

    def _make(self, node: int, value: Value) -> None:
        self._values[node] = value
        self._release(("made", node))

    # Going on

    def _go_on(self) -> None:
        with self._lock:
            if self._walking:
                return
            self._walking = True
        while True:
            # Sent before anybody else may go on, so that a context's operations keep their order.
            with self._together():
                while (branch := self._next_ready()) is not None:
                    try:
                        self._advance(branch)
                    except BaseException as error:
                        self._instance.fail(error)
            with self._lock:
                failed = self._instance.failure is not None
                if failed or not self._ready:
                    self._walking = False
                    break
        if failed:
            self._stop()
        else:
            self._end_if_over()

    def _next_ready(self) -> int | None:
        """The next branch that may go on; None if there is none, or the run has failed."""
        with self._lock:
            if self._instance.failure is not None or not self._ready:
                return None
            return self._ready.popleft()

    def _advance(self, branch: int) -> None:
        """Do a branch's steps until one has to wait."""
        steps = self._plan.branches[branch]
        index = self._next[branch]
        while index < len(steps):
            step = steps[index]
            if (step.done or step.made or step.over) and self._must_wait(step, branch):
                self._next[branch] = index
                return
            step.act(self, branch)
            index += 1
        self._next[branch] = index
        self._over.add(branch)
        with self._lock:
            self._open -= 1
        self._release(("over", branch))

    def _must_wait(self, step: Step, branch: int) -> bool:
        for child in step.over:
            if child not in self._over:
                self._wanted.setdefault(("over", child), []).append(branch)
                return True
        for node in (*step.made, *step.done):
            if node not in self._values:
                self._wanted.setdefault(("made", node), []).append(branch)
                return True
        for node in step.done:
            if (waited := next(self._values[node].pending(), None)) is not None:
                waited.on_done(functools.partial(self.wake, branch))
                return True
        return False

    def _release(self, event: tuple[str, int]) -> None:
        for waiting in self._wanted.pop(event, ()):
            with self._lock:
                self._ready.append(waiting)

    def _end(self, branches: Sequence[Branch]) -> None:
        for branch in branches:
            branch.end("has been joined")

    def _end_if_over(self) -> None:
        with self._lock:
            over = not self._open
        if over:
            self._instance.end_body()

    def _stop(self) -> None:
        """The run has failed: nothing new starts, and what nobody will bring is given up."""
        with self._lock:
            running = self._num_running
        if not running:
            for value in self._functions:
                value.fail()
            self._instance.end_body()

    # Functions, on their threads

    def claim_function(self, index: int) -> bool:
        """Take the right to run one; False if somebody has it, and once the run has failed."""
        with self._lock:
            if self._instance.failure is not None or index in self._claimed:
                return False
            self._claimed.add(index)
            self._num_running += 1
            return True

    def run_function(self, index: int, args: Sequence[Any]) -> None:
        """Run one, and go on with what waits for its value."""
        instance = self._instance
        try:
            with running(instance), instance.scope.call(index):
                result = self._plan.functions[index](*args)
        except BaseException as error:
            instance.fail(error)
        else:
            self._functions[index].put(result)
        with self._lock:
            self._num_running -= 1
            self._open -= 1
        self._go_on()


class _FunctionRun:
    """One function that is about to run."""

    def __init__(self, walk: Walk, index: int, args: Sequence[Any]) -> None:
        self._walk, self._index, self._args = walk, index, args

    def claim(self) -> bool:
        """Whether it may still run."""
        return self._walk.claim_function(self._index)

    def run_body(self) -> None:
        """Run it on this thread."""
        self._walk.run_function(self._index, self._args)
