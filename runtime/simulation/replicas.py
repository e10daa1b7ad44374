"""Replicas: several engines behind a router that knows prompts.

A router sees the beginning of a program's first prompt and how many calls each replica has; a
program stays where it began.
"""

from __future__ import annotations

import bisect
import hashlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from ramet.runtime.graph import Text
from ramet.runtime.graph_values import Ref
from ramet.runtime.schedule.trace_log import TraceLog
from ramet.runtime.simulation.cost_model import CostModel
from ramet.runtime.simulation.simulation import UNLIMITED, Outcome, Simulation, few_collections
from ramet.runtime.simulation.tokens import Tokens
from ramet.runtime.simulation.walker import Arrival

BLOCK_TOKENS = 64
"""Routers tell prompts apart by whole blocks of so many tokens."""
MAX_BLOCKS = 32
"""Blocks of a prompt that a router looks at."""
SLACK = 1.25
"""A replica may have so many times the mean load before others take over."""


class Router(Protocol):
    """Chooses a replica."""

    def route(self, ids: Sequence[int], loads: Sequence[int]) -> int:
        """For a prompt that begins with `ids`, given the calls that each replica has."""
        ...


class RoundRobin:
    """One after the other."""

    def __init__(self, _replicas: int) -> None:
        self._next = 0

    def route(self, _ids: Sequence[int], loads: Sequence[int]) -> int:
        """The next one."""
        self._next += 1
        return self._next % len(loads)


class HashRouter:
    """The first block names a place on a ring; a replica that has too much is passed over
    (Mirrokni et al. 2018, bounded loads)."""

    def __init__(self, replicas: int, points: int = 64) -> None:
        self._ring = sorted(
            (_hash(f"{replica}/{point}".encode()), replica)
            for replica in range(replicas)
            for point in range(points)
        )

    def route(self, ids: Sequence[int], loads: Sequence[int]) -> int:
        """The first one after the place that isn't full."""
        most = _most(loads)
        place = bisect.bisect(self._ring, (_block_hash(ids[:BLOCK_TOKENS]), -1))
        for step in range(len(self._ring)):
            replica = self._ring[(place + step) % len(self._ring)][1]
            if loads[replica] <= most:
                return replica
        raise AssertionError("every replica has more than the mean")


class PrefixRouter:
    """Where the longest beginning of the prompt was sent before, or to the idlest one if that
    replica has too much; of equals the idlest. It remembers blocks, not what was evicted since."""

    def __init__(self, replicas: int, max_blocks: int = 1 << 16) -> None:
        self._seen: list[dict[int, None]] = [{} for _ in range(replicas)]
        self._max_blocks = max_blocks

    def route(self, ids: Sequence[int], loads: Sequence[int]) -> int:
        """The best match among those that aren't full."""
        hashes = []
        for end in range(BLOCK_TOKENS, min(len(ids), MAX_BLOCKS * BLOCK_TOKENS) + 1, BLOCK_TOKENS):
            hashes.append(_block_hash(ids[:end]))
        most = _most(loads)
        best = max(
            (r for r in range(len(loads)) if loads[r] <= most),
            key=lambda r: (sum(h in self._seen[r] for h in hashes), -loads[r], -r),
        )
        seen = self._seen[best]
        for block in hashes:
            seen.pop(block, None)
            seen[block] = None
        if len(seen) > self._max_blocks:
            for oldest in list(seen)[: len(seen) - self._max_blocks * 7 // 8]:
                del seen[oldest]
        return best


ROUTERS: dict[str, Callable[[int], Router]] = {
    "round_robin": RoundRobin,
    "consistent_hash": HashRouter,
    "longest_prefix": PrefixRouter,
}
"""By name: (number of replicas) → a router."""


def simulate_replicas(
    arrivals: Iterable[Arrival], cost: CostModel, replicas: int, router: str, **settings: Any
) -> Outcome:
    """Run programs on equal engines; one outcome of all, whose optimum is that of one cache."""
    trace, tokens = TraceLog(max_tokens=UNLIMITED), Tokens()
    engines = [Simulation(cost, tokens=tokens, **settings) for _ in range(replicas)]
    for engine in engines:
        engine.engine.room.trace = trace
    choose = ROUTERS[router](replicas)
    with few_collections():
        for arrival in sorted(arrivals, key=lambda a: a.at):
            for engine in engines:
                engine.run(until=arrival.at)
            # Those that came at the same moment count, too.
            loads = [engine.load + engine.expected for engine in engines]
            engines[choose.route(_beginning(arrival, tokens), loads)].add(arrival)
        return _together([engine.finish() for engine in engines], trace)


def _beginning(arrival: Arrival, tokens: Tokens) -> list[int]:
    """The ids of a program's first text."""
    args = dict(zip(arrival.graph.args, arrival.args, strict=True))
    ids: list[int] = []
    for node in arrival.graph.nodes:
        if not isinstance(node, Text):
            break
        for part in node.parts:
            name = args[str(part.arg)] if isinstance(part, Ref) else part
            ids = ids + tokens.run(name)
    return ids


def _together(outcomes: Sequence[Outcome], trace: TraceLog) -> Outcome:
    whole = Outcome(makespan=max(o.makespan for o in outcomes))
    for outcome in outcomes:
        whole.first_token.extend(outcome.first_token)
        whole.gaps.extend(outcome.gaps)
        whole.programs.extend(outcome.programs)
        whole.errors += outcome.errors
        for name, value in outcome.stats.items():
            if isinstance(value, (int, float)):
                whole.stats[name] = whole.stats.get(name, 0) + value
    whole.stats.update(trace.report())
    return whole


def _most(loads: Sequence[int]) -> float:
    return SLACK * sum(loads) / len(loads) + 1


def _block_hash(ids: Sequence[int]) -> int:
    return _hash(array("I", ids).tobytes())


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")
