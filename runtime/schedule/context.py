"""Context: a live path and the queue of operations still to do on it.

A Context pins no page: between calls its path is cache. Its next operation starts in the step
after its call ended, with no round trip through user code.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import TYPE_CHECKING, Any

from ramet.runtime.cache.node import Node
from ramet.runtime.errors import RametError

if TYPE_CHECKING:
    from ramet.runtime.schedule.call import GenerateCall, ScoreCall


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
    contexts: set[int] = dataclasses.field(default_factory=set)


@dataclasses.dataclass(slots=True)
class Context:
    """One branch of a program: where it is, what it waits for, what comes next."""

    id: int
    program: Program
    path: str
    """Branch path, such as "0.3"; names the branch in streams and reports."""
    node: Node | None = None
    """End of the path; None until the fork that makes this branch has run."""
    queue: deque[dict[str, Any]] = dataclasses.field(default_factory=deque)
    busy: GenerateCall | ScoreCall | None = None
    failed: RametError | None = None
    """The error that ended this branch; what is queued behind it fails with the same."""
