"""The literature's steps, one by one: what each gains on this engine, by the simulator.

Each step is taken back by a switch of the same engine (`schedule.switches`), by `cache=False`, or
by another policy. The papers' figures stand beside ours as context: other models, other machines,
other baselines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from ramet.runtime.schedule.switches import Switches
from ramet.runtime.simulation import workloads
from ramet.runtime.simulation.cost_model import PRESETS, CostModel
from ramet.runtime.simulation.graph_writer import GraphWriter
from ramet.runtime.simulation.report import align, hit_rate, hit_ratio, quantile, seconds
from ramet.runtime.simulation.simulation import Outcome, simulate
from ramet.runtime.simulation.tokens import run
from ramet.runtime.simulation.walker import Arrival, Manner

MAX_GAP = 0.05
"""Seconds between tokens that 99 % of them must keep, where capacity is asked for."""
MAX_FIRST = 0.5
"""Seconds to the first token that half of the calls must keep."""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One figure of one step."""

    step: str
    workload: str
    figure: str
    without: str
    with_it: str
    paper: str


def textbook() -> list[Arrival]:
    """Orca's example: four requests of 6, 4, 8 and 3 steps, for three slots."""
    arrivals = []
    for number, length in enumerate((6, 4, 8, 3)):
        g = GraphWriter("ABCD"[number])
        g.text(g.arg())
        g.gen(16)
        arrivals.append(Arrival(0.0, g.graph(), (run(number, 1), length)))
    return arrivals


def textbook_steps(continuous: bool) -> int:
    """How many steps the example takes."""
    outcome = simulate(
        textbook(),
        PRESETS["uniform"],
        manner=Manner(exact=True),
        switches=Switches(continuous=continuous),
        policy="fcfs",
        max_running=3,
        pool_tokens=256,
    )
    return round(outcome.makespan)


def rows(calls: int, cost: CostModel) -> Iterator[Row]:
    """All steps, in the order in which they were published."""
    yield from _batching(calls, cost)
    yield from _paging(calls, cost)
    yield from _stalls(calls, cost)
    yield from _sharing(calls, cost)
    yield from _order(calls, cost)
    yield from _eviction(calls, cost)


def table(found: list[Row]) -> str:
    """The rows under their headings."""
    heads = ["step", "workload", "figure", "without", "with", "the paper (context, no claim)"]
    lines = [heads]
    lines += [[r.step, r.workload, r.figure, r.without, r.with_it, r.paper] for r in found]
    return align(lines)


BASE: dict[str, Any] = {
    "pool_tokens": 200_000,
    "page_size": 16,
    "chunk_tokens": 512,
    "max_running": 128,
}


def _batching(calls: int, cost: CostModel) -> Iterator[Row]:
    name = "continuous batching (Orca)"
    paper = "up to 36.9x throughput at equal latency (GPT-3 175B)"
    yield Row(
        name,
        "textbook: 6, 4, 8, 3 on three slots",
        "steps",
        str(textbook_steps(False)),
        str(textbook_steps(True)),
        paper,
    )
    found = [
        simulate(
            _at_once(workloads.summaries(1, calls)),
            cost,
            **{**BASE, "switches": Switches(continuous=on)},
        )
        for on in (False, True)
    ]
    yield Row(name, "summaries, all at once", "makespan", *_both(found, _makespan), paper)


def _paging(calls: int, cost: CostModel) -> Iterator[Row]:
    name = "paged memory (vLLM)"
    for size in (16, 1):
        found = [
            simulate(
                _at_once(workloads.summaries(2, calls // 2)),
                cost,
                measure_memory=True,
                **{
                    **BASE,
                    "switches": Switches(paged=on),
                    "pool_tokens": 32_768,
                    "page_size": size,
                },
            )
            for on in (False, True)
        ]
        where = f"summaries, page size {size}"
        used = _both(found, lambda o: f"{o.kv_utilisation:.1%}")
        yield Row(name, where, "reserved KV in use", *used, "20.4-38.2 % before, 96.3 % with it")
        yield Row(name, where, "makespan", *_both(found, _makespan), "2-4x throughput")


def _stalls(calls: int, cost: CostModel) -> Iterator[Row]:
    off = {**BASE, "switches": Switches(stall_free=False), "chunk_tokens": 8192}
    without, with_it = (f"{_capacity(calls, cost, s):.2f}/s" for s in (off, BASE))
    yield Row(
        "stall-free chunks (Sarathi-Serve)",
        "summaries",
        f"capacity, p99 gap <= {seconds(MAX_GAP)}",
        without,
        with_it,
        "2.6x (Mistral-7B, one A100)",
    )


def _sharing(calls: int, cost: CostModel) -> Iterator[Row]:
    for make in (workloads.few_shot, workloads.agents):
        found = [
            simulate(make(3, calls), cost, manner=Manner(share=on), **BASE) for on in (False, True)
        ]
        for figure, show in (("hit rate", _hits), ("makespan", _makespan), ("p50 first", _first)):
            yield Row(
                "radix tree (SGLang)",
                make.__name__,
                figure,
                *_both(found, show),
                "up to 6.4x throughput; hit rates of 50-99 %",
            )


def _order(calls: int, cost: CostModel) -> Iterator[Row]:
    settings = {**BASE, "pool_tokens": 12_288, "max_running": 32}
    found = [
        simulate(workloads.few_shot(4, 2 * calls), cost, **settings, policy=policy)
        for policy in ("fcfs", "program")
    ]
    for figure, show in (("hit rate over optimum", _ratio), ("makespan", _makespan)):
        yield Row(
            "cache-aware order (SGLang)",
            "few_shot, a third of its beginnings fit",
            figure,
            *_both(found, show),
            "96 % of the optimal hit rate on average",
        )


def _eviction(calls: int, cost: CostModel) -> Iterator[Row]:
    for make, share in ((workloads.agents, 0.25), (workloads.tree_of_thought, 0.1)):
        arrivals = list(make(5, 2 * calls))
        ample = simulate(arrivals, cost, **{**BASE, "pool_tokens": 1 << 26})
        pool = int(share * ample.stats["optimum_tokens"])
        found = [
            simulate(
                arrivals,
                cost,
                **{**BASE, "pool_tokens": pool, "switches": Switches(foresight=on)},
            )
            for on in (False, True)
        ]
        yield Row(
            "eviction by what is known ahead",
            f"{make.__name__}, a pool for {share:.0%}",
            "recomputed",
            *_both(found, _recomputed),
            "1.1-2x over LRU (workflow-aware caches)",
        )


def _capacity(calls: int, cost: CostModel, settings: dict[str, Any]) -> float:
    """The highest rate of `summaries`, in calls a second, at which both bounds hold."""
    low, high = 0.0, 40.0
    for _ in range(6):
        rate = (low + high) / 2
        arrivals = [
            dataclasses.replace(a, at=a.at * 4.0 / rate) for a in workloads.summaries(5, calls)
        ]
        outcome = simulate(arrivals, cost, **settings)
        kept = quantile(outcome.gaps, 0.99) <= MAX_GAP
        if kept and quantile(outcome.first_token, 0.5) <= MAX_FIRST:
            low = rate
        else:
            high = rate
    return low


def _at_once(arrivals: Iterator[Arrival]) -> list[Arrival]:
    return [dataclasses.replace(arrival, at=0.0) for arrival in arrivals]


def _both(found: list[Outcome], show: Callable[[Outcome], str]) -> tuple[str, str]:
    without, with_it = map(show, found)
    return without, with_it


def _makespan(outcome: Outcome) -> str:
    return seconds(outcome.makespan)


def _hits(outcome: Outcome) -> str:
    return f"{hit_rate(outcome.stats):.1%}"


def _ratio(outcome: Outcome) -> str:
    return f"{hit_ratio(outcome.stats):.1%}"


def _recomputed(outcome: Outcome) -> str:
    return f"{outcome.stats['recomputed_tokens']:,}"


def _first(outcome: Outcome) -> str:
    return seconds(quantile(outcome.first_token, 0.5))
