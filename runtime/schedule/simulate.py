"""The simulator's door: `python -m ramet.runtime.schedule.simulate`.

It drives the engine's own scheduler, tree, ledger, policies and graphs over a machine that only
keeps time (`runtime.simulation`), without torch and without a model.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ramet.runtime.config import POLICIES, RuntimeConfig
from ramet.runtime.errors import InvalidArgument, RametError
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
  python -m ramet.runtime.schedule.simulate --workload agents --policy program --eviction future lru
  python -m ramet.runtime.schedule.simulate steps    what the literature's steps gain
  python -m ramet.runtime.schedule.simulate check    the simulator against the real engine

The table: time to first token of a call (TTFT) and gaps between the tokens of a sample (ITL), as
mean, median and 99th percentile; the hit rate, where what had to be computed again is a miss, and
what it is of the best that any order could reach with room for all; tokens that had to be
computed over those that were ("once"; with replicas, of one cache for all); recomputed tokens;
calls that were refused, as they can't fit (all figures are of the others); retractions; makespan.
"""


class _Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows defaults, and leaves the examples as they are."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    command = words.pop(0) if words[:1] in (["steps"], ["check"], ["compare"]) else "compare"
    args = _PARSERS[command]().parse_args(words)
    try:
        if command == "steps":
            print(steps.table(list(steps.rows(args.calls, PRESETS[args.cost]))))
        elif command == "check":
            return _check(args)
        else:
            _compare(args)
    except RametError as error:
        print(f"simulate: {error}", file=sys.stderr)
        return 2
    return 0


def _whole(low: int, high: int) -> Callable[[str], int]:
    """An argument that is an int in those bounds."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text}: must be an int from {low} to {high}")
        return value

    return parse


def _pool(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1 << 31 or (value > 1 and not value.is_integer()):
        raise argparse.ArgumentTypeError(
            f"{text}: must be a share above 0, up to 1, or whole slots"
        )
    return value


_CALLS = _whole(1, 10_000_000)
_ANY = _whole(-(1 << 63), 1 << 63)


def _parser(about: str, calls: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ramet.runtime.schedule.simulate",
        description=about,
        epilog=_EXAMPLES,
        formatter_class=_Help,
    )
    parser.add_argument("--calls", type=_CALLS, default=calls, help="calls to the model")
    return parser


def _steps_parser() -> argparse.ArgumentParser:
    parser = _parser("Show what the literature's steps gain. Takes some minutes.", 300)
    add = parser.add_argument
    add("--cost", choices=sorted(PRESETS), default="llama-8b-h100", help="cost model")
    return parser


def _check_parser() -> argparse.ArgumentParser:
    parser = _parser(
        "Check predicted times against the real engine's: status 1 if one is off by more than a "
        "quarter by both clocks, as on a machine that does other things meanwhile.",
        12,
    )
    parser.add_argument("--seed", type=_ANY, default=1, help="of the workload")
    parser.add_argument("--model", help="the model to measure; None is the built-in one")
    return parser


def _compare_parser() -> argparse.ArgumentParser:
    parser = _parser(
        "Simulate the engine's scheduling, without a model, to compare settings. "
        "`steps` and `check` instead of options are other commands.",
        2000,
    )
    add = parser.add_argument
    add("--workload", choices=sorted(WORKLOADS), default="few_shot", help="what comes")
    add("--seed", type=_ANY, default=1, help="of the workload")
    add("--policy", nargs="+", choices=POLICIES, default=list(POLICIES), help="order of admission")
    add(
        "--pool",
        nargs="+",
        type=_pool,
        default=[0.25],
        help="KV slots, or with numbers up to 1 the share of all distinct tokens; of each replica",
    )
    add("--cost", choices=sorted(PRESETS), default="llama-8b-h100", help="cost model")
    add("--page-size", type=int, default=64, help="slots")
    add("--chunk-tokens", type=int, default=2048, help="most rows of a step")
    add("--max-running", type=int, default=256, help="most samples at once")
    add("--max-overtakes", type=int, help="of policy program; None is four times the pool")
    add("--target-step-ms", type=float, help="adapt chunks to this step time")
    add(
        "--eviction",
        nargs="+",
        choices=("future", "lru"),
        default=["future"],
        help="what is given up first: by what is known of the future, or by recency",
    )
    add("--replicas", type=_whole(1, 256), nargs="+", default=[1], help="engines of this pool each")
    add("--router", nargs="+", choices=sorted(ROUTERS), help="of replicas; None is longest_prefix")
    add("--picture", type=Path, help="write a chart there (pip install 'ramet[plot]')")
    return parser


_PARSERS = {"compare": _compare_parser, "steps": _steps_parser, "check": _check_parser}


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """The engine's settings, checked as a Runtime checks them; raises InvalidArgument."""
    if args.router and max(args.replicas) == 1:
        raise InvalidArgument(f"router={args.router[0]}: one replica needs no router")
    settings: dict[str, Any] = {
        "page_size": args.page_size,
        "chunk_tokens": args.chunk_tokens,
        "max_running": args.max_running,
        "target_step_ms": args.target_step_ms,
    }
    policy = "program" if "program" in args.policy else args.policy[0]
    RuntimeConfig(policy=policy, max_overtakes=args.max_overtakes, **settings)
    if args.picture is not None:
        report.check_picture(args.picture)
    return settings


def _slots(pool: float, distinct: int, page_size: int) -> int:
    """The pool in slots; raises InvalidArgument if that is no whole page."""
    slots = int(pool * distinct) if pool <= 1 else int(pool)
    if slots < page_size:
        raise InvalidArgument(f"pool={pool:g}: {slots} slots are no page of page_size={page_size}")
    return slots


def _compare(args: argparse.Namespace) -> None:
    settings = _settings(args)
    arrivals = list(WORKLOADS[args.workload](args.seed, args.calls))
    cost = PRESETS[args.cost]
    distinct = 0
    if min(args.pool) <= 1:
        ample = simulate(arrivals, cost, **settings, pool_tokens=1 << 32)
        distinct = int(ample.stats["optimum_tokens"])
        print(f"{args.workload}: {args.calls:,} calls, {distinct:,} distinct tokens, {cost.name}\n")
    pools = {pool: _slots(pool, distinct, args.page_size) for pool in args.pool}
    rows: list[tuple[str, Outcome]] = []
    started = time.perf_counter()
    engines = [
        (replicas, router)
        for replicas in args.replicas
        for router in ((args.router or ["longest_prefix"]) if replicas > 1 else [""])
    ]
    for pool, policy, eviction, (replicas, router) in itertools.product(
        args.pool, args.policy, args.eviction, engines
    ):
        one = {
            **settings,
            "policy": policy,
            "max_overtakes": args.max_overtakes,
            "pool_tokens": pools[pool],
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
    print(f"\n{args.calls * len(rows):,} calls simulated in {seconds:.1f} s")
    if args.picture is not None:
        report.picture(rows, args.picture, f"{args.workload}, {args.calls:,} calls, {cost.name}")


def _check(args: argparse.Namespace) -> int:
    """Predictions against measurements; status 1 if one is off by more than a quarter by both
    clocks."""
    from ramet.runtime.simulation.check import check_times, shrink

    calls = args.calls
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
