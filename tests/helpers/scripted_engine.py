"""A model whose logits are a function of the path: the engine's oracle, and its plan's judge.

`forward` rebuilds every row's path from the attention items alone, and asserts that each row sees
each earlier position exactly once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import torch

from ramet.kernels import reference
from ramet.runtime.engine import Engine
from ramet.runtime.request import SamplingParams
from ramet.runtime.sampling.streams import stream_key
from ramet.runtime.schedule.batch import Batch
from ramet.runtime.schedule.sequence import Generation
from ramet.runtime.tokenizer import Tokenizer

Path = tuple[int, ...]
Script = Callable[[Path], torch.Tensor]


def hashed(vocab_size: int, spread: float = 3.0) -> Script:
    """Pseudo-random logits that depend on the whole path."""

    def script(path: Path) -> torch.Tensor:
        seed = int.from_bytes(hashlib.blake2b(repr(path).encode(), digest_size=7).digest(), "big")
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(vocab_size, generator=generator, dtype=torch.float64) * spread

    return script


class ScriptedRunner:
    """Runs no model, and checks each batch that it is given."""

    def __init__(self, vocab_size: int, script: Script | None = None) -> None:
        self.vocab_size = vocab_size
        self.script = script or hashed(vocab_size)
        self.tokens: dict[int, int] = {}
        self.paths: dict[int, Path] = {}
        self.rows: list[Path] = []
        self.batches: list[Batch] = []

    def forward(self, batch: Batch) -> None:
        self.batches.append(batch)
        assert len(set(batch.slots)) == len(batch.slots)
        for slot, token in zip(batch.slots, batch.token_ids, strict=True):
            self.tokens[slot] = token
        items = batch.items
        for row, position in enumerate(batch.positions):
            seen: dict[int, int] = {}
            for i in range(len(items.length)):
                if items.row_start[i] <= row < items.row_end[i]:
                    for j in range(items.length[i]):
                        key = items.key_pos[i] + j
                        if key <= position:
                            assert key not in seen, "a position is seen twice"
                            seen[key] = self.tokens[items.slot_start[i] + j]
            assert sorted(seen) == list(range(position + 1)), "a row misses a position"
            path = tuple(seen[p] for p in range(position + 1))
            self.paths[batch.slots[row]] = path
            self.rows.append(path)
        self._check_sharing(batch)

    def _check_sharing(self, batch: Batch) -> None:
        """No batch has the same token at the same path twice, unless it may not be shared."""
        seen: set[tuple[int, Path]] = set()
        for node, count in batch.ranges:
            *_, root = node.ancestors()
            for slot in node.slots(node.computed, node.computed + count):
                place = id(root), self.paths[slot]
                assert place not in seen, f"computed twice in a batch: {place[1]}"
                seen.add(place)
        assert len(seen) == len(batch.slots)

    def logits(self, slots: Sequence[int], masks: Sequence[bytes] | None = None) -> torch.Tensor:
        return torch.stack([self.script(self.paths[slot]) for slot in slots])

    def likeliest(self, slots: Sequence[int]) -> tuple[list[int], list[float]]:
        return reference.greedy(self.logits(slots), range(len(slots)))


class DullRunner:
    """Writes one and the same token for ever, at no cost: it shows what scheduling does."""

    vocab_size = 259

    def forward(self, batch: Batch) -> None:
        pass

    def logits(self, slots: Sequence[int], masks: Sequence[bytes] | None = None) -> torch.Tensor:
        rows = torch.zeros(len(slots), self.vocab_size)
        rows[:, 1] = 1
        return rows

    def likeliest(self, slots: Sequence[int]) -> tuple[list[int], list[float]]:
        return [1] * len(slots), [1.0] * len(slots)


class Bench:
    """An engine over a scripted model, driven step by step."""

    def __init__(
        self,
        script: Script | None = None,
        runner: type[ScriptedRunner] = ScriptedRunner,
        **options: object,
    ) -> None:
        self.tokenizer = Tokenizer.tiny()
        self.runner = runner(self.tokenizer.vocab_size, script)
        settings: dict[str, object] = {
            "pool_tokens": 512,
            "page_size": 4,
            "chunk_tokens": 64,
            "max_running": 32,
        }
        self.engine = Engine(self.runner, self.tokenizer, **{**settings, **options})  # type: ignore[arg-type]
        self.done: dict[int, dict] = {}
        self.errors: dict[int, dict] = {}
        self.chunks: list[dict] = []
        self.next = 0

    def number(self) -> int:
        self.next += 1
        return self.next

    def open(self, ids: Sequence[int] = (), **fields: object) -> int:
        context = self.number()
        self.engine.submit([{"op": "open", "ctx": context, "program": context, **fields}])
        if ids:
            self.append(context, ids)
        return context

    def append(self, context: int, ids: Sequence[int]) -> None:
        self.engine.submit([{"op": "append", "ctx": context, "ids": list(ids)}])

    def fork(self, context: int, n: int) -> list[int]:
        children = [self.number() for _ in range(n)]
        self.engine.submit([{"op": "fork", "ctx": context, "children": children}])
        return children

    def generate(
        self, context: int, stream: bool = False, seed: int = 1, site: str = "", **params
    ) -> int:
        call = self.number()
        built = SamplingParams.build({"temperature": 0, "ignore_eos": True, **params})
        self.engine.submit(
            [
                {
                    "op": "generate",
                    "ctx": context,
                    "call": call,
                    "params": built.to_wire(),
                    "keys": [stream_key(seed, "", 0, i) for i in range(built.n)],
                    "stream": stream,
                    "site": site,
                }
            ]
        )
        return call

    def close(self, *contexts: int) -> None:
        self.engine.submit([{"op": "close", "ctx": c} for c in contexts])

    def abort(self, **what: int) -> None:
        self.engine.submit([{"op": "abort", **what}])

    def collect(self) -> None:
        for event in self.engine.take_events():
            if event["ev"] == "done":
                self.done[event["call"]] = event
            elif event["ev"] == "error":
                self.errors[event["call"]] = event
            elif event["ev"] == "chunk":
                self.chunks.append(event)

    def step(self) -> None:
        self.engine.step()
        self.collect()

    def settle(self) -> None:
        """Leave no step in the air."""
        self.engine.submit([])
        self.collect()

    def run(self, limit: int = 20_000) -> None:
        steps = 0
        while not self.engine.idle:
            self.step()
            steps += 1
            assert steps < limit, "the engine does not come to rest"
        self.collect()

    def ids(self, call: int, sample: int = 0) -> list[int]:
        return self.done[call]["results"][sample]["output_token_ids"]

    def greedy(self, ids: Sequence[int], count: int) -> list[int]:
        """What the model writes, without any engine."""
        path = tuple(ids)
        for _ in range(count):
            path += (int(self.runner.script(path).argmax()),)
        return list(path[len(ids) :])


class Timed:
    """A bench whose clock the model moves on: 20 ms a step and 1 ms a row."""

    def __init__(self, make: Callable[..., Bench], **options: object) -> None:
        self.now = 0.0
        self.bench = make(clock=lambda: self.now, **options)
        self._forward = self.bench.runner.forward
        self.bench.runner.forward = self.forward  # type: ignore[method-assign]

    def forward(self, batch: Batch) -> None:
        self._forward(batch)
        self.now += 0.020 + 0.001 * len(batch.token_ids)


def decoding(engine: Engine) -> dict[Generation, int]:
    """Who has a token and runs with no more than the next one to compute; its tokens so far."""
    return {
        s: len(s.output_ids)
        for s in engine.room.scheduler.running
        if isinstance(s, Generation)
        and s.output_ids
        and sum(len(n.tokens) - n.computed for n in s.node.missing()) <= 1
    }
