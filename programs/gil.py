"""What busy user code costs a decode step: the engine in its own process, and on a thread.

Four pure-Python threads spin in this process while one sequence is generated. On a thread the
engine shares their interpreter lock; in a process it doesn't, which is why that is the default.

    python programs/gil.py [--model tiny] [--tokens 64] [--repeats 5]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import threading
import time
from collections.abc import Iterator

from ramet.lang import Runtime

BUSY_THREADS = 4


@contextlib.contextmanager
def busy_threads(num_threads: int) -> Iterator[None]:
    stop = threading.Event()

    def spin() -> None:
        count = 0
        while not stop.is_set():
            count += 1

    threads = [threading.Thread(target=spin) for _ in range(num_threads)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def decode(runtime: Runtime, tokens: int) -> tuple[float, float]:
    """Milliseconds per token of one sequence: in the engine, and as its caller waits for it."""
    params = {"max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    begun = time.perf_counter()
    output = runtime.generate("The quick brown fox", params)
    waited = time.perf_counter() - begun
    assert isinstance(output, dict)
    return 1e3 * output["meta"]["run_s"] / tokens, 1e3 * waited / tokens


def measure(isolation: str, model: str, tokens: int, repeats: int) -> None:
    quiet, busy = [], []
    with Runtime(model=model, isolation=isolation) as runtime:
        decode(runtime, tokens)  # Everything is compiled and warm after this one.
        for _ in range(repeats):
            quiet.append(decode(runtime, tokens))
            with busy_threads(BUSY_THREADS):
                busy.append(decode(runtime, tokens))
    for index, place in enumerate(("engine", "caller")):
        alone = statistics.median(pair[index] for pair in quiet)
        crowded = statistics.median(pair[index] for pair in busy)
        print(
            f"{isolation:9} {place:7} {alone:9.2f} {crowded:9.2f} {crowded / alone:7.1f}x",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    print(f"{'isolation':9} {'ms/step':7} {'quiet':>9} {'busy':>9} {'ratio':>8}")
    for isolation in ("process", "thread"):
        measure(isolation, args.model, args.tokens, args.repeats)


if __name__ == "__main__":
    main()
