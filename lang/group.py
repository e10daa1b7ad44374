"""`ProgramStateGroup`: the branches of one fork."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from ramet.lang.branch import APPEND, GATHER
from ramet.lang.errors import InvalidArgument, ProgramError

if TYPE_CHECKING:
    from ramet.lang.state import ProgramState


class ProgramStateGroup:
    """Branches in order; `fs += x` appends the same to each, a list's items one to each, or
    `x(i)` to the i-th."""

    def __init__(self, states: list[ProgramState], parent: ProgramState) -> None:
        self.states = states
        """The branches."""
        self._parent = parent
        self._joined = False

    def __len__(self) -> int:
        return len(self.states)

    def __iter__(self) -> Iterator[ProgramState]:
        return iter(self.states)

    def __getitem__(self, index: int) -> ProgramState:
        return self.states[index]

    def __setitem__(self, index: int, state: ProgramState) -> None:
        """For `fs[i] += …`, which assigns the branch back; nothing else may be put there."""
        if self.states[index] is not state:
            raise ProgramError("a fork's branches cannot be replaced")

    def __iadd__(self, value: object) -> Self:
        if isinstance(value, (list, tuple)):
            if len(value) != len(self.states):
                raise InvalidArgument(
                    f"a list of {len(value)} cannot be appended to {len(self.states)} branches"
                )
            items = list(value)
        elif callable(value):
            items = [value(index) for index in range(len(self.states))]
        else:
            items = [value] * len(self.states)
        for state, item in zip(self.states, items, strict=True):
            state += item
        return self

    def join(self, mode: str = GATHER) -> None:
        """End the branches and bring what they made to their parent.

        "gather_variable": each variable that is new in the branches becomes a list in the parent,
        in their order, without waiting; their text is dropped. A name that an earlier join brought
        and that the branches set again counts as new. "concate_and_append": their text is appended
        to the parent in order, after waiting for it; variables are dropped.

        Raises InvalidArgument for another mode, ProgramError for a second join. Inside an async
        body the second mode is `await forks.ajoin(mode)`.
        """
        self._check(mode)
        if mode == APPEND:
            for state in self.states:
                state._branch.reading.check_may_wait()
        self._joined = True
        branches = [state._branch for state in self.states]
        self._parent._branch.join(branches, mode)
        for branch in branches:
            branch.end("has been joined")

    async def ajoin(self, mode: str = GATHER) -> None:
        """`join` in an async body: waits for the branches without blocking the event loop."""
        self._check(mode)
        if mode == APPEND:
            for state in self.states:
                await state._branch.reading.ready()
        self.join(mode)

    def _check(self, mode: str) -> None:
        if mode not in (GATHER, APPEND):
            raise InvalidArgument(f"mode={mode!r}: must be {GATHER!r} or {APPEND!r}")
        if self._joined:
            raise ProgramError("these branches have been joined already")
