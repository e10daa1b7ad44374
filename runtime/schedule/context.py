"""Context: a live path and the queue of operations still to do on it.

A Context pins no page: between calls its path is cache. Its next operation starts in the step
after its call ended, with no round trip through user code.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import TYPE_CHECKING, Any

from ramet.runtime.cache.absence import Away
from ramet.runtime.cache.node import Node
from ramet.runtime.cache.origin import Origin
from ramet.runtime.errors import RametError

if TYPE_CHECKING:
    from ramet.runtime.schedule.call import GenerateCall, ScoreCall

CALLS = ("generate", "score")
"""The operations that a caller waits for."""


@dataclasses.dataclass(slots=True)
class Program:
    """A program instance as the scheduler sees it."""

    id: int
    number: int
    """Order of arrival."""
    priority: int
    salt: str | None
    """Namespace of the tree: different salts never share KV."""
    cache: bool
    """Whether what it computes stays for others, and whether it reads what others left."""
    name: str = ""
    attained_tokens: int = 0
    """Prefill that its calls were admitted for, and tokens that they sampled."""
    contexts: set[int] = dataclasses.field(default_factory=set)


@dataclasses.dataclass(slots=True, eq=False)
class ForkGroup:
    """The branches of one fork."""

    parent: Context
    children: list[int]
    """Their contexts' ids, in order."""
    unfinished: int = 0
    """Branches with operations queued or running, or whose fork is still to run."""
    joined: bool = False
    """Whether the parent waits for them all, so that the slowest decides."""

    @property
    def size(self) -> int:
        """Number of branches."""
        return len(self.children)


@dataclasses.dataclass(slots=True, eq=False)
class Context:
    """One branch of a program: where it is, what it waits for, what comes next."""

    id: int
    program: Program
    path: str
    """Branch path, such as "0.3"; names the branch in streams and reports."""
    node: Node | None = None
    """End of the path; None until the fork that makes this branch has run."""
    group: ForkGroup | None = None
    """The fork that made this branch; None of a root."""
    index: int = 0
    """Its place in that fork."""
    queue: deque[dict[str, Any]] = dataclasses.field(default_factory=deque)
    queued_calls: int = 0
    """Calls in the queue: what is known to come after the one that runs."""
    closing: bool = False
    """Whether its end is queued: nothing comes after that."""
    busy: GenerateCall | ScoreCall | None = None
    failed: RametError | None = None
    """The error that ended this branch; what is queued behind it fails with the same."""
    away: Away | None = None
    """Since when it waits for its user, after its last call."""
    origins: dict[tuple[str, str | None], Origin] = dataclasses.field(default_factory=dict)
    """What its calls are named and booked on, by call site and namespace."""
    _counted: bool = False
    """Whether its group counts it as unfinished."""

    @property
    def parent(self) -> Context | None:
        """The context that it was forked from."""
        return None if self.group is None else self.group.parent

    @property
    def ready(self) -> bool:
        """Whether its next operation can start."""
        return self.busy is None and (self.node is not None or self.failed is not None)

    def push(self, op: dict[str, Any]) -> None:
        """Queue an operation."""
        self.queue.append(op)
        self.queued_calls += op["op"] in CALLS
        self.closing = op["op"] == "close"

    def pop(self) -> dict[str, Any]:
        """Take the next operation out of the queue."""
        op = self.queue.popleft()
        self.queued_calls -= op["op"] in CALLS
        return op

    def report(self) -> None:
        """Let the fork group know whether this branch has something to do."""
        if self.group is not None:
            unfinished = bool(self.queue) or not self.ready
            self.group.unfinished += unfinished - self._counted
            self._counted = unfinished

    def leave(self) -> None:
        """It is closed: it has nothing to do and no place any more."""
        if self.group is not None:
            self.group.unfinished -= self._counted
        self.group = self.node = None


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a call stands in its program: what a policy may go by."""

    context: Context
    origin: Origin
    """Call site, program and branch."""
    depth: int | None = None
    """Calls before it on its longest chain; known of a compiled graph."""
    labelled: int = 0
    """Calls after it on its longest chain, as a compiled graph says."""

    @property
    def remaining(self) -> int:
        """Known calls still to come after it."""
        return max(self.labelled, self.context.queued_calls)

    @property
    def group(self) -> ForkGroup | None:
        """The fork that its branch belongs to."""
        return self.context.group
