"""One context of a program as it is written: its text, variables and messages, and its handle.

A branch turns expressions into operations on its handle and keeps a future for each value.
`ProgramState` is what users see of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

from ramet.lang.backends.protocol import Handle, Piece
from ramet.lang.conversation import Conversation
from ramet.lang.errors import Cancelled, ProgramError
from ramet.lang.expr import Expr, Gen, RoleBegin, RoleEnd, Select, Text, nodes_of
from ramet.lang.instance import Instance
from ramet.lang.session import session
from ramet.lang.values import (
    CallValue,
    GatheredValue,
    Segment,
    SpanValue,
    Value,
    chunks_of,
    text_of,
)
from ramet.runtime.request import SamplingParams

GATHER, APPEND = "gather_variable", "concate_and_append"
"""The modes of `join`."""


class Branch:
    """A context: the root of an instance, or a fork. Its methods may be used from any thread."""

    def __init__(self, instance: Instance, handle: Handle, parent: Branch | None = None) -> None:
        self.instance = instance
        """The run that it belongs to."""
        self.is_root = parent is None
        """Whether it is the one that the body was given."""
        self.segments: list[Segment] = []
        """The text so far."""
        self.variables: dict[str, list[Value]] = {}
        """All values of each name, in order."""
        self._handle = handle
        self._order = threading.RLock()
        self._ended: str | None = None
        self._forked = False
        if parent is None:
            tokenizer = instance.backend.tokenizer
            bos = tokenizer.bos_id
            self.conversation = Conversation(
                session.chat(instance.backend), "" if bos is None else tokenizer.special_text(bos)
            )
        else:
            self.segments += parent.segments
            self.variables = {name: list(values) for name, values in parent.variables.items()}
            self.conversation = parent.conversation.copy()
        self.start = len(self.segments)
        """Where its own text begins, after its parent's."""
        self.inherited = frozenset(self.variables)
        """The names that its parent had."""
        self._mark = self.conversation.mark()
        instance.add_branch(self)

    def append(self, value: object) -> None:
        """Append an expression; waits for nothing. Nothing is sent if an argument is wrong."""
        steps = [(node, self._params(node)) for node in nodes_of(value)]
        with self._order:
            self._check_open()
            for node, params in steps:
                self._apply(node, params)

    def fork(self, n: int) -> list[Branch]:
        """`n` branches that go on from here."""
        with self._order:
            self._check_open()
            self._forked = True
            return [Branch(self.instance, handle, self) for handle in self._handle.fork(n)]

    def join(self, branches: Sequence[Branch], mode: str) -> None:
        """Take over from forks: their new variables as lists, or their text after waiting for it.

        Raises ProgramError if a fork closed its parent's message or left one open.
        """
        if mode == APPEND:
            for branch in branches:
                self._append_branch(branch)
            return
        names = dict.fromkeys(n for b in branches for n in b.variables if n not in b.inherited)
        for name in names:
            values = [b.variables[name][-1] for b in branches if name in b.variables]
            self.assign(name, GatheredValue(values))

    def _append_branch(self, branch: Branch) -> None:
        with self._order:
            self._check_open()
            own = branch.segments[branch.start :]
            theirs, num_turns = branch.conversation, branch._mark[0]
            if len(theirs.turns) == num_turns and theirs.role is None:
                self._apply(Text(text_of(own)), None)
            elif (content := theirs.content_since(branch._mark)) is not None:
                self._apply(Text(content), None)
            elif self.conversation.role is None and theirs.role is None:
                self._emit(
                    [
                        (part.text(), "content") if isinstance(part, CallValue) else part
                        for part in own
                    ]
                )
                self.conversation.turns += theirs.turns[num_turns:]
            else:
                raise ProgramError(
                    "cannot append a branch that closed its parent's message or left one open"
                )

    def assign(self, name: str, value: Value) -> None:
        """Give a variable one more value."""
        with self.instance.changed:
            self.variables.setdefault(name, []).append(value)
            self.instance.changed.notify_all()

    def assign_span(self, name: str, start: int) -> None:
        """Make the text from segment `start` on a variable."""
        self.assign(name, SpanValue(self.segments[start:]))

    def find(self, name: str) -> list[Value]:
        """All values of a variable, at least one; waits while the body may still set it.

        Raises the program's failure, or ProgramError naming the variables that there are.
        """
        if not self.has(name):
            if self.is_root:
                self.instance.raise_failure()
            known = ", ".join(sorted(self.variables)) or "none"
            hint = "; those of a fork come to its parent with join()" if self._forked else ""
            raise ProgramError(f"there is no variable {name!r}; the variables are: {known}{hint}")
        return self.variables[name]

    def has(self, name: str) -> bool:
        """Whether there is such a variable; waits while the body may still set it."""
        if self.is_root:
            self.instance.wait_for(lambda: name in self.variables)
        return name in self.variables

    def complete(self) -> None:
        """Wait until no text can come that the caller doesn't write itself, and raise failures."""
        if self.is_root:
            self.instance.wait_for(lambda: False)
            self.instance.raise_failure()

    def text(self) -> str:
        """The whole text, waiting for what it needs."""
        self.complete()
        return text_of(list(self.segments))

    def messages(self) -> list[dict[str, Any]]:
        """The chat messages, waiting for what they need."""
        self.complete()
        return self.conversation.messages()

    def calls(self) -> list[CallValue]:
        """The calls in its own text."""
        return [part for part in self.segments[self.start :] if isinstance(part, CallValue)]

    def stream(self) -> Iterator[str]:
        """The text as it comes, to the end of the body; raises the program's failure then."""
        position = 0
        instance = self.instance
        while True:
            if self.is_root:
                instance.wait_for(lambda: len(self.segments) > position)  # noqa: B023
            if len(self.segments) <= position:
                break
            yield from chunks_of(self.segments[position])
            position += 1
        if self.is_root and instance.body_over:
            instance.wait_finished()
            instance.raise_failure()

    def end(self, why: str = "has ended") -> None:
        """Take no more text and calls; what is queued goes on."""
        with self._order:
            if self._ended is None:
                self._ended = why
                self._handle.close()
                self.instance.drop_branch(self)

    def cancel(self, why: str) -> None:
        """Abort its calls: for the root the whole program, for a fork its own."""
        if self.is_root:
            self.instance.fail(Cancelled(f"{self.instance.name}: {why}"))
            return
        for call in self.calls():
            call.delivered = True
            call.abort()
        self.end("was cancelled")

    def _check_open(self) -> None:
        if self._ended is None:
            self.instance.raise_failure()
            return
        raise ProgramError(
            f"the {'program' if self.is_root else 'branch'} {self._ended}: it takes no more text "
            "and calls"
        )

    def _params(self, node: Expr) -> SamplingParams | None:
        if not isinstance(node, Gen):
            return None
        if node.params is not None and not self.instance.sampling:
            return node.params
        return SamplingParams.build({**self.instance.sampling, **node.fields})

    def _apply(self, node: Expr, params: SamplingParams | None) -> None:
        match node:
            case Text():
                self._emit(self.conversation.literal(node.text, node.special))
            case RoleBegin():
                self._emit(self.conversation.begin(node.role, not self.segments))
            case RoleEnd():
                self._emit(self.conversation.end(node.role))
            case Gen() | Select():
                self._call(node, params)
            case _:
                raise ProgramError(f"cannot append {node!r}")

    def _call(self, node: Gen | Select, params: SamplingParams | None) -> None:
        self._emit(self.conversation.before_call())
        instance = self.instance
        if isinstance(node, Gen):
            assert params is not None
            call = self._handle.generate(params, stream=instance.streams, site=node.site)
            value = CallValue(call, instance, params.n, node.logprob_texts)
        else:
            call = self._handle.select(
                node.choices, str(node.method), temperature=node.temperature, site=node.site
            )
            value = CallValue(call, instance)
        instance.track(value, call.add_done_callback)
        self.conversation.add_call(value)
        with instance.changed:
            self.segments.append(value)
            if node.name is not None:
                self.variables.setdefault(node.name, []).append(value)
            instance.changed.notify_all()

    def _emit(self, pieces: list[Piece]) -> None:
        pieces = [piece for piece in pieces if piece[0]]
        if pieces:
            self._handle.append(pieces)
            with self.instance.changed:
                self.segments += pieces
                self.instance.changed.notify_all()
