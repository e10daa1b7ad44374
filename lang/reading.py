"""Reading: what can be asked of a branch, and how long the answer has to be waited for.

A reader outside of the body waits for what the body has not written yet; the body itself, and a
fork, only for calls. `ProgramState` reads through it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from ramet.lang.errors import ProgramError
from ramet.lang.instance import Instance, await_end
from ramet.lang.values import CallValue, Value, achunks_of, chunks_of, text_of
from ramet.runtime.client.call import Chunk
from ramet.runtime.request import shown

if TYPE_CHECKING:
    from ramet.lang.branch import Branch


class Reading:
    """The reading side of one branch."""

    def __init__(self, branch: Branch) -> None:
        self._branch = branch

    def note_read(self, name: str) -> None:
        """Record that the body itself takes a value out."""
        instance = self._branch.instance
        if not instance.body_over and Instance.current() is instance:
            instance.recording.read(self._branch.number, name)

    def find(self, name: str) -> list[Value]:
        """All values of a variable, at least one; waits while the body may still set it.

        Raises the program's failure, or ProgramError naming the variables that there are.
        """
        if not self.has(name) and self._branch.is_root and self._branch.instance.body_over:
            # What is still going on may be why it is missing.
            self._branch.instance.wait_finished()
        return self._found(name)

    async def afind(self, name: str) -> list[Value]:
        """`find` without blocking the event loop."""
        if self._branch.is_root:
            await self._branch.instance.await_for(lambda: name in self._branch.variables)
            if name not in self._branch.variables and self._branch.instance.body_over:
                await await_end(self._branch.instance)
        return self._found(name)

    def _found(self, name: str) -> list[Value]:
        if name not in self._branch.variables:
            if self._branch.is_root:
                self._branch.instance.raise_failure()
            known = ", ".join(sorted(self._branch.variables)) or "none"
            hint = "; those of a fork come to its parent with join()" if self._branch.forked else ""
            raise ProgramError(
                f"there is no variable {shown(name)}; the variables are: {known}{hint}"
            )
        return self._branch.variables[name]

    def has(self, name: str) -> bool:
        """Whether there is such a variable; waits while the body may still set it."""
        if self._branch.is_root:
            self._branch.instance.wait_for(lambda: name in self._branch.variables)
        return name in self._branch.variables

    def complete(self) -> None:
        """Wait until no text can come that the caller doesn't write itself, and raise failures."""
        if self._branch.is_root:
            self._branch.instance.wait_for(lambda: False)
            self._branch.instance.raise_failure()

    async def acomplete(self) -> None:
        """`complete` without blocking the event loop."""
        if self._branch.is_root:
            await self._branch.instance.await_for(lambda: False)
            self._branch.instance.raise_failure()

    def text(self) -> str:
        """The whole text, waiting for what it needs."""
        self.complete()
        return text_of(list(self._branch.segments))

    async def ready(self) -> None:
        """Wait, without blocking the event loop, until `text` and `messages` wait for nothing."""
        await self.acomplete()
        for part in list(self._branch.segments):
            if isinstance(part, CallValue):
                await part.ready()

    def messages(self) -> list[dict[str, Any]]:
        """The chat messages, waiting for what they need."""
        self.complete()
        return self._branch.conversation.messages()

    def sync(self) -> None:
        """Wait until everything appended so far is done, and raise the first error."""
        self.complete()
        for call in self._branch.calls():
            call.read()

    def error(self) -> BaseException | None:
        """The first error of the program or its calls, after waiting for them; None without one."""
        instance = self._branch.instance
        self.check_may_wait()
        try:
            self.sync()
        except Exception as error:
            return error
        if self._branch.is_root and instance.body_over:
            instance.wait_finished()
        return instance.deliver() if self._branch.is_root else None

    def check_may_wait(self) -> None:
        """Raise ProgramError if `sync` would block the event loop of an async body."""
        if not self._branch.instance.inside or any(
            not call.done() for call in self._branch.calls()
        ):
            self._branch.instance.check_may_block()

    def stream(self) -> Iterator[str]:
        """The text as it comes, to the end of the body; raises the program's failure then."""
        position = 0
        instance = self._branch.instance
        while True:
            if self._branch.is_root:
                instance.wait_for(lambda: len(self._branch.segments) > position)  # noqa: B023
            if len(self._branch.segments) <= position:
                break
            yield from chunks_of(self._branch.segments[position])
            position += 1
        if self._branch.is_root and instance.body_over:
            instance.wait_finished()
            instance.raise_failure()

    async def astream(self) -> AsyncIterator[tuple[str, Chunk | None]]:
        """The text as it comes, without blocking the event loop, with the chunks of its calls."""
        position = 0
        instance = self._branch.instance
        while True:
            if self._branch.is_root:
                await instance.await_for(lambda: len(self._branch.segments) > position)  # noqa: B023
            if len(self._branch.segments) <= position:
                break
            async for piece in achunks_of(self._branch.segments[position]):
                yield piece
            position += 1
        if self._branch.is_root and instance.body_over:
            await await_end(instance)
            instance.raise_failure()
