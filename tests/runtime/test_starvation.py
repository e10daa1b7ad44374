"""Nobody starves: a stream of requests that share a cached prefix, and one that shares nothing.

Under `program` the cold one starts before more than `max_overtakes` prefill tokens of those that
came in later steps were admitted; under `lpm` it waits as long as the stream lasts.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scripted_engine import Bench, DullRunner

from ramet.runtime.schedule.sequence import Generation

STREAM_STEPS = 500
SHARED = 1
"""Most tokens that two suffixes begin with alike: for these, only the first to come pays."""
BACKLOG = 60
"""With so many waiting, more would change nothing but the time that the test takes."""


@dataclasses.dataclass(frozen=True)
class Load:
    """What arrives, and what it arrives at."""

    rate: int = 2
    """Hot requests per step."""
    prefix_len: int = 64
    suffix_len: int = 12
    """What a hot request doesn't share, and is admitted for."""
    cold_len: int = 100
    new_tokens: int = 4
    max_overtakes: int = 100
    max_running: int = 2
    page_size: int = 16
    chunk_tokens: int = 64
    pool_tokens: int = 1024


class Stream:
    """A load on an engine. Its clock only orders events."""

    def __init__(self, load: Load, policy: str, **options: Any) -> None:
        self.load = load
        self.bench = Bench(
            policy=policy,
            pool_tokens=load.pool_tokens,
            page_size=load.page_size,
            chunk_tokens=load.chunk_tokens,
            max_running=load.max_running,
            clock=itertools.count().__next__,
            **options,
        )
        self.bench.engine.room.runner = DullRunner()
        self.prefix = [2 + i % 50 for i in range(load.prefix_len)]
        self.numbers = itertools.count()
        self.ask(self.prefix)
        self.bench.run()

    def ask(self, ids: list[int], more: int = 0) -> Generation:
        context = self.bench.open(ids)
        call = self.bench.generate(context, max_tokens=self.load.new_tokens + more)
        self.bench.close(context)
        (sequence,) = self.bench.engine._calls[call].samples
        assert isinstance(sequence, Generation)
        return sequence

    def arrive(self, count: int) -> list[Generation]:
        """So many hot requests, if not too many wait already."""
        if self.bench.engine.room.scheduler.num_waiting > BACKLOG:
            return []
        numbers = [next(self.numbers) for _ in range(count)]
        # Of different lengths, so that they don't all end in the same step.
        return [self.ask([*self.prefix, *self.suffix(i)], more=i * i % 4) for i in numbers]

    def suffix(self, number: int) -> list[int]:
        """The number in base 100, of tokens that no prefix has."""
        digits = [100 + number // 100**i % 100 for i in range(3)]
        return [*digits, *[99] * self.load.suffix_len][: self.load.suffix_len]

    def start(self) -> Generation:
        """Work for some steps, and then the cold request."""
        self.arrive(max(4 * self.load.rate, 4 * self.load.max_running))
        self.bench.step()
        cold = self.ask([60 + i % 30 for i in range(self.load.cold_len)])
        self.bench.step()
        return cold

    def end(self, cold: Generation) -> None:
        """Nobody arrives any more: everything is served."""
        self.bench.run()
        assert cold.output.finished == "length"
        assert not self.bench.errors
        assert self.bench.engine.stats()["held_tokens"] == 0


def tokens_passing(load: Load) -> int:
    """Prefill tokens, at least, of later arrivals that were admitted before the cold request."""
    stream = Stream(load, "program", max_overtakes=load.max_overtakes)
    cold = stream.start()
    later: list[Generation] = []
    # Each that is admitted is served in so many steps at most, and then the next is.
    prompt_len = load.prefix_len + load.suffix_len
    steps = (prompt_len // load.chunk_tokens + load.new_tokens + 5) * load.max_running
    for _ in range(steps * (load.max_overtakes // (load.suffix_len - SHARED) + 8 * load.rate + 40)):
        later += stream.arrive(load.rate)
        stream.bench.step()
        if cold.started is not None:
            break
    started = cold.started
    assert started is not None
    passing = [s for s in later if s.started is not None and s.started < started]
    stream.end(cold)
    return len(passing) * (load.suffix_len - SHARED)


LOADS = st.builds(
    Load,
    rate=st.sampled_from([1, 2, 5, 12]),
    prefix_len=st.sampled_from([1, 16, 50, 300]),
    suffix_len=st.sampled_from([4, 17, 70]),
    cold_len=st.sampled_from([1, 30, 100, 700]),
    new_tokens=st.integers(1, 6),
    max_overtakes=st.sampled_from([1, 3, 10, 64, 300]),
    max_running=st.sampled_from([1, 2, 3, 8]),
    page_size=st.sampled_from([1, 4, 16]),
    chunk_tokens=st.sampled_from([8, 64, 512]),
    pool_tokens=st.sampled_from([1024, 2048]),
)


@settings(max_examples=25)
@given(LOADS)
@example(Load(max_overtakes=16384, rate=8, max_running=8, suffix_len=70))
def test_the_cold_request_starts_within_its_bound(load: Load) -> None:
    assert tokens_passing(load) <= load.max_overtakes


@pytest.mark.full
@pytest.mark.timeout(3600)
@settings(max_examples=500)
@given(LOADS)
def test_the_cold_request_starts_within_its_bound_whole(load: Load) -> None:
    assert tokens_passing(load) <= load.max_overtakes


@pytest.mark.parametrize("max_overtakes", [30, 300, 1000])
@pytest.mark.parametrize("max_running", [2, 8])
def test_the_bound_is_what_lets_it_start(max_running: int, max_overtakes: int) -> None:
    load = Load(rate=max_running, max_running=max_running, max_overtakes=max_overtakes)
    assert max_overtakes / 2 < tokens_passing(load) <= max_overtakes


@pytest.mark.parametrize(
    ("rate", "prefix_len", "page_size"), [(1, 100, 16), (3, 8, 1), (12, 40, 4)], ids=str
)
def test_longest_prefix_first_starves_it(rate: int, prefix_len: int, page_size: int) -> None:
    stream = Stream(Load(rate=rate, prefix_len=prefix_len, page_size=page_size), "lpm")
    cold = stream.start()
    served = len(stream.bench.done)
    for _ in range(STREAM_STEPS):
        stream.arrive(rate)
        stream.bench.step()
        assert cold.started is None
    assert len(stream.bench.done) - served > 200
    stream.end(cold)
