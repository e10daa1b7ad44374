"""The simulator's door: `python -m ramet.runtime.schedule.simulate`.

It drives the engine's own scheduler, tree, ledger, policies and graphs over a machine that only
keeps time (`runtime.simulation`), without torch and without a model.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ramet.runtime.config import POLICIES
from ramet.runtime.errors import RametError
from ramet.runtime.schedule.switches import Switches
from ramet.runtime.simulation import report, steps
from ramet.runtime.simulation.cost_model import PRESETS, TERMS
from ramet.runtime.simulation.replicas import ROUTERS, simulate_replicas
from ramet.runtime.simulation.simulation import Outcome, simulate
from ramet.runtime.simulation.workloads import WORKLOADS

_EXAMPLES = """
Examples:
  python -m ramet.runtime.schedule.simulate --workload few_shot --calls 100000
  python -m ramet.runtime.schedule.simulate --workload agents --pool 0.25 0.5 1 --picture a.png
  python -m ramet.runtime.schedule.simulate --workload mixed --replicas 4 --router consistent_hash
  python -m ramet.runtime.schedule.simulate steps
  python -m ramet.runtime.schedule.simulate check

The table: seconds to the first token of a call and between the tokens of a sample (mean, median,
99th percentile), the hit rate and what it is of the optimum (`schedule.optimum`), tokens that had
to be computed over those that were ("once"), recomputed tokens, retractions, and the makespan.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; the exit status."""
    args = _parser().parse_args(argv)
    try:
        if args.command == "steps":
            print(steps.table(list(steps.rows(args.calls or 300, PRESETS[args.cost]))))
        elif args.command == "check":
            return _check(args)
        else:
            _compare(args)
    except RametError as error:
        print(f"simulate: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ramet.runtime.schedule.simulate",
        description="Simulate the engine's scheduling, without a model.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "command",
        nargs="?",
        default="compare",
        choices=("compare", "steps", "check"),
        help="compare settings (default); show what the literature's steps gain; check the "
        "simulator against the real engine",
    )
    add("--workload", choices=sorted(WORKLOADS), default="few_shot")
    add("--calls", type=int, help="calls to the model; default 2000 (steps: 300)")
    add("--seed", type=int, default=1)
    add("--policy", nargs="+", choices=POLICIES, default=list(POLICIES))
    add(
        "--pool",
        nargs="+",
        type=float,
        default=[0.25],
        help="KV slots, or with numbers up to 1 the share of all distinct tokens; default 0.25",
    )
    add("--cost", choices=sorted(PRESETS), default="llama-8b-h100", help="cost model")
    add("--page-size", type=int, default=64)
    add("--chunk-tokens", type=int, default=2048)
    add("--max-running", type=int, default=256)
    add("--max-overtakes", type=int, help="default: four times the pool")
    add("--target-step-ms", type=float, help="adapt chunks to this step time")
    add(
        "--eviction",
        nargs="+",
        choices=("future", "lru"),
        default=["future"],
        help="what is given up first: by what is known of the future (default), or by recency",
    )
    add("--replicas", type=int, nargs="+", default=[1])
    add("--router", nargs="+", choices=sorted(ROUTERS), default=["longest_prefix"])
    add("--picture", type=Path, help="write a chart there (pip install 'ramet[plot]')")
    add("--model", help="check: the model to measure; default is the built-in one")
    return parser


def _compare(args: argparse.Namespace) -> None:
    calls = args.calls or 2000
    arrivals = list(WORKLOADS[args.workload](args.seed, calls))
    cost = PRESETS[args.cost]
    settings: dict[str, Any] = {
        "page_size": args.page_size,
        "chunk_tokens": args.chunk_tokens,
        "max_running": args.max_running,
        "max_overtakes": args.max_overtakes,
        "target_step_ms": args.target_step_ms,
    }
    shares = [share for share in args.pool if share <= 1]
    distinct = 0
    if shares:
        ample = simulate(arrivals, cost, **settings, pool_tokens=1 << 26)
        distinct = int(ample.stats["optimum_tokens"])
        print(f"{args.workload}: {calls:,} calls, {distinct:,} distinct tokens, {cost.name}\n")
    rows: list[tuple[str, Outcome]] = []
    started = time.perf_counter()
    engines = [
        (replicas, router)
        for replicas in args.replicas
        for router in (args.router if replicas > 1 else [""])
    ]
    for pool, policy, eviction, (replicas, router) in itertools.product(
        args.pool, args.policy, args.eviction, engines
    ):
        one = {
            **settings,
            "policy": policy,
            "pool_tokens": int(pool * distinct) if pool <= 1 else int(pool),
            "switches": Switches(foresight=eviction == "future"),
        }
        name = f"{policy}, pool {pool:g}"
        if len(args.eviction) > 1:
            name += f", {eviction}"
        if router:
            name += f", {replicas} x {router}"
            outcome = simulate_replicas(arrivals, cost, replicas, router, **one)
        else:
            outcome = simulate(arrivals, cost, **one)
        rows.append((name, outcome))
    seconds = time.perf_counter() - started
    print(report.table(rows))
    print(f"\n{calls * len(rows):,} calls simulated in {seconds:.1f} s")
    if args.picture is not None:
        report.picture(rows, args.picture, f"{args.workload}, {calls:,} calls, {cost.name}")


def _check(args: argparse.Namespace) -> int:
    """Predictions against measurements; status 1 if one is off by more than a quarter by both
    clocks."""
    from ramet.runtime.simulation.check import check_times, shrink

    calls = args.calls or 12
    known = {
        "agents": shrink(WORKLOADS["agents"](args.seed, 2 * calls), 4),
        "few_shot": shrink(WORKLOADS["few_shot"](args.seed, calls), 4),
    }
    asked = {
        "tree_of_thought": shrink(WORKLOADS["tree_of_thought"](args.seed + 1, calls), 4),
        "chats": shrink(WORKLOADS["chats"](args.seed + 1, calls), 4),
        "few_shot": shrink(WORKLOADS["few_shot"](args.seed + 1, calls), 2),
    }
    costs, found = check_times(args.model, known, asked)
    for cost in costs:
        prices = zip(TERMS, cost.prices, strict=True)
        print(f"{cost.name}: " + ", ".join(f"{term} {1e6 * p:.3g} us" for term, p in prices))
    lines = [["workload", "clock", "predicted", "measured", "error"]]
    near: dict[str, bool] = {}
    for p in found:
        times = report.seconds(p.predicted), report.seconds(p.measured)
        lines.append([p.workload, p.clock, *times, f"{p.error:+.1%}"])
        near[p.workload] = near.get(p.workload, False) or abs(p.error) <= 0.25
    print(report.align(lines))
    return int(not all(near.values()))


if __name__ == "__main__":
    sys.exit(main())
