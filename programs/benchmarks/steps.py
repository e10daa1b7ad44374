"""Benchmarks of ramet on this machine, without peers: `steps` and `start`.

`steps`: what a step of the built-in model takes in int8: one row, rows of a prompt, and 64 forks
over a common beginning beside 64 sequences without one; in turn, medians. Then some of them again,
beside a process that keeps one core busy.

`start`: seconds from `ramet run` to the first token of a program, the first time after download
(nothing converted, nothing compiled) and the second.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from precision import Model, read_prompt, step

from ramet.runtime.config import cache_dir, worker_environment
from ramet.runtime.model.runner import ModelRunner

SLOTS = 12_288
FORKS, TAIL = 64, 17
GOALS = {1024: 1.6, 4096: 3.0}
"""By tokens of the common beginning: the step of forks over it, in steps of as many without one."""
PROMPT = 512
COMMAND = "from ramet.lang.cli import main; main()"
PROGRAM = """\
import ramet.lang as rm

@rm.function
def hello(s):
    s += "Hello" + rm.gen("more", max_tokens=1)

hello.run()["more"]
print("done", flush=True)
"""


def forks(runner: ModelRunner, prefix: int, count: int = FORKS) -> Callable[[], None]:
    """A step of `count` rows, each with `TAIL` tokens of its own over a common beginning."""
    above = [(0, prefix)] if prefix else []
    tails = [(prefix + 32 * number, [1] * TAIL) for number in range(count)]
    return lambda: step(runner, above, tails, TAIL - 1)


@contextmanager
def busy_core() -> Iterator[None]:
    """Another process that never rests."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


def in_turn(work: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Seconds of each, by name: the medians of so many rounds."""
    found: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, run in work.items():
            start = time.perf_counter()
            run()
            found[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in found.items()}


def steps(rounds: int) -> None:
    """Print what steps take."""
    runner = Model.find("smollm2-135m").runner("int8", SLOTS)
    for start in range(0, SLOTS, 4096):
        read_prompt(runner, [1] * 4096, start)
    work: dict[str, Callable[[], None]] = {
        "1 row": forks(runner, 0, 1),
        "1 row over 1,024": forks(runner, 1024, 1),
        f"{FORKS} rows": forks(runner, 0),
        **{f"{FORKS} rows over {prefix:,}": forks(runner, prefix) for prefix in GOALS},
        f"{PROMPT} rows of a prompt": lambda: step(runner, [], [(0, [1] * PROMPT)], 0),
    }
    alone = in_turn(work, rounds)
    for name, seconds in alone.items():
        print(f"{name:24} {seconds * 1e3:8.2f} ms")
    for prefix, goal in GOALS.items():
        ratio = alone[f"{FORKS} rows over {prefix:,}"] / alone[f"{FORKS} rows"]
        print(
            f"{FORKS} forks over {prefix:5,} tokens  {ratio:5.2f} × the step without (goal {goal})"
        )
    print(f"a prompt                 {PROMPT / alone[f'{PROMPT} rows of a prompt']:8.0f} tokens/s")
    some = {name: work[name] for name in ("1 row", f"{FORKS} rows", f"{PROMPT} rows of a prompt")}
    for name in some:
        here = in_turn({name: some[name]}, rounds)[name]
        with busy_core():
            beside = in_turn({name: some[name]}, rounds)[name]
        print(f"{name:24} {beside / here:8.2f} × beside a busy core of {os.cpu_count()}")


def first_token(folder: Path, cache: Path) -> float:
    """Seconds from `ramet run` to the first token of a program."""
    path = folder / "hello.py"
    path.write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-c", COMMAND, "run", str(path)]
    environment = {**worker_environment(), "RAMET_CACHE": str(cache)}
    start = time.perf_counter()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.perf_counter() - start
    if line != "done\n" or process.returncode:
        sys.exit(f"bench: the program ended with {process.returncode}")
    return seconds


def start(rounds: int) -> None:
    """Print how long a start takes."""
    gguf = cache_dir() / "gguf"
    if not gguf.is_dir():
        sys.exit(f"bench: {gguf} is not there; `ramet run` of any program fetches it")
    found = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            cache = Path(folder) / "cache"
            shutil.copytree(gguf, cache / "gguf")
            found.append([first_token(Path(folder), cache) for _ in range(2)])
    for name, goal, times in zip(
        ("first", "second"), (15, 5), zip(*found, strict=True), strict=True
    ):
        print(f"{name} start  {statistics.median(times):5.1f} s (goal {goal})")
