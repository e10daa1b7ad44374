"""A scripted engine: the worker's loop, the channel and the client need no model to be tested.

A generation gives the path's length as text ("len=5 "), one byte-token a step. The `site` of a
call scripts trouble: "fail", "crash", "exit" and "hang". Run as a program, it is a worker process.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ramet.runtime import worker
from ramet.runtime.client.connection import EngineClient
from ramet.runtime.client.transport import ProcessTransport, ThreadTransport, Transport
from ramet.runtime.config import RuntimeConfig
from ramet.runtime.errors import UnsupportedFeature
from ramet.runtime.runtime import Runtime

# As the test process may have torch loaded already, which an engine thread would warn of.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

ISOLATIONS = ["process", "thread"]
VOCAB = 259


class FakeEngine:
    def __init__(self, config: RuntimeConfig) -> None:
        self.info: dict[str, Any] = {
            "model": config.model,
            "dir": None,
            "vocab_size": VOCAB,
            "max_context": config.max_context or 1000,
            "device": "cpu",
        }
        self.paths: dict[int, list[int]] = {}
        self.queues: dict[int, list[dict[str, Any]]] = {}
        self.programs: dict[int, int] = {}
        self.closed: set[int] = set()
        self.ops: list[dict[str, Any]] = []
        self.steps = 0
        self.running: dict[int, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []

    @classmethod
    def build(cls, config: RuntimeConfig) -> FakeEngine:
        if config.model == "unsupported":
            raise UnsupportedFeature("model_type=unsupported: not one of ours")
        if config.model == "broken":
            raise RuntimeError("broken while loading")
        if config.model == "dead":
            os._exit(9)
        print("an engine that prints")  # Must not reach the channel.
        return cls(config)

    @property
    def idle(self) -> bool:
        return not self.running and not any(self.queues.values())

    def submit(self, ops: list[dict[str, Any]]) -> None:
        self.ops += ops
        for op in ops:
            getattr(self, f"_{op['op']}")(op)

    def step(self) -> None:
        if self.idle:
            return
        self.steps += 1
        for ctx in list(self.queues):
            self._advance(ctx)
        for call in list(self.running.values()):
            self._decode(call)

    def take_events(self) -> list[dict[str, Any]]:
        events, self.events = self.events, []
        return events

    def _open(self, op: dict[str, Any]) -> None:
        self.paths[op["ctx"]], self.queues[op["ctx"]] = [], []
        self.programs[op["ctx"]] = op["program"]

    def _append(self, op: dict[str, Any]) -> None:
        self.queues[op["ctx"]].append(op)

    _generate = _score = _append

    def _fork(self, op: dict[str, Any]) -> None:
        for child in op["children"]:
            self.programs[child] = self.programs[op["ctx"]]
            self.queues[child] = [{"op": "wait"}]
        self._append(op)

    def _join(self, op: dict[str, Any]) -> None:
        pass

    def _close(self, op: dict[str, Any]) -> None:
        self.closed.add(op["ctx"])

    def _abort(self, op: dict[str, Any]) -> None:
        queued = [o for queue in self.queues.values() for o in queue if "call" in o]
        for call in [*self.running.values(), *queued]:
            owner = self.programs[call["ctx"]]
            if op.get("call") == call["call"] or op.get("program") == owner:
                self._fail(call, "Cancelled", "aborted")

    def _stats(self, op: dict[str, Any]) -> None:
        value = {"steps": self.steps, "contexts": len(self.paths), "closed": len(self.closed)}
        self.events.append({"ev": "value", "call": op["call"], "value": value})

    def _flush(self, op: dict[str, Any]) -> None:
        self.events.append({"ev": "value", "call": op["call"], "value": {"freed": 0}})

    def _advance(self, ctx: int) -> None:
        queue = self.queues[ctx]
        while queue and ctx not in self.running and queue[0]["op"] != "wait":
            op = queue.pop(0)
            if op["op"] == "append":
                self.paths[ctx] = self.paths[ctx] + op["ids"]
            elif op["op"] == "fork":
                for child in op["children"]:
                    self.paths[child] = self.paths[ctx]
                    self.queues[child].pop(0)
            elif op["op"] == "generate":
                text = f"len={len(self.paths[ctx])} é"
                self.running[ctx] = {**op, "left": list(text.encode()), "out": []}
            else:
                self._score_now(ctx, op)

    def _score_now(self, ctx: int, op: dict[str, Any]) -> None:
        index = len(op["choices"]) - 1
        append = op["choices"][index]["append"]
        self.paths[ctx] = self.paths[ctx] + append
        rows = [[-0.5] * (len(c["ids"]) - c["first"]) for c in op["choices"]]
        scores = [float(i) for i in range(index + 1)]
        result = {"index": index, "scores": scores, "entries": rows, "probabilities": None}
        self._done(op, [{**result, "append": append}])

    def _decode(self, call: dict[str, Any]) -> None:
        site = call["site"]
        if site == "crash":
            raise RuntimeError("crashed in a step")
        if site == "exit":
            os._exit(7)
        if site == "fail":
            self._fail(call, "PoolTooSmall", "17 tokens do not fit 16")
            return
        if site == "hang":
            time.sleep(0.001)
            return
        token = call["left"].pop(0)
        call["out"].append(token)
        if call["stream"]:
            shown = "é" if token == 0xA9 else "" if token > 127 else chr(token)
            chunk = {"text": shown, "ids": [token], "logprobs": [[-1.0, token, shown]]}
            self.events.append({"ev": "chunk", "call": call["call"], "sample": 0, **chunk})
        limit = call["params"].get("max_new_tokens", 128)
        if not call["left"] or len(call["out"]) == limit:
            self._finish(call, "stop" if not call["left"] else "length")

    def _finish(self, call: dict[str, Any], reason: str) -> None:
        out = call["out"]
        one = {
            "text": bytes(out).decode(errors="replace"),
            "output_token_ids": out,
            "finish_reason": reason,
            "matched": None,
            "kept": len(out),
            "tail": [],
            "completion_tokens": len(out),
        }
        if call["params"].get("return_logprob"):
            one["output_token_logprobs"] = [[-1.0, token, "x"] for token in out]
            one["output_top_logprobs"] = [[[-1.0, token, "x"]] for token in out]
        del self.running[call["ctx"]]
        meta = {"prompt_tokens": len(self.paths[call["ctx"]]), "cached_tokens": 0}
        self.paths[call["ctx"]] = self.paths[call["ctx"]] + out
        self._done(call, [one for _ in call["keys"]], **meta)

    def _done(self, op: dict[str, Any], results: list[dict[str, Any]], **meta: int) -> None:
        self.events.append({"ev": "done", "call": op["call"], "results": results, "meta": meta})

    def _fail(self, call: dict[str, Any], kind: str, message: str) -> None:
        ctx = call["ctx"]
        self.running.pop(ctx, None)
        self.queues[ctx] = [op for op in self.queues[ctx] if op is not call]
        event = {"ev": "error", "call": call["call"], "kind": kind, "message": message}
        self.events.append(event)


def start_transport(isolation: str, **fields: Any) -> Transport:
    config = fake_config(isolation, **fields)
    if isolation == "thread":
        return ThreadTransport(config, FakeEngine.build)
    return ProcessTransport(config, [sys.executable, "-P", __file__])


def fake_config(isolation: str, **fields: Any) -> RuntimeConfig:
    return RuntimeConfig(**{"model": "fake", "isolation": isolation, **fields})


def start_client(isolation: str, **fields: Any) -> EngineClient:
    return EngineClient(start_transport(isolation, **fields))


def start_runtime(isolation: str = "thread", **fields: Any) -> Runtime:
    return Runtime.over(fake_config(isolation, **fields), start_transport(isolation, **fields))


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """After the test, none of our threads and no child process is left."""
    yield
    own = [thread for thread in threading.enumerate() if thread.name.startswith("ramet")]
    assert own == []
    assert multiprocessing.active_children() == []
    assert children() == []


def children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:
        return []


if __name__ == "__main__":
    sys.exit(worker.main(FakeEngine.build))
