"""Ramet beside peers: which there are, starting them, and the rounds."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib import error, request

import ramet.lang as rm
from benchmarks import table, workloads
from benchmarks.checking import agreement, faults
from benchmarks.systems import Endpoint, Failed, Outcome, Peer, Ramet, System, cores
from benchmarks.table import Measured
from ramet.runtime import builtin_model, config

MODULES = {"transformers": "transformers", "llama-cpp": "llama_cpp", "vllm": "vllm"}
"""The peers that have a process, and the module that each needs."""


SPINS = (0, 300_000)
"""A peer's threads sleep at once, or look for work as often as libgomp does by itself.
Which is faster, by a factor of several, depends on what else the machine does."""


TRIALS = 3
"""Texts for which a peer's way of waiting is tried."""


class Wrong(Exception):
    """An argument can't be right; the message names it."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be run; building one checks what can be checked beforehand, or raises Wrong."""

    against: Sequence[str]
    """Kinds of peers, and URLs (`…/v1`, or `…/v1#model`)."""
    pythons: Sequence[str]
    """`PATH` for those peers that need an interpreter of their own, or `PEER=PATH`."""
    workloads: Sequence[str]
    quick: bool
    rounds: int
    model: str | None
    deadline: float
    """Longest time in seconds for a peer to load, and for each run of one."""
    spin: int | None = None
    """How often a peer's OpenMP threads look for work before they sleep (GOMP_SPINCOUNT); None: as
    is faster, `SPINS`."""

    def __post_init__(self) -> None:
        for name in self.workloads:
            if name not in workloads.BUILDERS:
                known = ", ".join(workloads.BUILDERS)
                raise Wrong(f"--workloads: {name!r} is none of {known}")
        for name in self.against:
            if name not in MODULES and not name.startswith(("http://", "https://")):
                raise Wrong(f"--against {name}: must be {', '.join(MODULES)} or an http(s) URL")
        if len(set(self.against)) < len(self.against):
            raise Wrong(f"--against {' '.join(self.against)}: names one twice")
        if self.deadline <= 0:
            raise Wrong(f"--deadline {self.deadline:g}: must be above 0")
        if self.spin is not None and self.spin < 0:
            raise Wrong(f"--spin {self.spin}: must be at least 0")
        self._check_pythons()

    def _check_pythons(self) -> None:
        for given in self.pythons:
            kind, path = _split(given)
            wanted = [kind] if kind else ["llama-cpp", "vllm"]
            if not set(wanted) & set(self.against):
                raise Wrong(
                    f"--peer-python {given}: is for {' and '.join(wanted)}, not named by --against "
                    "(transformers runs in this interpreter unless transformers=PATH)"
                )
            if shutil.which(path) is None:
                raise Wrong(f"--peer-python {given}: there is no such program")
        for kind in self.against:
            module = MODULES.get(kind)
            here = module and self.python(kind) == sys.executable
            if module and here and importlib.util.find_spec(module) is None:
                raise Wrong(
                    f"--against {kind}: {module} is not installed here; --peer-python "
                    f"{kind}=PATH names an interpreter that has it"
                )

    def python(self, kind: str) -> str:
        """The interpreter of a peer."""
        named = [path for of, path in map(_split, self.pythons) if of == kind]
        anywhere = [path for of, path in map(_split, self.pythons) if not of]
        if kind == "transformers":
            anywhere = []
        return [*reversed(named), *reversed(anywhere), sys.executable][0]


def _split(given: str) -> tuple[str, str]:
    """The peer ("" for any) and the path of one --peer-python."""
    kind, equals, path = given.partition("=")
    return (kind, path) if equals and kind in MODULES else ("", given)


def start(kind: str, plan: Plan, spin: int) -> System:
    """A peer, loaded; raises Failed."""
    if kind not in MODULES:
        url, _, model = kind.partition("#")
        return Endpoint(url, model or _served(url), plan.deadline)
    folder = builtin_model.resolve_model(plan.model).dir
    gguf: Path | None = None
    if plan.model in (None, builtin_model.SMOLLM2.name):
        gguf = config.cache_dir() / "gguf" / builtin_model.SMOLLM2.gguf_name
    elif Path(str(plan.model)).suffix == ".gguf":
        gguf = Path(str(plan.model)).expanduser()
    load: dict[str, Any] = {"folder": folder and str(folder), "cores": cores()}
    if kind == "llama-cpp" and gguf is not None and not gguf.is_file():
        raise Failed(f"llama-cpp: {gguf} is gone; remove {folder} and it is fetched again")
    load["gguf"] = gguf and str(gguf)
    return Peer(kind, plan.python(kind), load, plan.deadline, spin)


def start_faster(kind: str, plan: Plan) -> System:
    """A peer, loaded, that waits in the way of `SPINS` that decodes a text faster."""
    if kind not in MODULES or plan.spin is not None:
        return start(kind, plan, plan.spin or 0)
    text = workloads.build("single-stream", 0, True).programs
    with contextlib.ExitStack() as stack:
        tried: list[tuple[float, System]] = []
        for spin in SPINS:
            system = start(kind, plan, spin)
            stack.callback(system.close)
            system.run(workloads.warm_up().programs)
            seconds = min(system.run(text).seconds for _ in range(TRIALS))
            tried.append((seconds, system))
        chosen = min(tried, key=lambda one: one[0])[1]
        stack.pop_all()
    for _, system in tried:
        if system is not chosen:
            system.close()
    return chosen


def _served(url: str) -> str:
    """The first model that an endpoint offers."""
    try:
        with request.urlopen(url.rstrip("/") + "/models", timeout=10) as answer:
            return str(json.loads(answer.read())["data"][0]["id"])
    except (error.URLError, OSError, ValueError, LookupError, TypeError) as failure:
        raise Failed(f"{url}/models names no model: {failure}") from None


def compare(plan: Plan, say: Callable[[str], None]) -> tuple[dict[str, Any], str | None]:
    """What was measured, and why it ended early if it did. Raises Failed if it can't begin."""
    with contextlib.ExitStack() as stack:
        systems: list[System] = []

        def take(system: System) -> None:
            stack.callback(system.close)
            systems.append(system)
            say(f"{system.name}: {system.version}; {system.settings}")

        take(Ramet(plan.model, plan.deadline))
        for kind in plan.against:
            take(start_faster(kind, plan))
        for system in systems:
            system.run(workloads.warm_up().programs)
        measured: list[Measured] = []
        failure = None
        begin = time.perf_counter()
        for name in plan.workloads:
            try:
                done = _workload(name, systems, plan)
            except (Failed, rm.RametError) as error:
                failure = f"{name}: {error}"
                break
            measured += done
            say(table.line(done))
        say(f"{time.perf_counter() - begin:.0f} s in all, without loading")
        settings = {system.name: system.settings for system in systems}
    return table.report(measured, settings, plan.quick, plan.rounds), failure


def _workload(name: str, systems: Sequence[System], plan: Plan) -> list[Measured]:
    """All rounds of one workload; in each, the systems take turns on the same texts."""
    found = [Measured(name, system.name, system.version) for system in systems]
    for number in range(1, plan.rounds + 1):
        workload = workloads.build(name, number, plan.quick)
        outcomes: list[Outcome] = [system.run(workload.programs) for system in systems]
        for system, one, outcome in zip(systems, found, outcomes, strict=True):
            one.seconds.append(outcome.seconds)
            answers = [answer for results in outcome.results for answer in results.values()]
            one.tokens.append(sum(sum(answer.num_tokens) for answer in answers))
            for fault in faults(workload, outcome, system.constraints):
                one.faults += [] if one.faults else [fault]
            if outcome is not outcomes[0]:
                same, total = agreement(workload, outcomes[0], outcome)
                one.same += same
                one.comparable += total
    peers = sorted(found[1:], key=lambda one: one.same)
    if peers:
        found[0].same, found[0].comparable = peers[-1].same, peers[-1].comparable
    return found
