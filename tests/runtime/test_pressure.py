"""Correctness under pressure: requests of all kinds beside each other in a pool for a few of them,
aborted at random steps, each write what they write alone in a roomy one; in float64, exactly."""

from __future__ import annotations

import dataclasses
import json
import random
from typing import Any

import pytest
import torch
from oracle import ModelBench
from progress import Progress

from ramet.runtime.cache.audit import audit, audit_idle
from ramet.runtime.model.runner import ModelRunner
from ramet.runtime.model.spec import ModelSpec
from ramet.runtime.model.tiny import tiny_config, tiny_weights
from ramet.runtime.tokenizer import Tokenizer

POOL = 512
ROOMY = 2048
CHUNK = 48
STALL = 4 * (POOL // CHUNK + 1)
"""So many steps could prefill four prompts of the pool's size."""
MAX_LIVE = 40
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "size": {"enum": ["small", "large"]}},
    "required": ["name", "size"],
    "additionalProperties": False,
}
"""Its shortest document has 28 bytes, a token each."""
CONSTRAINTS = (
    *([None] * 6),
    {"kind": "regex", "text": "name: [a-e]{2,20}; (yes|no) thank you[.!]"},
    {"kind": "regex", "text": "(ab|the |e)+"},
    {"kind": "json_schema", "text": json.dumps(SCHEMA)},
)


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    """The model `tiny` in float64."""
    spec = ModelSpec.from_config(tiny_config())
    weights = tiny_weights(spec, torch.float64)
    return ModelRunner(spec, weights, num_slots=ROOMY, dtype=torch.float64, device="cpu")


@dataclasses.dataclass(frozen=True)
class Request:
    """One prompt, and how it is generated from."""

    ids: list[int]
    params: dict[str, Any]
    salt: str | None
    cache: bool

    @classmethod
    def draw(cls, source: random.Random, stems: list[list[int]]) -> Request:
        """Most are short, some take most of the pool, and a few outgrow it."""
        tail = [source.randrange(256) for _ in range(source.randrange(1, 12))]
        if source.random() < 0.04:
            tail += [source.randrange(256) for _ in range(source.randrange(300, 480))]
        ids = source.choice(stems)[: source.randrange(0, 90)] + tail
        greedy = source.random() < 0.4
        params = {
            "max_tokens": source.choice([1, 3, 8, 16, 30, 60]),
            "n": source.choice([1] * 8 + [2, 3]),
            "temperature": 0.0 if greedy else source.choice([0.7, 1.0, 1.4]),
            "top_p": source.choice([1.0, 0.9]),
            "frequency_penalty": source.choice([0.0, 0.0, 0.8]),
            "repetition_penalty": source.choice([1.0, 1.0, 1.2]),
            "seed": source.randrange(1000),
            "stop": source.choice([(), (), ("e",), ("a", "th")]),
            "ignore_eos": False,
        }
        if constraint := source.choice(CONSTRAINTS):
            params["constraint"] = constraint
            params["jump_forward"] = source.random() < 0.7
            params["close_within_budget"] = params["max_tokens"] >= 30
        salt = source.choice([None, None, None, "tenant"])
        return cls(ids[: POOL - 1], params, salt, cache=source.random() > 0.1)

    def submit(self, bench: ModelBench, priority: int = 0) -> int:
        context = bench.open(self.ids, salt=self.salt, cache=self.cache)
        call = bench.generate(context, priority=priority, **self.params)
        bench.close(context)
        return call


def run_together(
    bench: ModelBench, requests: list[Request], source: random.Random
) -> tuple[list[int], Progress]:
    """Submit all, a few per step, abort some, and send some running ones back to wait; returns
    their calls."""
    progress = Progress(bench.engine, STALL)
    scheduler = bench.engine.room.scheduler
    calls: list[int] = []
    aborted = 0
    while len(calls) < len(requests) or not bench.engine.idle:
        alive = [call for call in calls[-4 * MAX_LIVE :] if call in bench.engine._calls]
        if len(calls) < len(requests) and len(alive) < MAX_LIVE:
            for request in requests[len(calls) : len(calls) + source.choice([1, 1, 2, 10])]:
                calls.append(request.submit(bench, source.choice([0, 0, 0, 1, -1, 5])))
        if alive and source.random() < 0.03:
            bench.abort(call=source.choice(alive))
            aborted += 1
        if scheduler.running and source.random() < 0.1:
            scheduler._retract(source.choice(scheduler.running))
        for _ in range(source.choice([1, 1, 2, 5])):
            progress.step()
        bench.collect()
        if source.random() < 0.05:
            audit(bench.engine.room.tree)
    assert len(bench.errors) == aborted > len(requests) // 40
    assert {event["kind"] for event in bench.errors.values()} == {"Cancelled"}
    return calls, progress


def nothing_is_left(bench: ModelBench) -> None:
    """Zero leaks: pages, contexts, references."""
    tree, stats = bench.engine.room.tree, bench.engine.stats()
    audit_idle(tree)
    for name in ("held_tokens", "running", "waiting", "contexts"):
        assert stats[name] == 0, name
    assert stats["free_tokens"] + stats["cached_pool_tokens"] == stats["pool_tokens"]
    assert not any(node.refs or node.waits or node.private for node in tree.nodes())
    bench.engine.submit([{"op": "flush", "call": bench.number()}])
    assert bench.engine.stats()["free_tokens"] == stats["pool_tokens"]


def check_alone(bench: ModelBench, request: Request, results: list[dict[str, Any]]) -> bool:
    """Assert that results are what the request gives alone; True if the pool cut one short."""
    call = request.submit(bench)
    bench.run()
    bench.engine.submit([{"op": "flush", "call": bench.number()}])
    cut = False
    for got, want in zip(results, bench.done[call]["results"], strict=True):
        if got.pop("pool_exhausted", False):
            cut = True
            length = POOL - len(request.ids) + 1
            ids = got["output_token_ids"]
            assert got["finish_reason"] == "length"
            # Text that is forced where the pool ends needs no slots.
            assert len(ids) == length or (len(ids) > length and "constraint" in request.params)
            assert ids == want["output_token_ids"][: len(ids)]
            assert len(want["output_token_ids"]) > length
        else:
            assert got == want
    return cut


@pytest.mark.parametrize(
    ("count", "page_size", "policy"),
    [
        (40, 1, "fcfs"),
        (80, 16, "program"),
        *(
            pytest.param(*how, marks=[pytest.mark.full, pytest.mark.timeout(3600)])
            for how in (
                (2_000, 16, "program"),
                (300, 1, "program"),
                (300, 4, "dfs"),
                (300, 2, "lpm"),
            )
        ),
    ],
)
def test_requests_under_pressure_write_what_they_write_alone(
    runner: ModelRunner, count: int, page_size: int, policy: str
) -> None:
    source = random.Random(f"{count} {page_size} {policy}")
    stems = [[source.randrange(256) for _ in range(90)] for _ in range(4)]
    requests = [Request.draw(source, stems) for _ in range(count)]
    sizes = {"page_size": page_size, "chunk_tokens": CHUNK, "policy": policy}
    bench = ModelBench(runner, Tokenizer.tiny(), pool_tokens=POOL, **sizes)
    calls, _ = run_together(bench, requests, source)
    stats = bench.engine.stats()
    assert stats["retractions"] > 0
    assert stats["evicted_tokens"] > 20 * count
    nothing_is_left(bench)

    alone = ModelBench(runner, Tokenizer.tiny(), pool_tokens=ROOMY)
    compared = cut = 0
    for call, request in zip(calls, requests, strict=True):
        if call in bench.done:
            cut += check_alone(alone, request, bench.done[call]["results"])
            compared += 1
    assert compared + len(bench.errors) == count
    assert compared > 0.8 * count
    assert cut or count < 1_000
