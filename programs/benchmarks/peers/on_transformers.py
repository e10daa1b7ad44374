"""transformers: padded batches of all calls that are ready, on key-value caches that are kept.

What its users would write by hand: a beginning that all calls of a batch share is computed once,
and a branch that goes on keeps its cache. `generate` can do neither for a batch, so the loop is
ours.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
import transformers
from peer import Call, Result

MAX_ROWS = 64
"""Most rows of a batch."""
SHORTEST = 32
"""Tokens that a common beginning has at least, to be computed apart."""


@dataclasses.dataclass
class Kept:
    """Keys and values of a text."""

    ids: list[int]
    layers: list[tuple[Any, Any]]
    """Per layer, each of shape [1, heads, tokens, head size]."""


@dataclasses.dataclass
class Row:
    """One sequence of a batch."""

    ids: list[int]
    seed: int
    call: Call


def common(a: list[int], b: list[int]) -> int:
    """How many tokens two texts have in common at the beginning."""
    for place, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return place
    return min(len(a), len(b))


class Transformers:
    """One model."""

    constraints = False

    def __init__(self, folder: str, cores: int) -> None:
        torch.set_num_threads(cores)
        torch.set_grad_enabled(False)
        cpu = Path("/proc/cpuinfo")
        flags = cpu.read_text(encoding="utf-8").split() if cpu.is_file() else []
        fast = {"avx512_bf16", "amx_bf16", "bf16"} & set(flags)
        dtype = torch.bfloat16 if fast else torch.float32
        self.version = f"transformers {transformers.__version__}"
        self.settings = (
            f"{str(dtype).removeprefix('torch.')}, {cores} threads, SDPA, batches of all "
            f"calls that are ready ({MAX_ROWS} rows at most) padded on the left, a DynamicCache of "
            "what a batch shares and of each branch that goes on; no constraints: free text "
            "instead of JSON"
        )
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        self._model: Any = model.eval()
        self._calls: list[Call] = []
        self._kept: list[Kept] = []

    def tokenize(self, text: str) -> list[int]:
        """See `peer.System`."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def detokenize(self, ids: list[int]) -> str:
        """See `peer.System`."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))

    def begin(self) -> None:
        """See `peer.System`."""
        self._kept.clear()

    def add(self, calls: list[Call]) -> None:
        """See `peer.System`."""
        self._calls += calls

    def finished(self) -> list[tuple[Call, Result]]:
        """All that are ready: those that pick, else those that generate."""
        picking = [call for call in self._calls if call.choices]
        if picking:
            self._calls = [call for call in self._calls if not call.choices]
            return self._select(picking)
        calls, self._calls = self._calls, []
        rows = [Row(c.ids, c.seed + 1000 * i, c) for c in calls for i in range(c.step["n"])]
        self._share([row.ids for row in rows])
        results = {id(call): Result() for call in calls}
        kept: list[Kept] = []
        for at in range(0, len(rows), MAX_ROWS):
            batch = rows[at : at + MAX_ROWS]
            made, new = self._generate(batch)
            for row, ids in zip(batch, made, strict=True):
                results[id(row.call)].samples.append(ids)
            kept += new
        if kept:
            self._kept = kept
        return [(call, results[id(call)]) for call in calls]

    def _share(self, prompts: list[list[int]]) -> None:
        """Compute what all prompts begin with, unless it is there."""
        length = min(common(prompts[0], other) for other in prompts)
        length = min(length, min(len(ids) for ids in prompts) - 1)
        there = max((common(kept.ids, prompts[0]) for kept in self._kept), default=0)
        if len(prompts) < 2 or length - there < SHORTEST:
            return
        ids = prompts[0][:length]
        batch = Batch(self._model, [ids], self._kept)
        batch.forward(batch.first, 1)
        self._kept.append(batch.keep(0, ids))

    def _generate(self, rows: list[Row]) -> tuple[list[list[int]], list[Kept]]:
        batch = Batch(self._model, [row.ids for row in rows], self._kept)
        limits = [self._limit(row.call) for row in rows]
        random = [torch.Generator().manual_seed(row.seed) for row in rows]
        made: list[list[int]] = [[] for _ in rows]
        tokens = batch.first
        for place in range(max(limits)):
            logits = batch.forward(tokens, 1)[:, -1].float()
            best = logits.argmax(-1).tolist()
            for number, row in enumerate(rows):
                if place < limits[number]:
                    if row.call.step["temperature"]:
                        p = (logits[number] / row.call.step["temperature"]).softmax(-1)
                        best[number] = int(p.multinomial(1, generator=random[number]))
                    made[number].append(best[number])
            tokens = torch.tensor(best)[:, None]
        kept = [
            batch.keep(number, row.ids + made[number])
            for number, row in enumerate(rows)
            if row.call.more
        ]
        return made, kept

    def _limit(self, call: Call) -> int:
        return int(call.step["free_tokens"] if call.step["schema"] else call.step["max_tokens"])

    def _select(self, calls: list[Call]) -> list[tuple[Call, Result]]:
        """The choices with the largest mean log-probability: prompt and choice are a row."""
        self._share([call.ids for call in calls] * 2)
        rows = [(call, choice) for call in calls for choice in call.choices]
        means: list[float] = []
        for at in range(0, len(rows), MAX_ROWS):
            part = rows[at : at + MAX_ROWS]
            batch = Batch(self._model, [call.ids + choice for call, choice in part], self._kept)
            longest = max(len(choice) for _, choice in part)
            logprobs = batch.forward(batch.first, longest + 1).float().log_softmax(-1)
            for number, (_, choice) in enumerate(part):
                of_row = logprobs[number, -len(choice) - 1 : -1]
                scores = of_row.gather(-1, torch.tensor(choice)[:, None])
                means.append(float(scores.mean()))
        results = []
        for call in calls:
            own, means = means[: len(call.choices)], means[len(call.choices) :]
            results.append((call, Result(picked=own.index(max(own)))))
        return results


class Batch:
    """Sequences of different lengths: [padding][kept part][padding][rest], and what follows."""

    def __init__(self, model: Any, prompts: list[list[int]], kept: list[Kept]) -> None:
        self._model = model
        found = []
        for ids in prompts:
            lengths = [common(one.ids, ids[:-1]) for one in kept]
            best = max(range(len(kept)), key=lengths.__getitem__, default=None)
            found.append((kept[best].layers, lengths[best]) if best is not None else ([], 0))
        past, rest = max(n for _, n in found), 0
        rest = max(len(ids) - n for ids, (_, n) in zip(prompts, found, strict=True))
        mask = torch.zeros(len(prompts), past + rest, dtype=torch.long)
        self.first = torch.zeros(len(prompts), rest, dtype=torch.long)
        """The tokens of the first pass."""
        for number, (ids, (_, n)) in enumerate(zip(prompts, found, strict=True)):
            mask[number, past - n : past] = 1
            mask[number, past + rest - (len(ids) - n) :] = 1
            self.first[number, rest - (len(ids) - n) :] = torch.tensor(ids[n:])
        self._mask = mask
        self._cache = transformers.DynamicCache()
        if past:
            self._fill(found, past)

    def _fill(self, found: list[tuple[list[Any], int]], past: int) -> None:
        layers, length = found[0]
        same = all(of is layers and n == length for of, n in found)
        depth = max(len(of) for of, _ in found)
        for layer in range(depth):
            both = []
            for which in (0, 1):
                if same:
                    both.append(layers[layer][which][:, :, :past].expand(len(found), -1, -1, -1))
                    continue
                shape = next(of for of, _ in found if of)[layer][which].shape
                whole = torch.zeros(len(found), shape[1], past, shape[3], dtype=self._model.dtype)
                for number, (of, n) in enumerate(found):
                    if n:
                        whole[number, :, past - n :] = of[layer][which][0, :, :n]
                both.append(whole)
            self._cache.update(both[0], both[1], layer)

    def forward(self, tokens: Any, last: int) -> Any:
        """The logits of the last tokens, [rows, last, vocabulary]."""
        more = tokens.shape[1] - (self._mask.shape[1] - self._cache.get_seq_length())
        if more > 0:
            ones = torch.ones(len(tokens), more, dtype=torch.long)
            self._mask = torch.cat([self._mask, ones], 1)
        positions = (self._mask.cumsum(-1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        return self._model(
            input_ids=tokens,
            attention_mask=self._mask,
            position_ids=positions,
            past_key_values=self._cache,
            logits_to_keep=last,
        ).logits

    def keep(self, number: int, ids: list[int]) -> Kept:
        """The cache of a row, without its padding; the last token may not be in it."""
        at = self._mask[number, : self._cache.get_seq_length()].bool()
        layers = [
            (layer.keys[number : number + 1][:, :, at], layer.values[number : number + 1][:, :, at])
            for layer in self._cache.layers
        ]
        return Kept(ids[: int(at.sum())], layers)


def load(folder: str | None, gguf: str | None, cores: int) -> Transformers:
    """The system."""
    if folder is None:
        raise ValueError("the model has no folder that transformers could load")
    return Transformers(folder, cores)
