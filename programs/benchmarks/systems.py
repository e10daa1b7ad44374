"""The systems of the benchmark behind one interface: ramet, peers' processes, endpoints.

Each executes the same programs (`benchmarks.calls`): ramet as a program of its language, a peer in
a process that runs `peers/peer.py`, an OpenAI-compatible endpoint by ramet's client for those.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import ramet.lang as rm
from benchmarks.calls import Step, Steps, calls_of, name_of
from ramet.runtime import config

PEER = Path(__file__).resolve().parent / "peers" / "peer.py"
SHOWN_LINES = 12
"""Lines of a failed peer's output that are shown."""


class Failed(Exception):
    """A system can't start, can't go on or doesn't answer; the message says what and why."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """What one call gave."""

    texts: list[str]
    """Per sample."""
    num_tokens: list[int]
    """Per sample."""
    first: list[int | None]
    """Per sample the first token, where it is known."""
    picked: str | None = None
    """The choice of a select."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One timed run."""

    seconds: float
    results: list[dict[str, Answer]]
    """Per program, by the call's name."""


class System(Protocol):
    """Something that executes programs."""

    name: str
    version: str
    settings: str
    """How it is set, in words."""
    constraints: bool
    """Whether it can write JSON of a schema."""

    def run(self, programs: list[Steps]) -> Outcome:
        """Execute them all, with nothing left of the run before; raises Failed."""

    def close(self) -> None:
        """End it."""


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ramet_version() -> str:
    """Of the checkout, else of the installed package."""
    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    if project.is_file():
        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])
    return metadata.version("ramet")


@rm.function
async def walk(s: rm.ProgramState, steps: Steps, constraints: bool) -> dict[str, rm.ProgramState]:
    """Any of the benchmark's programs; returns the states that have its values, by name."""
    found: dict[str, rm.ProgramState] = {}
    await follow(s, steps, constraints, found)
    return found


async def follow(
    s: rm.ProgramState, steps: Steps, constraints: bool, found: dict[str, rm.ProgramState]
) -> None:
    """The steps of one branch."""
    own: list[str] = []
    for step in steps:
        if "text" in step:
            s += step["text"]
        elif "gen" in step:
            options: dict[str, Any] = {"max_tokens": step["max_tokens"], "ignore_eos": True}
            if step["schema"] is not None:
                if constraints:
                    options = {"max_tokens": step["max_tokens"], "json_schema": step["schema"]}
                else:
                    options["max_tokens"] = step["free_tokens"]
            s += rm.gen(step["gen"], temperature=step["temperature"], n=step["n"], **options)
            found[step["gen"]] = s
            own.append(step["gen"])
        elif "select" in step:
            s += rm.select(step["select"], step["choices"])
            found[step["select"]] = s
            own.append(step["select"])
        elif "read" in step:
            for name in own:
                await s.get(name)
        else:
            forks = s.fork(len(step["fork"]))
            branches = zip(forks, step["fork"], strict=True)
            await asyncio.gather(*(follow(f, b, constraints, found) for f, b in branches))
            if step["append"]:
                await forks.ajoin("concate_and_append")


class Language:
    """Programs of `ramet.lang` on a backend."""

    def __init__(self, backend: Any, constraints: bool, seconds: float) -> None:
        self._backend, self.constraints, self._seconds = backend, constraints, seconds

    def run(self, programs: list[Steps]) -> Outcome:
        """See `System`."""
        items = [{"steps": steps, "constraints": self.constraints} for steps in programs]
        start = time.perf_counter()
        batch = walk.arun_batch(items, backend=self._backend, seed=1, timeout=self._seconds)
        states = asyncio.run(batch)
        seconds = time.perf_counter() - start
        return Outcome(
            seconds,
            [
                {name_of(step): answer(found.ret_value, step) for step, _ in calls_of(steps)}
                for steps, found in zip(programs, states, strict=True)
            ],
        )

    def close(self) -> None:
        """See `System`."""
        self._backend.shutdown()


def answer(states: dict[str, rm.ProgramState], step: Step) -> Answer:
    """What a program's call gave."""
    name = name_of(step)
    value = states[name][name]
    if "select" in step:
        return Answer([], [], [], picked=value)
    found = states[name].meta(name)
    texts, metas = (value, found) if isinstance(value, list) else ([value], [found])
    # Endpoints don't count the tokens of each of n samples; those cut at the limit are known.
    limit = {"length": step["max_tokens"]}
    counts = [meta["completion_tokens"] or limit.get(meta["finish_reason"], 0) for meta in metas]
    ids = [meta.get("output_token_ids") or [None] for meta in metas]
    return Answer(texts, counts, [one[0] for one in ids])


class Ramet(Language):
    """The embedded engine."""

    name = "ramet"

    def __init__(self, model: str | None, seconds: float) -> None:
        runtime = rm.Runtime(model)
        super().__init__(runtime, True, seconds)
        self._runtime = runtime
        self.version = f"ramet {ramet_version()}"
        info = runtime.info
        self.settings = f"its defaults: {info['dtype']} on {info['device']}, {cores()} cores"

    def run(self, programs: list[Steps]) -> Outcome:
        """See `System`."""
        self._runtime.flush_cache()
        return super().run(programs)


class Endpoint(Language):
    """An OpenAI-compatible completions endpoint."""

    def __init__(self, url: str, model: str, seconds: float) -> None:
        backend = rm.OpenAI(
            url, model, chat=False, timeout=seconds, max_retries=0, extra=["ignore_eos"]
        )
        super().__init__(backend, False, seconds)
        self.name, self.version = url, f"model {model}"
        self.settings = (
            "as the server was started; 32 requests at once, ignore_eos, select by echo and "
            "logprobs; no constraints: free text instead of JSON"
        )

    def run(self, programs: list[Steps]) -> Outcome:
        """See `System`."""
        try:
            return super().run(programs)
        except rm.RametError as error:
            raise Failed(f"{self.name}: {error}") from None


class Peer:
    """A peer in a process of its own; each answer has a deadline."""

    def __init__(
        self, kind: str, python: str, load: dict[str, Any], seconds: float, spin: int
    ) -> None:
        self.name, self._seconds = kind, seconds
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, closed by `close`
        number = str(load["cores"])
        settings = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0", "OMP_NUM_THREADS": number}
        settings["GOMP_SPINCOUNT"] = str(spin)
        vllm = {
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_CPU_KVCACHE_SPACE": "4",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        }
        try:
            self._process = subprocess.Popen(
                [python, str(PEER), kind],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**config.worker_environment(), **settings, **vllm},
                start_new_session=True,
                text=True,
                encoding="utf-8",
            )
        except OSError as error:
            self._errors.close()
            raise Failed(f"{kind}: {python} can't be started: {error}") from None
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        about = self._ask({"load": load}, "ready")
        self.version, self.constraints = str(about["version"]), bool(about["constraints"])
        waiting = "OMP_WAIT_POLICY=passive" + (f", GOMP_SPINCOUNT={spin}" if spin else "")
        self.settings = f"{about['settings']}; {waiting}"

    def run(self, programs: list[Steps]) -> Outcome:
        """See `System`; the time is the peer's own."""
        done = self._ask({"run": programs}, "done")
        kinds = [{name_of(step): step for step, _ in calls_of(steps)} for steps in programs]
        return Outcome(
            float(done["seconds"]),
            [
                {name: peer_answer(found, kind[name]) for name, found in result.items()}
                for kind, result in zip(kinds, done["results"], strict=True)
            ],
        )

    def close(self) -> None:
        """See `System`."""
        # All of its group: engines have processes of their own.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(5)
        for file in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(OSError):  # What was not written can't be any more.
                if file is not None:
                    file.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # It has ended, which the reader notices.
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def _ask(self, message: dict[str, Any], wanted: str) -> Any:
        # On a thread: a peer that doesn't read would block the writing of a long message.
        threading.Thread(target=self._write, args=(message,), daemon=True).start()
        try:
            line = self._lines.get(timeout=self._seconds)
        except queue.Empty:
            self._fail(f"gave no answer within {self._seconds:g} s (--deadline)")
        if not line:
            self._fail("ended")
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict) or wanted not in found:
            error = found.get("error") if isinstance(found, dict) else None
            self._fail(f"failed: {error}" if error else f"gave no {wanted!r} but {line[:200]!r}")
        return found[wanted]

    def _fail(self, what: str) -> Any:
        with contextlib.suppress(subprocess.TimeoutExpired):
            what += f" (exit status {self._process.wait(1)})"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()[-SHOWN_LINES:]
        self.close()
        shown = "".join(f"\n    {line}" for line in lines)
        raise Failed(f"{self.name} {what}{'; the last that it printed:' if lines else ''}{shown}")


def peer_answer(found: dict[str, Any], step: Step) -> Answer:
    """What a peer's call gave."""
    if "select" in step:
        return Answer([], [], [], picked=step["choices"][found["picked"]])
    ids = found["ids"]
    return Answer(
        found["texts"], [len(one) for one in ids], [one[0] if one else None for one in ids]
    )
