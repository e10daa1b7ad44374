"""One context of a program as it is written: its text, variables and messages, and its handle.

A branch turns expressions into operations on its handle and keeps a future for each value.
`ProgramState` is what users see of it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ramet.lang.backends.protocol import Handle, Piece
from ramet.lang.conversation import Conversation
from ramet.lang.errors import Cancelled, ProgramError
from ramet.lang.expr import Expr, Gen, RoleBegin, RoleEnd, Select, Text, nodes_of
from ramet.lang.instance import Instance
from ramet.lang.joins import inheritance, is_new, new_names
from ramet.lang.reading import Reading
from ramet.lang.reasoning import variables_of
from ramet.lang.session import session
from ramet.lang.values import (
    CallValue,
    GatheredValue,
    GivenValue,
    Segment,
    SpanValue,
    Value,
    text_of,
)
from ramet.runtime.request import SamplingParams

GATHER, APPEND = "gather_variable", "concate_and_append"
"""The modes of `join`."""


class Branch:
    """A context: the root of an instance, or a fork. Its methods may be used from any thread."""

    def __init__(
        self,
        instance: Instance,
        handle: Handle,
        parent: Branch | None = None,
        number: int = 0,
        path: str = "",
    ) -> None:
        self.instance = instance
        """The run that it belongs to."""
        self.number = number
        """Its number in the run's graph."""
        self.path = path
        """Its place among the run's forks: "" or "0.3"."""
        self._num_children = 0
        self.is_root = parent is None
        """Whether it is the one that the body was given."""
        self.segments: list[Segment] = []
        """The text so far."""
        self.variables: dict[str, list[Value]] = {}
        """All values of each name, in order."""
        self._handle = handle
        self._order = threading.RLock()
        self._ended: str | None = None
        self.forked = False
        """Whether it has been forked."""
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
        self.inherited = inheritance(self.variables)
        """The names that its parent had, and what a join must know of them."""
        self._mark = self.conversation.mark()
        self.reading = Reading(self)
        """What can be asked of it."""
        instance.branches[self] = None

    def append(self, value: object) -> None:
        """Append an expression; waits for nothing. Nothing is sent if an argument is wrong."""
        steps = [(node, self.params(node)) for node in nodes_of(value)]
        with self._order:
            self._check_open()
            for node, params in steps:
                self.instance.recording.append(self.number, node)
                self._apply(node, params)

    def apply(self, node: Expr) -> None:
        """Append a literal that was checked and recorded before."""
        with self._order:
            self._check_open()
            self._apply(node, None)

    def call(self, node: Gen | Select, label: tuple[int, int] | None = None) -> CallValue:
        """Append a call that was checked and recorded before."""
        params = self.params(node)
        with self._order:
            self._check_open()
            return self._call(node, params, label)

    def fork(self, n: int) -> list[Branch]:
        """`n` branches that go on from here."""
        with self._order:
            self._check_open()
            self.forked = True
            handles = self._handle.fork(n)
            numbers = self.instance.recording.fork(self.number, n)
            first, self._num_children = self._num_children, self._num_children + n
            prefix = f"{self.path}." if self.path else ""
            return [
                Branch(self.instance, handle, self, number, f"{prefix}{first + index}")
                for index, (handle, number) in enumerate(zip(handles, numbers, strict=True))
            ]

    def join(self, branches: Sequence[Branch], mode: str) -> None:
        """Take over from forks: their new variables as lists, or their text after waiting for it.

        Raises ProgramError if a fork closed its parent's message or left one open.
        """
        gathered = () if mode == APPEND else tuple(new_names(branches))
        numbers = [branch.number for branch in branches]
        self.instance.recording.join(self.number, numbers, mode, gathered)
        self.expect(branches)
        if mode == APPEND:
            for branch in branches:
                self._append_branch(branch)
        for name in gathered:
            values = [b.variables[name][-1] for b in branches if is_new(b, name)]
            self.put(name, GatheredValue(values))

    def expect(self, branches: Sequence[Branch]) -> None:
        """Tell the backend that what follows waits for forks, which are still open."""
        with self._order:
            if self._ended is None:
                handles = [branch._handle for branch in branches if branch._ended is None]
                self._handle.join(list(dict.fromkeys(handles)))

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
        """Give a variable one more value, as a step of the program."""
        given = value.read() if isinstance(value, GivenValue) else None
        self.instance.recording.assign(self.number, name, given)
        self.put(name, value)

    def put(self, name: str, value: Value) -> None:
        """Give a variable one more value."""
        self.variables.setdefault(name, []).append(value)
        if self.instance.watched:
            self.instance.changed.announce()

    def start_span(self, name: str) -> int:
        """Where the text of a variable-to-be begins, for `assign_span`."""
        self.instance.recording.span(self.number, name, "begin")
        return len(self.segments)

    def assign_span(self, name: str, start: int) -> Value:
        """Make the text from segment `start` on a variable."""
        self.instance.recording.span(self.number, name, "end")
        value = SpanValue(self.segments[start:])
        self.put(name, value)
        return value

    def calls(self) -> list[CallValue]:
        """The calls in its own text."""
        return [part for part in self.segments[self.start :] if isinstance(part, CallValue)]

    def end(self, why: str = "has ended") -> None:
        """Take no more text and calls; what is queued goes on."""
        with self._order:
            if self._ended is None:
                self._ended = why
                self._handle.close()
                self.instance.branches.pop(self, None)

    def cancel(self, why: str) -> None:
        """Abort its calls: for the root the whole program, for a fork its own."""
        if self.is_root:
            self.instance.fail(Cancelled(f"{self.instance.name}: {why}"))
            self.instance.deliver()  # Whoever cancelled it knows.
            return
        for call in self.calls():
            call.delivered = True
            call.abort()
        self.end("was cancelled")

    def _check_open(self) -> None:
        if self._ended is None:
            if self.instance.failure is not None:  # Which this doesn't tell to anybody outside.
                raise self.instance.failure
            return
        raise ProgramError(
            f"the {'program' if self.is_root else 'branch'} {self._ended}: it takes no more text "
            "and calls"
        )

    def params(self, node: Expr) -> SamplingParams | None:
        """The parameters of a generation, the run's own included; None for anything else."""
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

    def _call(
        self,
        node: Gen | Select,
        params: SamplingParams | None,
        label: tuple[int, int] | None = None,
    ) -> CallValue:
        self._emit(self.conversation.before_call())
        instance = self.instance
        if isinstance(node, Gen):
            assert params is not None
            call = self._handle.generate(
                params, stream=instance.streams, site=node.site, label=label
            )
            texts = node.logprob_texts and instance.logprob_texts
            value = CallValue(call, instance, params.n, texts, node.dtype)
        else:
            call = self._handle.select(
                node.choices,
                str(node.method),
                temperature=node.temperature,
                site=node.site,
                label=label,
            )
            value = CallValue(call, instance)
        instance.track(value, call, node, self.path)
        self.conversation.add_call(value)
        self.segments.append(value)
        for name, seen in variables_of(node, value):
            self.variables.setdefault(name, []).append(seen)
        if instance.watched:
            instance.changed.announce()
        return value

    def _emit(self, pieces: list[Piece]) -> None:
        if pieces and (pieces := [piece for piece in pieces if piece[0]]):
            self._handle.append(pieces)
            self.segments += pieces
            if self.instance.watched:
                self.instance.changed.announce()
