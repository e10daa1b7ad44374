"""Benchmarks of ramet itself. Run one by its name:

    python programs/bench.py frontend

`frontend`: the Python that a call costs the user's process, beyond turning text into tokens, for
programs that run as they are written and compiled. It is processor time of the whole process (the
engine runs in another one), the least of several rounds. On a shared machine times vary with what
else runs, so the cost of sending and receiving the same messages as JSON stands beside them.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Sequence

import ramet.lang as rm

CALLS = 10


@rm.function
def chain(s: rm.ProgramState, question: str) -> None:
    """Ten short calls on one context."""
    s += "Q: " + question + "\n"
    for _ in range(CALLS):
        s += "A:" + rm.gen("answer", max_tokens=1, temperature=0)


def least(work: Callable[[], object], rounds: int, divisor: int) -> float:
    """Processor seconds of one round over `divisor`, the least of `rounds`, in microseconds."""
    times = []
    for _ in range(rounds):
        gc.collect()
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times) / divisor * 1e6


def frontend(runs: int, rounds: int) -> None:
    """Print microseconds of Python per call."""
    with rm.Runtime(model="tiny") as runtime:
        rm.set_default_backend(runtime)
        tokenizer = runtime.tokenizer
        count = runs * CALLS

        def tokenise() -> None:
            for _ in range(count):
                tokenizer.encode([("A:", "text")], continuation=True)

        meta = dict(chain.run(question="0").meta("answer"))
        meta["prompt_token_ids"] = []  # They don't cross.
        op = {
            "op": "generate",
            "ctx": 1,
            "call": 2,
            "params": {"max_new_tokens": 1, "temperature": 0},
            "keys": [2**63],
            "stream": False,
            "site": f"{__file__}:30",
        }
        event = {"ev": "done", "call": 2, "results": [{"text": "x"}], "meta": meta}

        def as_json() -> None:
            for _ in range(count):
                json.dumps([op])
                json.loads(json.dumps([event]))

        items = [{"question": str(number)} for number in range(runs)]
        compiled = chain.compile()
        tokens = least(tokenise, rounds, count)
        floor = least(as_json, rounds, count)
        print(f"turning the text into tokens     {tokens:6.1f} µs a call (not counted below)")
        print(f"the same messages as JSON        {floor:6.1f} µs a call")
        for name, program in (("interpreted", chain), ("compiled", compiled)):
            program.run_batch(items)
            cost = least(lambda p=program: p.run_batch(items), rounds, count) - tokens  # type: ignore[misc]
            print(
                f"{name:12} programs            {cost:6.1f} µs a call, {cost / floor:4.1f} × JSON"
            )
        rm.set_default_backend(None)


def main(argv: Sequence[str] | None = None) -> None:
    """Run a benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("name", choices=["frontend"], help="which one")
    parser.add_argument("--runs", type=int, default=64, metavar="N", help="programs a round (64)")
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="rounds (20)")
    options = parser.parse_args(argv)
    frontend(options.runs, options.rounds)


if __name__ == "__main__":
    main()
