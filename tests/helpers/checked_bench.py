"""Benches whose books are checked at their end, and scores asked of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from scripted_engine import Bench

from ramet.runtime.cache.audit import audit_idle

TOTALS = (
    "calls",
    "prompt_tokens",
    "cached_tokens",
    "computed_tokens",
    "generated_tokens",
    "queue_seconds",
    "run_seconds",
)


def check_tables(stats: dict) -> None:
    """The sums over the sites, and over the programs, are the totals."""
    for table in ("call_sites", "programs"):
        for name in TOTALS:
            total = sum(tally[name] for tally in stats[table].values())
            assert total == pytest.approx(stats[name], abs=1e-9), (table, name)


def checked_benches() -> Iterator[Callable[..., Bench]]:
    """A way to make benches; what they did is checked when the test is over."""
    made: list[Bench] = []

    def build(**options) -> Bench:
        made.append(Bench(**options))
        return made[-1]

    yield build
    for bench in made:
        bench.run()
        audit_idle(bench.engine.room.tree)
        stats = bench.engine.stats()
        check_tables(stats)
        assert stats["computed_tokens"] == len(bench.runner.rows)
        assert not bench.engine._deadlines


def score(bench: Bench, context: int, choices: list[list[int]], site: str = "") -> int:
    call = bench.number()
    op = {"op": "score", "ctx": context, "call": call, "rest": [], "prefix": [], "site": site}
    wire = [{"ids": ids, "first": 0, "append": ids} for ids in choices]
    op |= {"method": "token_length_normalized", "temperature": 0.0, "key": 1, "choices": wire}
    bench.engine.submit([op])
    return call
