"""Contexts: those of all live programs, by number; opens, forks, joins and closes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ramet.runtime.room import EngineRoom
from ramet.runtime.schedule.context import Context, ForkGroup, Program


class Contexts:
    """Every context that isn't closed yet, and the programs that they belong to."""

    def __init__(self, room: EngineRoom) -> None:
        self._room = room
        self.live: dict[int, Context] = {}
        """By the number that the client gave them."""
        self.programs: dict[int, Program] = {}
        """Those that have a context, likewise."""
        self._num_programs = 0

    def open(self, op: dict[str, Any]) -> None:
        """Begin a context at the root of its program's namespace, and the program with its
        first."""
        number = op["program"]
        if number not in self.programs:
            self.programs[number] = Program(
                number,
                self._num_programs,
                int(op.get("priority", 0)),
                op.get("salt"),
                bool(op.get("cache", True)),
                str(op.get("name", "")),
            )
            self._num_programs += 1
        program = self.programs[number]
        node = self._room.tree.root(program.salt, private=not program.cache)
        self._add(Context(op["ctx"], program, str(op.get("path", "")), node))

    def of_program(self, number: int) -> list[Context]:
        """A program's contexts; an unknown program has none."""
        program = self.programs.get(number)
        return [self.live[c] for c in program.contexts] if program else []

    def announce(self, parent: Context, children: Sequence[int]) -> None:
        """Children exist from the moment the fork is queued; they start when it runs."""
        group = ForkGroup(parent, list(children))
        for index, child in enumerate(children):
            path = f"{parent.path}.{index}".lstrip(".")
            context = Context(child, parent.program, path, group=group, index=index)
            context.report()
            self._add(context)

    def fork(self, parent: Context, children: Sequence[int]) -> list[Context]:
        """Let those children that aren't closed yet start where their parent stands."""
        found = [self.live[c] for c in children if c in self.live]
        for child in found:
            child.failed = parent.failed
            if parent.node is not None:
                child.node = self._room.tree.fork(parent.node)
        return found

    def join(self, children: Sequence[int]) -> None:
        """The parent of these children waits for them no longer."""
        for child in children:
            context = self.live.get(child)
            if context is not None and context.group is not None:
                context.group.joined = True

    def close(self, context: Context) -> None:
        """End a context, and its program with its last."""
        room = self._room
        if context.node is not None:
            if len(context.program.contexts) == 1:
                room.forget(context.program, context.node)
            # Nobody comes back to the end of a fork that is over.
            room.tree.release(context.node, finished=context.group is not None)
        context.leave()
        del self.live[context.id]
        context.program.contexts.discard(context.id)
        if not context.program.contexts:
            self.programs.pop(context.program.id, None)

    def _add(self, context: Context) -> None:
        self.live[context.id] = context
        context.program.contexts.add(context.id)
