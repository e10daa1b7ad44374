"""What the fast number formats cost: quality and memory of each `dtype`, beside float32.

    python programs/precision.py [--model NAME] [--dtypes int8 bfloat16] [--tokens N] [--no-memory]

The text is `data/precision.txt`, ours, and every token of it is given, not sampled. Two questions:

- *Against float32*: perplexity, and at how many positions the likeliest next token is the same
  (top-1), when the text is read as one prompt.
- *Warm against cold*, in int8: the same token reached in two ways, as a warm cache has it.
  `decode`: the text computed one token a step, against the text as one prompt. `forked`: a prefix
  computed as a prompt, then several continuations of it side by side, one token of each a step,
  against each as a prompt of its own.

`programs/PRECISION.md` has the last table.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

import ramet.lang as rm
from ramet.kernels import ops
from ramet.runtime.builtin_model import resolve_model
from ramet.runtime.config import cache_dir
from ramet.runtime.model.dtypes import DTYPES, resolve_dtype
from ramet.runtime.model.runner import ModelRunner
from ramet.runtime.model.spec import ModelSpec
from ramet.runtime.model.tiny import tiny_config, tiny_weights
from ramet.runtime.model.weights import load_weights
from ramet.runtime.schedule.batch import AttentionItems, Batch
from ramet.runtime.tokenizer import Tokenizer

TEXT = Path(__file__).parent / "data" / "precision.txt"
CHUNK = 512
"""Rows of a step that reads a prompt, as the engine has them."""
FIRST = 16
"""Tokens that are read as a prompt before the decode of `decode` begins."""
PREFIX, FORKS, TAIL = 512, 8, 128
"""Of `forked`: tokens of the prefix, continuations of it, and tokens of each."""
PROMPT = 512
"""Tokens of the prompt after which the engine's memory is read."""
Segments = list[tuple[int, int]]
"""What a row sees before its own node: (first slot, length) of each node, from the root on."""


class Reading:
    """What a model said at each position of a text: `best` has its likeliest next tokens,
    `logprobs` the log-probabilities of the tokens that do come."""

    def __init__(self, best: Sequence[int] = (), logprobs: Sequence[float] = ()) -> None:
        self.best = list(best)
        self.logprobs = list(logprobs)

    def add(self, logits: torch.Tensor, following: Sequence[int]) -> None:
        """Note rows of logits `[rows, vocab]`, by the tokens that follow them."""
        table = torch.log_softmax(logits.float(), -1)
        self.best += table.argmax(-1).tolist()
        self.logprobs += table[range(len(following)), list(following)].tolist()

    @property
    def perplexity(self) -> float:
        return math.exp(-math.fsum(self.logprobs) / len(self.logprobs))

    def beside(self, other: Reading) -> dict[str, float]:
        """Share of positions with the same likeliest token, and how far the log-probabilities of
        the text's tokens are apart."""
        count = len(self.best)
        same = sum(a == b for a, b in zip(self.best, other.best, strict=True))
        apart = [abs(a - b) for a, b in zip(self.logprobs, other.logprobs, strict=True)]
        return {
            "positions": count,
            "agreement": same / count,
            "mean_difference": math.fsum(apart) / count,
            "largest_difference": max(apart),
        }


class Model(NamedTuple):
    """What is measured: a model's sizes and tokenizer, and where its weights are."""

    spec: ModelSpec
    tokenizer: Tokenizer
    directory: Path | None

    @classmethod
    def find(cls, name: str) -> Model:
        directory = resolve_model(name).dir
        if directory is None:
            tokenizer = Tokenizer.tiny()
            return cls(
                ModelSpec.from_config(tiny_config(tokenizer.vocab_size)), tokenizer, directory
            )
        config = json.loads((directory / "config.json").read_text())
        return cls(ModelSpec.from_config(config), Tokenizer.from_dir(directory), directory)

    def runner(self, dtype: str, slots: int) -> ModelRunner:
        """The model in a dtype, with memory for so many tokens."""
        ops.prepare(cache_dir() / "kernels")
        kind = DTYPES[dtype]
        stored = None if kind == torch.int8 else kind
        weights = (
            tiny_weights(self.spec, stored or torch.float32)
            if self.directory is None
            else load_weights(self.directory, self.spec, stored, "cpu")
        )
        return ModelRunner(self.spec, weights, num_slots=slots, dtype=kind, device="cpu")

    def weight_bytes(self, dtype: str) -> int:
        """Bytes of the weights; in int8, rows of matrices are filled up to blocks of 64 and have a
        float32 scale, and what isn't a matrix is float32."""
        shapes = self.spec.weight_shapes().values()
        if dtype != "int8":
            return sum(math.prod(shape) for shape in shapes) * DTYPES[dtype].itemsize
        return sum(
            shape[0] * (-(-shape[1] // 64) * 64 + 4) if len(shape) == 2 else 4 * math.prod(shape)
            for shape in shapes
        )

    def token_bytes(self, dtype: str) -> int:
        """Bytes that a computed token takes: K, V, and the row from which its logits are made."""
        return ModelRunner.bytes_per_token(self.spec, DTYPES[dtype])


def step(
    runner: ModelRunner, above: Segments, tails: Sequence[tuple[int, Sequence[int]]], done: int
) -> None:
    """Compute one step: of each tail, (its first slot, its tokens up to now), the tokens from
    number `done` on. The tails are nodes of a tree beneath the nodes `above`."""
    rows = [(slot, tokens, i) for slot, tokens in tails for i in range(done, len(tokens))]
    each = len(rows) // len(tails)
    start = sum(length for _, length in above)
    known = list(itertools.accumulate((length for _, length in above), initial=0))
    items = [(slot, size, 0, len(rows), at) for (slot, size), at in zip(above, known, strict=False)]
    for number, (slot, tokens) in enumerate(tails):
        items.append((slot, len(tokens), number * each, (number + 1) * each, start))
    runner.forward(
        Batch(
            [tokens[i] for _, tokens, i in rows],
            [start + i for _, _, i in rows],
            [slot + i for slot, _, i in rows],
            AttentionItems(*([item[column] for item in items] for column in range(5))),
            (),
            (),
        )
    )


def read_prompt(runner: ModelRunner, ids: Sequence[int], slot: int = 0) -> None:
    """Compute tokens as a prompt, to the slots from `slot` on."""
    for start in range(0, len(ids), CHUNK):
        step(runner, [], [(slot, ids[: start + CHUNK])], start)


def as_prompt(runner: ModelRunner, ids: Sequence[int], start: int = 0) -> Reading:
    """What the model says of tokens `start + 1` to the last, computed as one prompt."""
    read_prompt(runner, ids)
    reading = Reading()
    for first in range(start, len(ids) - 1, CHUNK):
        last = min(first + CHUNK, len(ids) - 1)
        reading.add(runner.logits(range(first, last)), ids[first + 1 : last + 1])
    return reading


def as_decode(runner: ModelRunner, ids: Sequence[int], start: int) -> Reading:
    """The same, with one token a step from number `start` on."""
    read_prompt(runner, ids[:start])
    reading = Reading()
    for i in range(start, len(ids) - 1):
        step(runner, [(0, start)], [(start, ids[start : i + 1])], i - start)
        reading.add(runner.logits([i]), [ids[i + 1]])
    return reading


def as_forks(runner: ModelRunner, prefix: Sequence[int], tails: list[list[int]]) -> list[Reading]:
    """What the model says of the tokens of tails of one length but the first, computed side by
    side after one prefix."""
    read_prompt(runner, prefix)
    size = len(tails[0])
    slots = [len(prefix) + size * number for number in range(len(tails))]
    readings = [Reading() for _ in tails]
    for i in range(size - 1):
        now = [(slot, tail[: i + 1]) for slot, tail in zip(slots, tails, strict=True)]
        step(runner, [(0, len(prefix))], now, i)
        logits = runner.logits([slot + i for slot in slots])
        for reading, row, tail in zip(readings, logits, tails, strict=True):
            reading.add(row[None], [tail[i + 1]])
    return readings


def joined(readings: Sequence[Reading]) -> Reading:
    """The positions of several readings, one after the other."""
    return Reading(
        [token for reading in readings for token in reading.best],
        [value for reading in readings for value in reading.logprobs],
    )


def warm_against_cold(
    runner: ModelRunner, ids: Sequence[int], cold: Reading
) -> dict[str, dict[str, float]]:
    """`decode` and, where the text is long enough, `forked`; `cold` is the text as one prompt."""
    start = min(FIRST, len(ids) // 2)
    found = {
        "decode": as_decode(runner, ids, start).beside(
            Reading(cold.best[start:], cold.logprobs[start:])
        )
    }
    prefix = ids[: min(PREFIX, len(ids) // 2)]
    size = min(TAIL, (len(ids) - len(prefix)) // FORKS)
    if size < 2:
        return found
    # From all over the text: what follows the prefix in the text, and what doesn't.
    every = (len(ids) - len(prefix)) // FORKS
    begins = range(len(prefix), len(prefix) + FORKS * every, every)
    tails = [list(ids[begin : begin + size]) for begin in begins]
    warm = joined(as_forks(runner, prefix, tails))
    alone = [as_prompt(runner, [*prefix, *tail], len(prefix)) for tail in tails]
    found["forked"] = warm.beside(joined(alone))
    return found


def engine_memory(model: str, dtype: str, ids: Sequence[int]) -> int | None:
    """Most bytes that an engine process had resident, mapped files among them, from its start to
    the end of a prompt; None where the system doesn't tell."""
    before = _children()
    with rm.Runtime(model=model, dtype=dtype) as runtime:
        runtime.generate(list(ids[:PROMPT]), {"max_tokens": 1, "temperature": 0})
        peaks = [_peak(process) for process in _children() - before]
    return max((peak for peak in peaks if peak is not None), default=None)


def _children() -> set[int]:
    lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    return {int(number) for text in lists for number in text.split()}


def _peak(process: int) -> int | None:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


def measure(
    name: str, dtypes: Sequence[str], num_tokens: int | None, memory: bool
) -> dict[str, dict[str, Any]]:
    """All figures, by dtype; float32 is always the first."""
    model = Model.find(name)
    ids = model.tokenizer.encode(TEXT.read_text(encoding="utf-8"))[:num_tokens]
    ids = ids[: model.spec.max_context]
    slots = len(ids) + PREFIX + FORKS * TAIL + CHUNK
    found: dict[str, dict[str, Any]] = {}
    exact: Reading | None = None
    for dtype in ("float32", *(dtype for dtype in dtypes if dtype != "float32")):
        runner = model.runner(dtype, slots)
        cold = as_prompt(runner, ids)
        exact = exact or cold
        found[dtype] = {
            "perplexity": cold.perplexity,
            "against_float32": cold.beside(exact),
            "weight_bytes": model.weight_bytes(dtype),
            "token_bytes": model.token_bytes(dtype),
        }
        if dtype == "int8":
            found[dtype]["warm_against_cold"] = warm_against_cold(runner, ids, cold)
        del runner
        if memory:
            found[dtype]["peak_bytes"] = engine_memory(name, dtype, ids)
    return found


def default_dtypes(model: str) -> list[str]:
    """int8, and bfloat16 where the processor multiplies it itself."""
    second = resolve_dtype(
        "auto", "cpu", Model.find(model).spec, "bfloat16 or float32 is asked for"
    )
    return ["int8", *(["bfloat16"] if second == torch.bfloat16 else [])]


def table(found: dict[str, dict[str, Any]]) -> str:
    """The figures as two Markdown tables."""
    lines = [
        "| dtype | perplexity | top-1 as float32 | log-prob. apart | weights | per token | peak |",
        "|---|---|---|---|---|---|---|",
    ]
    for dtype, row in found.items():
        beside = row["against_float32"]
        peak = row.get("peak_bytes")
        lines.append(
            f"| {dtype} | {row['perplexity']:.3f} | {beside['agreement']:.2%} "
            f"| {beside['mean_difference']:.4f} | {row['weight_bytes'] / 1e6:.0f} MB "
            f"| {row['token_bytes'] / 1e3:.1f} kB | {f'{peak / 1e6:.0f} MB' if peak else '–'} |"
        )
    lines += [
        "",
        "| warm against cold | positions | same top-1 | log-prob. apart | at most |",
        "|---|---|---|---|---|",
    ]
    for dtype, row in found.items():
        for way, figures in row.get("warm_against_cold", {}).items():
            lines.append(
                f"| {dtype}, {way} | {figures['positions']} | {figures['agreement']:.2%} "
                f"| {figures['mean_difference']:.4f} | {figures['largest_difference']:.3f} |"
            )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What each dtype costs, beside float32.")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtypes", nargs="+", choices=sorted(DTYPES), help="beside float32")
    parser.add_argument("--tokens", type=int, help="only so many of the text")
    parser.add_argument("--no-memory", action="store_true", help="start no engines")
    options = parser.parse_args(argv)
    dtypes = options.dtypes or default_dtypes(options.model)
    print(table(measure(options.model, dtypes, options.tokens, not options.no_memory)))


if __name__ == "__main__":
    main()
