"""Probe: whether a constraint compiles, found out by a process that can be stopped.

A thread can't be. So what is large, or has exceeded the usual limits, is tried here first, with a
deadline in seconds and a limit of memory; the engine then builds only what is known to end.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

from ramet.runtime.errors import GrammarError, RametError, from_wire, to_wire
from ramet.runtime.grammar.limits import Limits
from ramet.runtime.grammar.source import Source
from ramet.runtime.grammar.spec import Constraint

MEMORY_BYTES = 4 << 30
"""Most address space of the process."""


def source_apart(constraint: Constraint, limits: Limits, seconds: float) -> Source:
    """`front_ends.source_of`, by a process that also builds a matcher under `limits`.

    Raises GrammarError if that fails or isn't done after so many seconds.
    """
    order = {
        "constraint": constraint.to_wire(),
        "limits": dataclasses.asdict(limits),
        "seconds": seconds,
    }
    command = [sys.executable, "-m", "ramet.runtime.grammar.probe"]
    try:
        done = subprocess.run(
            command, input=json.dumps(order).encode(), capture_output=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        raise GrammarError(
            f"{constraint.kind}={constraint.text!r:.200}: not compiled within {seconds:g} s"
        ) from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise GrammarError(
            f"{constraint.kind}={constraint.text!r:.200}: its compilation ended with status "
            f"{done.returncode}: it needs more time or memory than it may have"
        ) from None
    if "error" in answer:
        raise from_wire(*answer["error"])
    return Source(answer["lark"], tuple(answer["unenforced"]))


def main() -> None:
    """Read an order from standard input, write the answer to standard output."""
    order = json.load(sys.stdin.buffer)
    _limit(order["seconds"])
    threading.Thread(target=_die_with, args=(os.getppid(),), daemon=True).start()
    try:
        answer = _answer(Constraint(**order["constraint"]), Limits(**order["limits"]))
    except (RametError, MemoryError, RecursionError) as error:
        answer = {"error": list(to_wire(error))}
    json.dump(answer, sys.stdout)


def _answer(constraint: Constraint, limits: Limits) -> dict[str, Any]:
    from ramet.runtime.grammar.front_ends import source_of
    from ramet.runtime.grammar.grammar import Grammar

    source = source_of(constraint)
    Grammar(constraint, source, None, limits).byte_matcher()
    return {"lark": source.lark, "unenforced": source.unenforced}


def _die_with(parent: int) -> None:
    """End this process when nobody is left who waits for it."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def _limit(seconds: float) -> None:
    """Let the system end this process, should nobody else: where it can."""
    try:
        import resource
    except ImportError:
        return
    cpu = int(seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


if __name__ == "__main__":
    main()
