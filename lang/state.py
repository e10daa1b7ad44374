"""`ProgramState`: what a program body writes to and anybody reads from."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self

from ramet.lang.api import check_name, role_block
from ramet.lang.branch import Branch
from ramet.lang.errors import InvalidArgument
from ramet.lang.explain import explain, record_of
from ramet.lang.expr import RoleBegin, RoleEnd
from ramet.lang.group import ProgramStateGroup
from ramet.lang.streams import TextStream
from ramet.lang.values import GivenValue, Value
from ramet.runtime.client.call import Chunk
from ramet.runtime.graph import Graph


class ProgramState:
    """The state of one program instance, or of one of its forks: text, variables, messages.

    Writing returns at once, reading waits. A reader outside the body waits for what the body has
    not written yet; the body itself gets a ProgramError for a name it never set.
    """

    def __init__(self, branch: Branch) -> None:
        self._branch = branch
        self._returned: Any = None

    def __iadd__(self, value: object) -> Self:
        self._branch.append(value)
        return self

    def __str__(self) -> str:
        """The text, as SGLang shows it: `ProgramState(…)`; waits for it."""
        return f"ProgramState({self.text()})"

    def __repr__(self) -> str:
        branch = self._branch
        kind = "state" if branch.is_root else "branch"
        return f"<{kind} of {branch.instance.name}, variables: {', '.join(branch.variables)}>"

    def __getitem__(self, name: str) -> Any:
        value = self._last(name)
        self._branch.reading.note_read(name)
        return value.read()

    def __setitem__(self, name: str, value: object) -> None:
        self.set_var(name, value)

    def __contains__(self, name: str) -> bool:
        return self._branch.reading.has(name)

    @property
    def ret_value(self) -> Any:
        """What the body returned, waiting for it; raises what it raised."""
        self._branch.reading.complete()
        return self._returned

    @ret_value.setter
    def ret_value(self, value: object) -> None:
        self._returned = value

    def get_var(self, name: str) -> Any:
        """The value of a variable: `s[name]`."""
        return self[name]

    def set_var(self, name: str, value: object) -> None:
        """Set a variable: `s[name] = value`."""
        check_name(name)
        self._branch.assign(name, GivenValue(value))

    def value(self, name: str) -> Any:
        """The typed value of a variable (`help(rm.gen)` says of what type); of free text, the text.
        Raises ProgramError with the text for one that is cut short or that validators refuse."""
        return self._last(name).typed()

    async def get(self, name: str) -> Any:
        """`s[name]` in an async body: `await s.get(name)`. Once it is there, `s[name]`,
        `s.value(name)` and `s.meta(name)` wait for nothing."""
        value = (await self._branch.reading.afind(name))[-1]
        self._branch.reading.note_read(name)
        await value.ready()
        return value.read()

    async def aget_text(self) -> str:
        """`s.text()` in an async body."""
        await self._branch.reading.ready()
        return self._branch.reading.text()

    async def wait(self) -> None:
        """`s.sync()` in an async body."""
        await self._branch.reading.ready()
        self.sync()

    def history(self, name: str) -> list[Any]:
        """All values that a variable has had, in order."""
        return [value.read() for value in list(self._branch.reading.find(name))]

    def meta(self, name: str) -> Any:
        """What the engine says of the call that made a variable: token ids, counts, the reason of
        its end, logprobs if asked for. A list of dicts if it has n samples."""
        return self._last(name).meta()

    def get_meta_info(self, name: str) -> Any:
        """`meta` under SGLang's name."""
        return self.meta(name)

    def text(self) -> str:
        """The whole text, template pieces included."""
        return self._branch.reading.text()

    def messages(self) -> list[dict[str, Any]]:
        """The chat messages: a list of `{"role", "content"}`."""
        return self._branch.reading.messages()

    def sync(self) -> None:
        """Wait until everything appended so far is done; raises the first error."""
        self._branch.reading.sync()

    def graph(self) -> Graph:
        """The request graph of what the program has done so far: its steps in the order in which
        they were written."""
        instance = self._branch.instance
        return instance.recording.graph(instance.name)

    def explain(self) -> str:
        """What each call cost so far, one paragraph per call of the whole program: where its
        prompt's cached part came from, and on a miss the first token that differs from the nearest
        cached path, or what had evicted it. A reader outside of the body waits for all calls."""
        instance = self._branch.instance
        if not instance.inside:
            instance.wait_finished()
        tokenizer = instance.backend.tokenizer
        return explain([record_of(*call, tokenizer) for call in list(instance.calls)])

    def error(self) -> BaseException | None:
        """The first error of the program or its calls, after waiting for them; None if there is
        none. An error that was looked at isn't raised again at the end of the run."""
        return self._branch.reading.error()

    def cancel(self) -> None:
        """Abort what isn't done: of the whole program, or of this branch if it is a fork."""
        self._branch.cancel("cancelled")

    def fork(self, n: int = 1, *, size: int | None = None) -> ProgramStateGroup:
        """`n` branches that share everything so far; `size` is SGLang's word for `n`."""
        n = n if size is None else size
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
        start = self._branch.start_span(name)
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

    def text_iter(self, name: str | None = None, *, var_name: str | None = None) -> Iterator[str]:
        """The text in chunks as it comes, or one variable's; no chunk is empty.

        The chunks join to the whole text, or to the value that the variable has when the iteration
        starts (the first one it gets, if it has none). Closing the iterator before its end aborts
        the program (the branch, if the state is a fork). `var_name` is SGLang's word for `name`.
        """
        name = _either(name, var_name)
        source = self._branch.reading.stream() if name is None else self._variable_chunks(name)
        return TextStream(source, self._branch.cancel)

    async def text_async_iter(
        self,
        name: str | None = None,
        return_meta_data: bool = False,
        *,
        var_name: str | None = None,
    ) -> AsyncIterator[Any]:
        """`text_iter` for `async for`, without blocking the event loop.

        With `return_meta_data` each item is (text, meta): `output_token_ids` and, if asked for,
        `output_token_logprobs` of the chunk, `completion_tokens` and
        `output_token_logprobs_length` so far in its call; {} for literal text.
        """
        name = _either(name, var_name)
        if name is None:
            source = self._branch.reading.astream()
        else:
            source = (await self._branch.reading.afind(name))[-1].achunks()
        try:
            async for text, chunk in source:
                if text:
                    yield (text, _chunk_meta(chunk)) if return_meta_data else text
        except Exception:  # The program's own, or a read that may not wait: it may go on.
            raise
        except BaseException:  # Closed, or interrupted.
            self._branch.cancel("its stream was closed")
            raise

    def _variable_chunks(self, name: str) -> Iterator[str]:
        yield from self._last(name).chunks()

    def _last(self, name: str) -> Value:
        return self._branch.reading.find(name)[-1]

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


def _either(name: str | None, var_name: str | None) -> str | None:
    if name is not None and var_name is not None:
        raise InvalidArgument(f"var_name={var_name!r}: is another word for name, which is given")
    return var_name if name is None else name


def _chunk_meta(chunk: Chunk | None) -> dict[str, Any]:
    """What a streamed chunk says besides its text; totals count from the call's beginning."""
    if chunk is None:
        return {}
    meta = {"output_token_ids": chunk.ids, "completion_tokens": chunk.num_tokens}
    if chunk.logprobs is not None:
        meta["output_token_logprobs"] = chunk.logprobs
        meta["output_token_logprobs_length"] = chunk.num_tokens
    return meta
