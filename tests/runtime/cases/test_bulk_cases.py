"""Reported case of very large submissions: B104."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ramet.lang as rm
from ramet.lang import batch
from ramet.runtime import runtime as runtimes
from ramet.runtime.errors import InvalidArgument
from ramet.runtime.runtime import Runtime

FIELDS: dict[str, Any] = {"max_tokens": 1, "temperature": 0}


@rm.function
def brief(s: rm.ProgramState, i: int) -> None:
    s += f"{i}" + rm.gen("x", **FIELDS)


@pytest.fixture
def in_flight(tiny: Runtime, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The calls that are not over, at each time that something is sent to the engine."""
    counts: list[int] = []
    client = tiny._client
    send = client._transport.send

    def record(ops: list[dict[str, Any]]) -> None:
        counts.append(len(client._calls))
        send(ops)

    monkeypatch.setattr(client._transport, "send", record)
    return counts


@pytest.mark.parametrize("count", [200, pytest.param(20_000, marks=pytest.mark.full)])
def test_a_long_list_of_prompts_goes_in_turn(
    tiny: Runtime, in_flight: list[int], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """B104: so many prompts at once ended in time-outs; the engine has a bounded number."""
    limit = runtimes.MAX_IN_FLIGHT
    if count < limit:
        limit = count // 5
        monkeypatch.setattr(runtimes, "MAX_IN_FLIGHT", limit)
    outputs = tiny.generate([f"{i}" for i in range(count)], FIELDS)
    assert max(in_flight) == limit
    assert len(in_flight) < 2 * count // limit + 2, "few messages, so that much is planned together"
    for i, output in enumerate(outputs):
        ids = output["meta"]["prompt_token_ids"]  # type: ignore[index]
        assert bytes(ids).decode() == f"{i}"
    assert tiny.stats()["contexts"] == 0


def test_a_bad_prompt_or_an_interrupt_ends_a_long_list(
    tiny: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B104: nothing starts if one prompt is bad, and nothing is left of what was given up."""
    monkeypatch.setattr(runtimes, "MAX_IN_FLIGHT", 8)
    calls = tiny.stats()["calls"]
    with pytest.raises(InvalidArgument, match=r"prompt\[90\]"):
        tiny.generate([[1]] * 90 + [[259]], FIELDS)
    assert tiny.stats()["calls"] == calls

    def interrupt(self: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("ramet.runtime.client.call.Call.exception", interrupt)
        with pytest.raises(KeyboardInterrupt):
            tiny.generate(["a"] * 90, {"max_tokens": 2000, "ignore_eos": True})
    stats = tiny.stats()
    assert (stats["contexts"], stats["running"], stats["waiting"]) == (0, 0, 0)


@pytest.mark.parametrize("count", [1200, pytest.param(50_000, marks=pytest.mark.full)])
def test_a_batch_from_a_generator_draws_as_it_goes(
    tiny: Runtime, in_flight: list[int], count: int
) -> None:
    """B104: items are drawn as others end, and come out in order."""
    drawn = ended = 0
    ahead = 0

    def items() -> Iterator[dict[str, int]]:
        nonlocal drawn, ahead
        for i in range(count):
            drawn += 1
            ahead = max(ahead, drawn - ended)
            yield {"i": i}

    for state in brief.run_batch(items(), backend=tiny, generator_style=True):
        assert state.text().startswith(f"{ended}")
        ended += 1
    assert ended == drawn == count
    assert ahead <= batch.WINDOW + 1
    assert max(in_flight) <= batch.WINDOW


def peak(run: Callable[[], object]) -> int:
    """The most memory, in bytes, that something took at once."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        run()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.full
def test_memory_does_not_grow_with_the_number_of_items(tiny: Runtime) -> None:
    """B104: beyond the results, ten times the items take no more than a few do."""

    def drop(count: int) -> None:
        for _ in brief.run_batch(
            ({"i": i} for i in range(count)), backend=tiny, generator_style=True
        ):
            pass

    def keep(count: int) -> None:
        tiny.generate([f"{i}" for i in range(count)], FIELDS)

    drop(1000)
    few, many = peak(lambda: drop(2000)), peak(lambda: drop(8000))
    assert many - few < 6000 * 3000, (
        "the engine's bounded logs are all; a call in flight takes 10 KB"
    )
    few, many = peak(lambda: keep(5000)), peak(lambda: keep(9000))
    assert many - few < 4000 * 5000, "a result is 3 to 4 KB"
