"""`ProgramState`: what a program body writes to and anybody reads from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Self

from ramet.lang.api import check_name, role_block
from ramet.lang.branch import Branch
from ramet.lang.expr import RoleBegin, RoleEnd
from ramet.lang.group import ProgramStateGroup
from ramet.lang.values import GivenValue, Value


class ProgramState:
    """The state of one program instance, or of one of its forks: text, variables, messages.

    Writing returns at once, reading waits. A reader outside the body waits for what the body has
    not written yet; the body itself gets a ProgramError for a name it never set.
    """

    def __init__(self, branch: Branch) -> None:
        self._branch = branch
        self.ret_value: Any = None
        """What the body returned."""

    def __iadd__(self, value: object) -> Self:
        self._branch.append(value)
        return self

    def __repr__(self) -> str:
        branch = self._branch
        kind = "state" if branch.is_root else "branch"
        return f"<{kind} of {branch.instance.name}, variables: {', '.join(branch.variables)}>"

    def __getitem__(self, name: str) -> Any:
        return self._last(name).read()

    def __setitem__(self, name: str, value: object) -> None:
        self.set_var(name, value)

    def __contains__(self, name: str) -> bool:
        return self._branch.has(name)

    def get_var(self, name: str) -> Any:
        """The value of a variable: `s[name]`."""
        return self[name]

    def set_var(self, name: str, value: object) -> None:
        """Set a variable: `s[name] = value`."""
        check_name(name)
        self._branch.assign(name, GivenValue(value))

    def value(self, name: str) -> Any:
        """The typed value of a variable; of free text, the text."""
        return self._last(name).typed()

    def history(self, name: str) -> list[Any]:
        """All values that a variable has had, in order."""
        return [value.read() for value in list(self._branch.find(name))]

    def meta(self, name: str) -> Any:
        """What the engine says of the call that made a variable: token ids, counts, the reason of
        its end, logprobs if asked for. A list of dicts if it has n samples."""
        return self._last(name).meta()

    def get_meta_info(self, name: str) -> Any:
        """`meta` under SGLang's name."""
        return self.meta(name)

    def text(self) -> str:
        """The whole text, template pieces included."""
        return self._branch.text()

    def messages(self) -> list[dict[str, Any]]:
        """The chat messages: a list of `{"role", "content"}`."""
        return self._branch.messages()

    def sync(self) -> None:
        """Wait until everything appended so far is done; raises the first error."""
        self._branch.complete()
        for call in self._branch.calls():
            call.read()

    def error(self) -> BaseException | None:
        """The first error of the program or its calls, after waiting for them; None if there is
        none. An error that was looked at isn't raised again at the end of the run."""
        try:
            self.sync()
        except Exception as error:
            return error
        if self._branch.is_root and self._branch.instance.body_over:
            self._branch.instance.wait_finished()
        return self._branch.instance.deliver() if self._branch.is_root else None

    def cancel(self) -> None:
        """Abort what isn't done: of the whole program, or of this branch if it is a fork."""
        self._branch.cancel("cancelled")

    def fork(self, n: int = 1) -> ProgramStateGroup:
        """`n` branches that share everything so far."""
        return ProgramStateGroup([type(self)(b) for b in self._branch.fork(n)], self)

    @contextlib.contextmanager
    def copy(self) -> Iterator[ProgramState]:
        """One branch for the length of a `with` block, joined at its end."""
        group = self.fork(1)
        try:
            yield group[0]
        except BaseException:
            group[0]._branch.end()
            raise
        group.join()

    @contextlib.contextmanager
    def var_scope(self, name: str) -> Iterator[None]:
        """The text that is appended in a `with` block becomes a variable."""
        check_name(name)
        start = len(self._branch.segments)
        yield
        self._branch.assign_span(name, start)

    def system(self, content: object = None) -> contextlib.AbstractContextManager[None]:
        """`with s.system():` puts what is appended into a system message; so does `content`."""
        return self._role("system", content)

    def user(self, content: object = None) -> contextlib.AbstractContextManager[None]:
        """`with s.user():` puts what is appended into a user message; so does `content`."""
        return self._role("user", content)

    def assistant(self, content: object = None) -> contextlib.AbstractContextManager[None]:
        """`with s.assistant():` puts what is appended into an assistant message; so does
        `content`."""
        return self._role("assistant", content)

    def text_iter(self, name: str | None = None) -> Iterator[str]:
        """The text in chunks as it comes, or one variable's; no chunk is empty.

        The chunks join to the whole text, or to the value that the variable has when the iteration
        starts (the first one it gets, if it has none). Closing the iterator before its end aborts
        the program (the branch, if the state is a fork).
        """
        source = self._branch.stream() if name is None else self._variable_chunks(name)
        try:
            yield from (chunk for chunk in source if chunk)
        except BaseException:  # Closed, or interrupted; after a failure there is nothing to end.
            self._branch.cancel("its stream was closed")
            raise

    def _variable_chunks(self, name: str) -> Iterator[str]:
        yield from self._last(name).chunks()

    def _last(self, name: str) -> Value:
        return self._branch.find(name)[-1]

    def _role(self, role: str, content: object) -> contextlib.AbstractContextManager[None]:
        if content is not None:
            self._branch.append(role_block(role, content))
            return contextlib.nullcontext()
        return self._message(role)

    @contextlib.contextmanager
    def _message(self, role: str) -> Iterator[None]:
        self._branch.append(RoleBegin(role))
        yield
        self._branch.append(RoleEnd(role))
