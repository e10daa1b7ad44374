"""`text_async_iter`: what it gives, with which metadata, and what closing it does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from fake_backend import FakeBackend
from scripted_runtime import idle
from stub_server import eventually
from watchdog import watchdog

import ramet.lang as rm
from ramet.runtime.runtime import Runtime

pytestmark = pytest.mark.timeout(120)
State = rm.ProgramState


@pytest.fixture
def tiny() -> Iterator[Runtime]:
    with Runtime("tiny", pool_tokens=16384, isolation="thread", seed=1) as runtime:
        rm.set_default_backend(runtime)
        yield runtime
        rm.set_default_backend(None)
        eventually(lambda: not runtime.stats()["contexts"])
        idle(runtime)


async def collect(stream: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in stream]


def write(s: State) -> None:
    s += "The lake" + rm.gen("a", max_tokens=12, ignore_eos=True, return_logprob=True)
    s += " and " + rm.gen("b", max_tokens=6, ignore_eos=True)


@rm.function
async def awriting(s: State) -> None:
    write(s)
    await s.get("b")
    s += "."


@rm.function
def written_out(s: State) -> None:
    write(s)
    s += "."


@rm.function
def writing(s: State) -> None:
    write(s)
    assert s["b"] is not None
    s += "."


@watchdog(60)
@pytest.mark.parametrize("way", ["async", "plain", "compiled", "late"])
def test_streams_with_metadata(tiny: Runtime, way: str) -> None:
    async def main() -> None:
        program: Any = awriting if way == "async" else writing
        if way == "compiled":
            program = written_out.compile()
        state = await program.arun(stream=True, seed=5)
        if way == "late":
            await state.wait()
        whole = await collect(state.text_async_iter(return_meta_data=True))
        text = await state.aget_text()
        assert "".join(piece for piece, _ in whole) == text
        assert all(piece for piece, _ in whole)
        assert text.startswith("The lake")
        for name, has_logprobs in (("a", True), ("b", False)):
            pairs = await collect(state.text_async_iter(name, return_meta_data=True))
            check_totals(pairs, state.meta(name), has_logprobs)
            assert "".join(piece for piece, _ in pairs) == state[name]
            assert "".join(await collect(state.text_async_iter(name))) == state[name]
            assert "".join(await collect(state.text_async_iter(var_name=name))) == state[name]
        with pytest.raises(rm.InvalidArgument, match="var_name"):
            await collect(state.text_async_iter("a", var_name="b"))

    asyncio.run(asyncio.wait_for(main(), 50))


def check_totals(pairs: list[Any], meta: dict[str, Any], has_logprobs: bool) -> None:
    total = 0
    for text, chunk in pairs:
        assert text
        total += len(chunk["output_token_ids"])
        assert chunk["completion_tokens"] == total
        if has_logprobs:
            assert len(chunk["output_token_logprobs"]) == len(chunk["output_token_ids"])
            assert chunk["output_token_logprobs_length"] == total
        else:
            assert "output_token_logprobs" not in chunk
    assert total <= meta["completion_tokens"]
    ids = [token for _, chunk in pairs for token in chunk["output_token_ids"]]
    assert ids == meta["output_token_ids"][: len(ids)]


@watchdog(30)
def test_streamed_logprobs_without_texts(tiny: Runtime) -> None:
    @rm.function
    async def program(s: State) -> None:
        s += "x" + rm.gen("a", 6, return_logprob=True, return_text_in_logprobs=False)

    async def main() -> None:
        state = await program.arun(stream=True, ignore_eos=True)
        pairs = await collect(state.text_async_iter("a", return_meta_data=True))
        entries = [entry for _, chunk in pairs for entry in chunk["output_token_logprobs"]]
        assert entries
        assert {entry[2] for entry in entries} == {None}

    asyncio.run(asyncio.wait_for(main(), 20))


@watchdog(30)
@pytest.mark.parametrize("name", [None, "a"])
def test_closing_a_stream_aborts_the_program(backend: FakeBackend, name: str | None) -> None:
    @rm.function
    async def program(s: State) -> None:
        s += "first" + rm.gen("z")
        await s.get("z")
        backend.gate.clear()
        s += rm.gen("a")
        await s.get("a")

    async def main() -> None:
        state = await program.arun(stream=True)
        stream: Any = state.text_async_iter(name)
        if name is None:
            assert await anext(stream) == "first"
            await stream.aclose()
        else:
            reader = asyncio.create_task(collect(stream))
            while "a" not in state._branch.variables:
                await asyncio.sleep(0.002)
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader
        with pytest.raises(rm.Cancelled, match="its stream was closed"):
            await state.get("a")

    asyncio.run(asyncio.wait_for(main(), 20))


@watchdog(30)
def test_a_stream_gives_what_came_before_it_raises(backend: FakeBackend) -> None:
    @rm.function
    async def program(s: State) -> None:
        s += "text" + rm.gen("a")
        await s.get("a")
        raise KeyError("mine")

    async def main() -> list[str]:
        state = await program.arun(stream=True)
        chunks: list[str] = []

        async def read() -> None:
            async for chunk in state.text_async_iter():
                chunks.append(chunk)

        with pytest.raises(KeyError, match="mine"):
            await read()
        return chunks

    assert "".join(asyncio.run(asyncio.wait_for(main(), 20))) == "text[4]"
