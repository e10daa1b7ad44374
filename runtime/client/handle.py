"""Handles: contexts as a program holds them.

A handle keeps literal text until a call needs it, turns it into token ids, and queues operations
on its context in the engine. It never waits for a result before it sends the next operation: that
a path is empty, and how text continues it, is known here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Sequence

from ramet.runtime.client.call import Call, CallResult
from ramet.runtime.client.channel import Message
from ramet.runtime.client.connection import EngineClient
from ramet.runtime.client.generation import generation_result
from ramet.runtime.client.selection import Selection
from ramet.runtime.client.token_path import TokenPath
from ramet.runtime.errors import ContextOverflow, InvalidArgument, ProgramError
from ramet.runtime.request import SamplingParams, check_text, check_token_ids, shown
from ramet.runtime.sampling.border import seed_ids
from ramet.runtime.sampling.scoring import check_method
from ramet.runtime.sampling.streams import stream_key
from ramet.runtime.tokenizer import Piece, Tokenizer

_KINDS = ("text", "content")
MAX_FORKS = 65_536
"""Most branches of one fork."""


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """What all contexts of one program instance have in common."""

    program_id: int
    seed: int
    """From which its random streams derive."""
    priority: int = 0
    cache_salt: str | None = None
    """Contexts share computed tokens only with contexts of an equal salt."""
    cache: bool = True
    """False: shares computed tokens with nobody outside the program."""
    name: str = ""
    """For reports."""


class Handle:
    """One context: a path of token ids that grows by text and calls. Usable from any thread."""

    def __init__(
        self,
        client: EngineClient,
        tokenizer: Tokenizer,
        program: Program,
        *,
        owner: object = None,
        parent: Handle | None = None,
        branch: str = "",
    ) -> None:
        self.program = program
        """The program instance that the context belongs to."""
        self.branch = branch
        """Its place among the program's forks: "" or "0.3"."""
        self._client, self._tokenizer = client, tokenizer
        self._owner = owner  # Keeps the Runtime from being dropped while a handle lives.
        self._ctx = client.next_id()
        self._lock = threading.RLock()
        self._opened = parent is not None
        self._closed = False
        self._num_calls = self._num_children = 0
        self._running: list[Call[CallResult]] = []  # Those that ended are swept now and then.
        self._prune_at = 64
        self._path: TokenPath = TokenPath() if parent is None else parent._path
        # Settled ids that the engine has not been sent, and the text after them.
        self._unsent: list[int] = [] if parent is None else list(parent._unsent)
        self._pending: list[Piece] = [] if parent is None else list(parent._pending)
        self._has_ids: bool = parent is not None and parent._has_ids

    def append(self, pieces: Sequence[Piece]) -> None:
        """Add literal text, which stays pending until a call; nothing is sent or computed.

        Raises InvalidArgument for text that no tokenizer can take (a lone surrogate).
        """
        for text, kind in pieces:
            check_text("text", text)
            if kind not in _KINDS:
                raise InvalidArgument(f"kind={kind!r}: must be one of {', '.join(_KINDS)}")
        with self._lock:
            self._check_open()
            self._pending += [(text, kind) for text, kind in pieces if text]

    def append_ids(self, ids: Sequence[int]) -> None:
        """Add token ids as they are, after settling pending text; nothing is sent or computed.

        Raises InvalidArgument for what is no token id of the model.
        """
        ids = check_token_ids("ids", ids, self._client.info["vocab_size"])
        with self._lock:
            self._check_open()
            self._unsent, self._pending = [*self._settled(), *ids], []

    def generate(
        self,
        params: SamplingParams,
        *,
        stream: bool = False,
        site: str = "",
        label: tuple[int, int] | None = None,
    ) -> Call[CallResult]:
        """Queue a generation on what the path then is; sample 0 enters it.

        `site` names the call in the program, for counters. `label` is (calls before it, calls
        after it) on its longest chain in a compiled graph, for the scheduler. Raises
        InvalidArgument for token ids outside the vocabulary and ContextOverflow for a prompt that
        is certainly too long; the handle is unchanged then.
        """
        with self._lock:
            ops, call = self._plan_generate(params, stream, site, label)
            self._client.submit(ops, (call,))
        return call

    def plan_generate(
        self,
        params: SamplingParams,
        *,
        stream: bool = False,
        site: str = "",
        label: tuple[int, int] | None = None,
    ) -> tuple[list[Message], Call[CallResult]]:
        """`generate`'s operations and call, for a caller that submits several together."""
        with self._lock:
            return self._plan_generate(params, stream, site, label)

    def _plan_generate(
        self, params: SamplingParams, stream: bool, site: str, label: tuple[int, int] | None
    ) -> tuple[list[Message], Call[CallResult]]:
        self._check_open()
        client = self._client
        params.check_vocabulary(client.info["vocab_size"])
        ops = self._advance(self._settled() or self._start())
        prompt = self._path
        call: Call[CallResult] = Call(
            client.next_id(),
            lambda event: generation_result(event, prompt),
            client.abort_call,
            streams=stream,
        )
        seed = self.program.seed if params.seed is None else params.seed
        op: Message = {
            "op": "generate",
            "ctx": self._ctx,
            "call": call.call_id,
            "params": params.to_wire(),
            "keys": [stream_key(seed, self.branch, self._num_calls, i) for i in range(params.n)],
            "stream": stream,
            "site": site,
        }
        if label is not None:
            op["depth"], op["remaining"] = label
        ops.append(op)
        self._add(call)
        return ops, call

    def select(
        self,
        choices: Sequence[str],
        method: str,
        *,
        temperature: float = 0.0,
        site: str = "",
        label: tuple[int, int] | None = None,
    ) -> Call[CallResult]:
        """Queue a choice among texts by `method`; the chosen one enters the path.

        `site` and `label` as for `generate`. Raises InvalidArgument for choices that are empty,
        not text or given twice, and for an unknown method.
        """
        check_method(method, temperature)
        with self._lock:
            self._check_open()
            selection = Selection.plan(
                self._tokenizer, self._pending, choices, empty_path=not self._has_context()
            )
            ops = self._advance([*self._unsent, *selection.border.prompt_ids])
            prompt = self._path
            call: Call[CallResult] = Call(
                self._client.next_id(),
                lambda event: selection.result(event, prompt),
                self._client.abort_call,
            )
            key = stream_key(self.program.seed, self.branch, self._num_calls, 0)
            ops.append(
                {
                    "op": "score",
                    "ctx": self._ctx,
                    "call": call.call_id,
                    "method": method,
                    "temperature": temperature,
                    "key": key,
                    "site": site,
                    **selection.to_wire(),
                }
            )
            if label is not None:
                ops[-1]["depth"], ops[-1]["remaining"] = label
            self._add(call)
            self._client.submit(ops, [call])
        return call

    def fork(self, n: int) -> list[Handle]:
        """`n` children that continue the path as it is now, calls in flight included.

        Pending text goes to each child and isn't settled here.
        """
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MAX_FORKS:
            raise InvalidArgument(f"n={shown(n)}: must be an int from 1 to {MAX_FORKS}")
        with self._lock:
            self._check_open()
            first = self._num_children
            prefix = f"{self.branch}." if self.branch else ""
            children = [
                Handle(
                    self._client,
                    self._tokenizer,
                    self.program,
                    owner=self._owner,
                    parent=self,
                    branch=f"{prefix}{index}",
                )
                for index in range(first, first + n)
            ]
            self._num_children += n
            fork = {"op": "fork", "ctx": self._ctx, "children": [c._ctx for c in children]}
            self._client.submit([*self._opening(), fork])
        return children

    def join(self, children: Sequence[Handle]) -> None:
        """Say that what follows here waits for these forks of this context, before they close.

        Nothing is computed and nothing waits; a scheduler sees that the slowest of them decides.
        """
        for child in children:
            parent, _, index = child.branch.rpartition(".")
            if child.program is not self.program or not index or parent != self.branch:
                raise InvalidArgument(f"join: {child.branch!r} is no fork of {self.branch!r}")
        with self._lock:
            self._check_open()
            if children:
                op = {"op": "join", "ctx": self._ctx, "children": [c._ctx for c in children]}
                self._client.submit([op])

    def ids(self) -> list[int]:
        """The path's token ids without pending text; waits for its calls and raises their error."""
        with self._lock:
            path, unsent = self._path, list(self._unsent)
        return path.ids() + unsent

    def abort(self) -> None:
        """Ask the engine to end this context's calls now; their callers get `Cancelled`."""
        with self._lock:
            running = list(self._running)
        for call in running:
            call.abort()

    def close(self) -> None:
        """Take no more operations; calls in flight go on. Safe to repeat, and never fails."""
        with self._lock:
            if self._opened and not self._closed:
                self._client.close_context(self._ctx)
            self._closed = True

    def forget(self) -> None:
        """Close it without a word to the engine, for operations that were planned but not sent."""
        with self._lock:
            self._closed = True

    def __del__(self) -> None:
        # No operation can follow; without this the engine would keep the context for ever.
        with contextlib.suppress(AttributeError):
            self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ProgramError("this context is closed; it takes no more text and calls")

    def _has_context(self) -> bool:
        return self._has_ids or bool(self._unsent)

    def _settled(self) -> list[int]:
        """What is unsent and pending, as ids; changes nothing."""
        if not self._pending:
            return list(self._unsent)
        self._check_size()
        ids = self._tokenizer.encode(self._pending, continuation=self._has_context())
        return [*self._unsent, *ids]

    def _check_size(self) -> None:
        """Refuse what is too long however well it tokenises, before it costs any time."""
        limit = self._client.info["max_context"]
        size = sum(len(text) for text, _ in self._pending)
        if size > limit * self._tokenizer.longest_token:
            raise ContextOverflow(
                f"the prompt has {size:,} characters; the context holds {limit:,} tokens at most"
            )

    def _start(self) -> list[int]:
        """What stands in for an empty path, so that there is something to predict from."""
        return [] if self._has_ids else seed_ids(self._tokenizer)

    def _advance(self, ids: list[int]) -> list[Message]:
        """Extend the path by everything that was pending, now `ids`; the operations for it."""
        length, limit = self._path.min_len + len(ids), self._client.info["max_context"]
        if length > limit:
            raise ContextOverflow(
                f"the prompt has {length:,} tokens; the context holds {limit:,} at most"
            )
        ops = self._opening()
        if ids:
            ops.append({"op": "append", "ctx": self._ctx, "ids": ids})
            self._path = self._path.then(ids)
        self._unsent, self._pending, self._has_ids = [], [], True
        return ops

    def _opening(self) -> list[Message]:
        if self._opened:
            return []
        self._opened = True
        program = self.program
        return [
            {
                "op": "open",
                "ctx": self._ctx,
                "program": program.program_id,
                "name": program.name,
                "path": self.branch,
                "salt": program.cache_salt,
                "cache": program.cache,
                "priority": program.priority,
            }
        ]

    def _add(self, call: Call[CallResult]) -> None:
        self._num_calls += 1
        self._path = self._path.then(call)
        self._running.append(call)
        if len(self._running) > self._prune_at:
            self._running = [other for other in self._running if not other.done()]
            self._prune_at = max(64, 2 * len(self._running))
