"""The K/V of a shared segment is read once per step and layer, not once per row."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from oracle import ModelBench

PREFIX = 200


class Reads:
    """Steps a bench and tells, per step, its rows and how often each slot of the pool was read."""

    def __init__(self, bench: ModelBench) -> None:
        self._bench = bench
        self._forward = bench.runner.forward
        self._batches: list[Any] = []
        self.slot_at: dict[int, set[int]] = collections.defaultdict(set)
        """Position → the slots that were filled for it."""

    def step(self) -> tuple[int, collections.Counter[int]]:
        runner = self._bench.runner
        runner.gathered = []  # type: ignore[attr-defined]
        runner.forward = self._watch  # type: ignore[method-assign]
        self._batches.clear()
        try:
            self._bench.step()
            gathered = list(runner.gathered)  # type: ignore[attr-defined]
        finally:
            runner.gathered = None  # type: ignore[attr-defined]
            del runner.forward
        reads = collections.Counter(
            slot for start, length in gathered for slot in range(start, start + length)
        )
        return sum(len(batch.slots) for batch in self._batches), reads

    def _watch(self, batch: Any) -> None:
        self._batches.append(batch)
        for position, slot in zip(batch.positions, batch.slots, strict=True):
            self.slot_at[position].add(slot)
        self._forward(batch)

    def prefill(self) -> None:
        """Step until the last token of the prefix is computed."""
        while PREFIX - 1 not in self.slot_at:
            self.step()

    def steps(self) -> Iterator[tuple[int, collections.Counter[int]]]:
        while not self._bench.engine.idle:
            yield self.step()


@pytest.fixture
def start(bench: Callable[..., ModelBench]) -> Callable[..., tuple[ModelBench, Reads, int]]:
    """A bench with a context of `PREFIX` tokens that are computed."""

    def build(pair: Any, **options: Any) -> tuple[ModelBench, Reads, int]:
        one = bench(pair, chunk_tokens=64, **options)
        reads = Reads(one)
        context = one.open([i * 7 % 256 for i in range(PREFIX)])
        one.generate(context, max_tokens=1)
        reads.prefill()
        return one, reads, context

    return build


@pytest.mark.parametrize("page_size", [1, 16])
def test_sixteen_forks_read_the_prefix_once(start, tiny, page_size: int) -> None:
    bench, reads, context = start(tiny, page_size=page_size)
    layers = tiny.hf.config.num_hidden_layers
    for seed, child in enumerate(bench.fork(context, 16)):
        bench.append(child, [seed])
        bench.generate(child, max_tokens=10, temperature=1.0, seed=seed)
    prefix = set().union(*(reads.slot_at[position] for position in range(PREFIX)))
    assert len(prefix) == PREFIX
    rows_of_steps = []
    for rows, seen in reads.steps():
        rows_of_steps.append(rows)
        assert prefix <= set(seen)
        assert set(seen.values()) == {layers}, "tails too are read once, each by its own row"
    # The parent's own token, sampled in the prefill, comes with the children's.
    assert rows_of_steps == [17, *[16] * 9]


def test_inner_nodes_are_read_once(start, tiny) -> None:
    bench, reads, context = start(tiny, page_size=4)
    layers = tiny.hf.config.num_hidden_layers
    for i, middle in enumerate(bench.fork(context, 4)):
        bench.append(middle, [i] * 11)
        for j, child in enumerate(bench.fork(middle, 4)):
            bench.append(child, [j, j])
            bench.generate(child, max_tokens=6, temperature=1.0, seed=10 * i + j)
    shared = 0
    for rows, seen in reads.steps():
        assert set(seen.values()) == {layers}
        if rows == 16:
            shared += 1
            middle = [slot for p in range(PREFIX, PREFIX + 11) for slot in reads.slot_at[p]]
            assert set(middle) <= set(seen)
    assert shared >= 4


def test_a_sliding_window_reads_nothing_outside_it(start, families) -> None:
    pair = families("mistral")
    bench, reads, context = start(pair, page_size=16)
    layers, window = pair.hf.config.num_hidden_layers, pair.hf.config.sliding_window
    for seed, child in enumerate(bench.fork(context, 16)):
        bench.append(child, [seed])
        bench.generate(child, max_tokens=4, temperature=1.0, seed=seed)
    steps = 0
    for _, seen in reads.steps():
        steps += 1
        assert set(seen.values()) == {layers}
        far = [slot for p in range(PREFIX - window) for slot in reads.slot_at[p]]
        assert not set(far) & set(seen)
    assert steps == 4
