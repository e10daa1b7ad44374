"""Benchmarks of ramet: beside peers, or of its own parts.

    python programs/bench.py --quick --against transformers
    python programs/bench.py --against llama-cpp --peer-python PATH --json bench.json
    python programs/bench.py frontend

Without a name, programs that call a model many times run on the built-in model and on each peer in
turn, and the times are compared; `programs/BENCHMARKS.md` says what the workloads are, how peers
are set, and what was measured last. `frontend`, `scheduler` and `constrained` measure what calls,
the engine's work around a step, and constraints cost (`benchmarks/inner.py`); `steps` and `start`
what steps of the model and the start of a program take (`benchmarks/steps.py`).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # Its parts, from wherever it is run.

from benchmarks import inner, steps, table, workloads
from benchmarks.compare import Plan, Wrong, compare
from benchmarks.systems import Failed


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; what is wrong with them ends it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    names = ["frontend", "scheduler", "constrained", "steps", "start"]
    add("name", nargs="?", choices=names, help="a part of ramet, instead of the workloads")
    add("--rounds", type=int, metavar="N", help="rounds (3; --quick 1; parts 20, start 3)")
    several = {"action": "extend", "default": [], "nargs": "+"}
    add("--against", **several, metavar="PEER", help="transformers, llama-cpp, vllm, or a URL")
    add("--peer-python", **several, metavar="PATH", help="of llama-cpp and vllm, or PEER=PATH")
    add("--workloads", metavar="A,B", help=f"some of {', '.join(workloads.BUILDERS)} (all)")
    add("--quick", action="store_true", help="small sizes: under a minute beside transformers")
    add("--model", help="another model than the built-in one")
    add("--deadline", type=float, default=1200, metavar="S", help="seconds a peer may take (1200)")
    add("--spin", type=int, metavar="N", help="GOMP_SPINCOUNT of peers (0 or as usual)")
    add("--json", type=Path, metavar="FILE", help="write what was measured")
    add("--picture", type=Path, metavar="FILE.png", help="draw the ratios (needs matplotlib)")
    add("--markdown", type=Path, metavar="FILE", help="only print the tables of a --json FILE")
    add("--runs", type=int, default=64, metavar="N", help="frontend: programs a round (64)")
    add("--rows", type=int, nargs="+", default=[1, 16, 64, 256], help="scheduler: running rows")
    add("--waiting", type=int, nargs="+", default=[100, 1000, 10_000], help="scheduler: calls")
    options = parser.parse_args(argv)
    if options.rounds is None:
        of_parts = 3 if options.name == "start" else 20
        options.rounds = of_parts if options.name else 1 if options.quick else 3
    for name in ("rounds", "runs", "rows", "waiting"):
        value = getattr(options, name)
        if min(value if isinstance(value, list) else [value]) < 1:
            parser.error(f"--{name} {value}: must be at least 1")
    for path in (options.json, options.picture):
        if path and not path.absolute().parent.is_dir():
            parser.error(f"{path}: there is no folder {path.absolute().parent}")
    if options.picture and importlib.util.find_spec("matplotlib") is None:
        parser.error("--picture: matplotlib is not installed")
    if options.picture and not options.against:
        parser.error("--picture: there are no ratios without --against")
    chosen = options.workloads.split(",") if options.workloads else list(workloads.BUILDERS)
    try:
        options.plan = Plan(
            options.against,
            options.peer_python,
            chosen,
            options.quick,
            options.rounds,
            options.model,
            options.deadline,
            options.spin,
        )
    except Wrong as error:
        parser.error(str(error))
    return options


def main(argv: Sequence[str] | None = None) -> None:
    """Run a benchmark and print its table."""
    options = parse(argv)
    if options.markdown:
        print(table.markdown(json.loads(options.markdown.read_text(encoding="utf-8"))), end="")
    elif options.name == "frontend":
        inner.frontend(options.runs, options.rounds)
    elif options.name == "constrained":
        inner.constrained(options.rounds)
    elif options.name == "steps":
        steps.steps(options.rounds)
    elif options.name == "start":
        steps.start(options.rounds)
    elif options.name == "scheduler":
        inner.scheduler(options.rows, options.waiting, options.rounds)
    else:
        try:
            found, failure = compare(options.plan, lambda text: print(text, flush=True))
        except Failed as error:
            sys.exit(f"bench: {error}")
        for line in table.summary(found):
            print(line)
        if options.json:
            table.write(found, options.json)
        if options.picture and found["ratios"]:
            table.picture(found, options.picture)
        if failure:
            sys.exit(f"bench: ended early: {failure}")


if __name__ == "__main__":
    main()
