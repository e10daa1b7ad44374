"""What the end-to-end oracles share: engines over real models, the ways to run prompts on them,
and transformers' answers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from scripted_engine import Bench, DullRunner

from ramet.runtime.engine import Engine
from ramet.runtime.model.fused import FusedModel
from ramet.runtime.model.runner import ModelRunner
from ramet.runtime.tokenizer import Tokenizer

TINY_TIE = 1e-4
"""A gap between the two likeliest logits under which transformers' choice isn't compared: it
keeps norms in float32 in float64 models."""
BUILTIN_TIE = 1e-4


class ModelBench(Bench):
    """A `Bench` over a real model. What an earlier engine left in the runner's memory is NaN."""

    def __init__(self, runner: ModelRunner, tokenizer: Tokenizer, **options: Any) -> None:
        self.tokenizer = tokenizer
        self.runner = runner  # type: ignore[assignment]
        settings = {"pool_tokens": 4096, "chunk_tokens": 64, "max_context": runner.max_context}
        settings.update(options)
        _soil(runner, settings["pool_tokens"])
        self.engine = Engine(runner, tokenizer, **settings)
        self.done: dict[int, dict] = {}
        self.errors: dict[int, dict] = {}
        self.chunks: list[dict] = []
        self.next = 0


def _soil(runner: ModelRunner, slots: int) -> None:
    """Leave nothing in the memory that anybody could go on with."""
    if isinstance(runner._model, FusedModel):
        decoder: Any = runner._model._decoder
        kept: dict[str, torch.Tensor] = decoder._kept
        kept["kept"][:] = math.nan
        if decoder.shape.head_dim == decoder._padded:  # Else there are zeros to keep.
            # Its values are never NaN (`attention.write`).
            kept["pool"][:, 0], kept["pool"][:, 1] = math.nan, 1e30
        return
    with torch.inference_mode():
        pool = runner._model.pool
        for memory in (*pool.k, *pool.v, pool.hidden):
            memory[:slots] = math.nan


def score(bench: Bench, context: int, wire: Mapping[str, Any], method: str, **fields: Any) -> int:
    """Submit a `score` operation; `wire` is `Selection.to_wire()`'s dict or one like it."""
    call = bench.number()
    op = {"op": "score", "ctx": context, "call": call, "method": method}
    bench.engine.submit([{**op, "temperature": 0.0, "key": 1, **wire, **fields}])
    return call


# Ways to run the same prompts


Prompts = Mapping[int, list[int]]
"""Token ids by the number of the prompt, which is its random stream too."""


@dataclasses.dataclass(frozen=True)
class Played:
    """What a run brought: each prompt's output ids, and the engine's counts at the end."""

    outputs: dict[int, list[int]]
    stats: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Case:
    """One way to run prompts: `order` is alone (one by one), batch (at once) or warm (at once,
    after half of it has been run before); a tight pool makes the engine evict and retract."""

    order: str
    chunk_tokens: int
    page_size: int
    tight: bool

    def __str__(self) -> str:
        pool = "tight" if self.tight else "roomy"
        return f"{self.order}-chunk{self.chunk_tokens}-page{self.page_size}-{pool}"

    def groups(self, prompts: Prompts) -> list[Prompts]:
        """What runs together. A pool for a long prompt has room for all the short ones that a
        small chunk lets run beside it, so in a tight pool the shorter half comes on its own."""
        if not self.tight or self.order == "alone" or len(prompts) <= self.chunk_tokens:
            return [prompts]
        median = sorted(map(len, prompts.values()))[len(prompts) // 2]
        return [
            {i: p for i, p in prompts.items() if (len(p) > median) == longer}
            for longer in (False, True)
        ]

    def pools(self, prompts: Prompts, count: int) -> Iterator[int]:
        """Pool sizes for `count` new tokens after each prompt: one with room for all, or tight
        ones, of which those come first that make a dry run retract."""

        def pages(tokens: int) -> int:
            return -(-tokens // self.page_size)

        if not self.tight:
            yield sum(pages(len(p)) + pages(count) + 2 for p in prompts.values()) * self.page_size
            return
        low = pages(max(map(len, prompts.values())) + count) + 1
        if self.order == "alone":
            yield low * self.page_size
            return
        together = list(prompts.values())[: self.chunk_tokens]
        high = max(low, sum(pages(len(p)) for p in together) + pages(count))
        sizes = [(high - (high - low) * i // 8) * self.page_size for i in range(9)]
        roomy = []
        for size in sizes:
            if self.run(_dry_bench, prompts, count, size).stats["retractions"]:
                yield size
            else:
                roomy.append(size)
        yield from roomy

    def run(
        self,
        make: Callable[..., Bench],
        prompts: Prompts,
        count: int,
        pool_tokens: int,
        *,
        forced: bool = False,
        **params: Any,
    ) -> Played:
        """Generate up to `count` tokens after each prompt, in this way, on a new bench, which
        `make(**options)` builds. `forced` retracts the last in order every few steps."""
        bench = make(
            pool_tokens=pool_tokens,
            page_size=self.page_size,
            chunk_tokens=self.chunk_tokens,
            max_running=64,
        )
        calls: dict[int, int] = {}
        for limit in (max(count // 2, 1), count) if self.order == "warm" else (count,):
            for index, prompt in prompts.items():
                context = bench.open(prompt)
                calls[index] = bench.generate(context, max_tokens=limit, seed=index, **params)
                bench.close(context)
                if self.order == "alone":
                    bench.run()  # nothing runs beside it, so nothing can be retracted
                    if not self.tight:
                        bench.engine.submit([{"op": "flush", "call": bench.number()}])
            if forced:
                _run_retracting(bench)
            bench.run()
        assert not bench.errors, bench.errors
        outputs = {index: bench.ids(call) for index, call in calls.items()}
        return Played(outputs, bench.engine.stats())


PAIRWISE = [
    Case("alone", 7, 16, False),
    Case("batch", 512, 16, True),
    Case("warm", 7, 1, True),
    Case("alone", 512, 1, True),
    Case("batch", 7, 1, False),
    Case("warm", 512, 16, False),
]
"""Every pair of values of two fields; the first three have every value of every field, and so do
the last three."""

WHOLE = [
    Case(order, chunk_tokens, page_size, tight)
    for order in ("alone", "batch", "warm")
    for chunk_tokens in (7, 512)
    for page_size in (1, 16)
    for tight in (False, True)
]


def play(
    make: Callable[..., Bench], prompts: Sequence[list[int]], case: Case, count: int, **params: Any
) -> Iterator[dict[int, list[int]]]:
    """The outputs of `case.run` by the prompt's index, for each group and each pool that is tried.

    Fails unless a tight pool made the engine retract (or evict, where prompts run alone). Where
    admission is too careful for any pool to do so, retractions are forced.
    """
    told = "evicted_tokens" if case.order == "alone" else "retractions"
    for number, group in enumerate(case.groups(dict(enumerate(prompts)))):
        for pool_tokens in case.pools(group, count):
            played = case.run(make, group, count, pool_tokens, **params)
            yield played.outputs
            if number or not case.tight or played.stats[told]:
                break
        else:
            # Admission leaves so much room here that no pool is too small for what it lets in.
            played = case.run(make, group, count, pool_tokens, forced=True, **params)
            yield played.outputs
            assert played.stats[told], f"{case}: nothing was {told}"


def _run_retracting(bench: Bench) -> None:
    """Run to the end, sending the last in order back to wait every fifth step."""
    steps = 0
    while not bench.engine.idle:
        bench.step()
        steps += 1
        scheduler = bench.engine.room.scheduler
        if steps % 5 == 0 and len(scheduler.running) > 1:
            scheduler._retract(scheduler.running[-1])


def _dry_bench(**options: Any) -> Bench:
    bench = Bench(**options)
    bench.engine.room.runner = DullRunner()
    return bench


# transformers' answers


@dataclasses.dataclass(frozen=True)
class Greedy:
    """What transformers' own `generate` wrote, with the gap of the two largest logits per token."""

    tokens: list[int]
    gaps: list[float]


def hf_greedy(model: Any, prompt: Sequence[int], count: int, end_ids: Sequence[int]) -> Greedy:
    """`model.generate` of a transformers model, greedy, for one unpadded prompt."""
    from transformers import GenerationConfig

    with torch.inference_mode():
        out = model.generate(
            torch.tensor([list(prompt)]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            generation_config=GenerationConfig(
                do_sample=False,
                max_new_tokens=count,
                eos_token_id=list(end_ids),
                pad_token_id=end_ids[0],
                output_logits=True,
                return_dict_in_generate=True,
            ),
        )
    top = [logits[0].topk(2).values.tolist() for logits in out.logits]
    return Greedy(out.sequences[0, len(prompt) :].tolist(), [a - b for a, b in top])


@dataclasses.dataclass
class Tally:
    """Positions compared with a reference, and outputs whose comparison ended at a near tie."""

    compared: int = 0
    skipped: int = 0
    ties: int = 0

    def check(self, got: Sequence[int], want: Greedy, tie: float) -> None:
        """Assert that `got` is the reference up to its first gap under `tie`."""
        end = next((i for i, gap in enumerate(want.gaps) if gap < tie), len(want.tokens))
        assert list(got[:end]) == want.tokens[:end]
        self.compared += end
        if end < len(want.tokens):
            self.ties += 1
            self.skipped += len(want.tokens) - end
        else:
            assert len(got) == end

    def add(self, other: Tally) -> None:
        self.compared += other.compared
        self.skipped += other.skipped
        self.ties += other.ties

    def settle(self) -> None:
        """Assert that the comparison wasn't vacuous."""
        assert self.compared > 0
        assert self.ties <= 0.02 * self.compared, str(self)
        assert self.skipped <= 0.1 * self.compared, str(self)

    def __str__(self) -> str:
        return (
            f"{self.compared:,} positions compared, {self.ties} near ties "
            f"({self.ties / max(self.compared, 1):.2%}), {self.skipped} positions behind them"
        )


def hf_logprobs(model: Any, ids: Sequence[int]) -> torch.Tensor:
    """log softmax of a transformers model's logits, `[len(ids), vocab]`, never under float32."""
    with torch.inference_mode():
        return torch.log_softmax(model(torch.tensor([list(ids)])).logits[0], -1)


# Counters


class Trie:
    """Who asked first for each position of each path: a prompt (an edge), or a sample."""

    def __init__(self) -> None:
        self.top: dict[int, Any] = {}
        self.edges = 0
        self.decodes = 0

    def demand(self, path: Sequence[int], sampled: bool = False) -> None:
        node = self.top
        for token in path:
            if token not in node:
                node[token] = {}
                self.edges += not sampled
                self.decodes += sampled
            node = node[token]
