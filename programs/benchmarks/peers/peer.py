"""A peer's side of the benchmark: runs in the peer's own interpreter and imports nothing of ramet.

    python peer.py llama-cpp|vllm|transformers

It speaks JSON lines. First comes `{"load": {"folder", "gguf", "cores"}}`, answered by `{"ready":
{"version", "settings", "constraints"}}`; then any number of `{"run": [steps, …]}`, answered by
`{"done": {"seconds", "results"}}`, where results are, per program, a dict of a call's name to its
`ids` (one list per sample) and `text`, or to `picked`. What goes wrong is `{"error": …}`, and ends
it, as the end of its input does.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Protocol

KINDS = {"llama-cpp": "on_llama_cpp", "vllm": "on_vllm", "transformers": "on_transformers"}


@dataclasses.dataclass
class Call:
    """A call whose prompt is known."""

    ids: list[int]
    """The prompt."""
    step: dict[str, Any]
    """What is asked for, see `benchmarks/calls.py`."""
    choices: list[list[int]]
    """The tokens of each choice of a select."""
    more: bool
    """Whether its branch goes on after it."""
    seed: int
    """For the samples of a temperature."""


@dataclasses.dataclass
class Result:
    """What a call gave."""

    samples: list[list[int]] = dataclasses.field(default_factory=list)
    """Token ids, per sample."""
    picked: int | None = None
    """Which choice."""


class System(Protocol):
    """A peer. It takes calls as they become ready, and gives each back when it is done."""

    version: str
    settings: str
    """How it is set, in words, for the table."""
    constraints: bool
    """Whether it can write JSON of a schema."""

    def tokenize(self, text: str) -> list[int]:
        """The tokens of a text, special ones included, with nothing put in front."""

    def detokenize(self, ids: list[int]) -> str:
        """The text of tokens, without the special ones."""

    def begin(self) -> None:
        """A run begins: drop whatever only helps within one."""

    def add(self, calls: list[Call]) -> None:
        """Calls that became ready together, in the order of the programs."""

    def finished(self) -> list[tuple[Call, Result]]:
        """Work until something is done, and give it."""


Walk = Generator[Any, Any, list[int]]


class Execution:
    """Programs on a system: each call is handed over as soon as those that it depends on are done.

    The prompt is kept as token ids, and each piece of text is tokenised once: what a peer generated
    is never tokenised again, so that its prefix cache always fits.
    """

    def __init__(self, system: System, programs: Sequence[Any]) -> None:
        self._system = system
        self.results: list[dict[str, Result]] = [{} for _ in programs]
        """Per program, by the call's name."""
        self._known: dict[str, list[int]] = {}
        self._ready: list[Call] = []
        self._waiting: dict[int, Walk] = {}
        self._parents: dict[int, tuple[Walk, list[Any], int]] = {}
        self._seeds = 0
        for number, steps in enumerate(programs):
            self._advance(self._walk(steps, [], self.results[number]), None)

    def run(self) -> None:
        """To the end."""
        while self._ready or self._waiting:
            if self._ready:
                ready, self._ready = self._ready, []
                self._system.add(ready)
            for call, result in self._system.finished():
                self._advance(self._waiting.pop(id(call)), (call, result))

    def _tokenize(self, text: str) -> list[int]:
        if not text:
            return []
        if text not in self._known:
            self._known[text] = self._system.tokenize(text)
        return self._known[text]

    def _walk(self, steps: list[Any], ids: list[int], results: dict[str, Result]) -> Walk:
        """A branch: yields a Call for its Result, or a list of branches for what they end with."""
        pending = ""
        for place, step in enumerate(steps):
            if "text" in step:
                pending += step["text"]
                continue
            if "read" in step:  # A peer's prompt always waits for what stands before it.
                continue
            ids, pending = ids + self._tokenize(pending), ""
            if "fork" in step:
                ends = yield [self._walk(branch, ids, results) for branch in step["fork"]]
                if step["append"]:
                    ids = sum((end[len(ids) :] for end in ends), ids)
                continue
            self._seeds += 1
            choices = [self._tokenize(choice) for choice in step.get("choices", ())]
            more = any("read" not in after for after in steps[place + 1 :])
            call = Call(ids, step, choices, more, self._seeds)
            result = yield call
            results[step.get("gen") or step["select"]] = result
            ids = ids + (result.samples[0] if "gen" in step else choices[result.picked])
        return ids + self._tokenize(pending)

    def _advance(self, walk: Walk, value: Any) -> None:
        if isinstance(value, tuple):
            value = value[1]
        try:
            found = walk.send(value)
        except StopIteration as end:
            self._end(walk, end.value)
            return
        if isinstance(found, Call):
            self._ready.append(found)
            self._waiting[id(found)] = walk
            return
        ends: list[Any] = [None] * len(found)
        for place, branch in enumerate(found):
            self._parents[id(branch)] = (walk, ends, place)
        for branch in found:
            self._advance(branch, None)

    def _end(self, walk: Walk, ids: list[int]) -> None:
        if id(walk) not in self._parents:
            return
        parent, ends, place = self._parents.pop(id(walk))
        ends[place] = ids
        if all(end is not None for end in ends):
            self._advance(parent, ends)


def run(system: System, programs: Sequence[Any]) -> dict[str, Any]:
    """The wall time of programs, and what they gave."""
    start = time.perf_counter()
    system.begin()
    execution = Execution(system, programs)
    execution.run()
    texts = {
        id(result): [system.detokenize(ids) for ids in result.samples]
        for results in execution.results
        for result in results.values()
    }
    seconds = time.perf_counter() - start
    results = [
        {
            name: {"ids": result.samples, "texts": texts[id(result)], "picked": result.picked}
            for name, result in of_program.items()
        }
        for of_program in execution.results
    ]
    return {"seconds": seconds, "results": results}


def serve(kind: str, lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The answers to what is read."""
    system = None
    for line in lines:
        asked = json.loads(line)
        if "load" in asked:
            system = importlib.import_module(KINDS[kind]).load(**asked["load"])
            about = {name: getattr(system, name) for name in ("version", "settings", "constraints")}
            yield {"ready": about}
        else:
            yield {"done": run(system, asked["run"])}


def main() -> None:
    """Answer line by line."""
    # Libraries print what they like; answers go where only they go.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        for answer in serve(sys.argv[1], iter(sys.stdin.readline, "")):
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    except Exception as error:
        traceback.print_exc()
        answers.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")
        answers.flush()
        sys.exit(1)


if __name__ == "__main__":
    main()
