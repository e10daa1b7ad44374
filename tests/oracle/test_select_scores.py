"""A select's entries and scores equal language.md §4's formula over transformers' logits."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from oracle import ModelBench, hf_logprobs, score

from ramet.runtime.sampling.border import border
from ramet.runtime.sampling.scoring import METHODS

UNCONDITIONAL = "unconditional_likelihood_normalized"


@dataclasses.dataclass(frozen=True)
class Choice:
    """`ids` go from the border through the choice's last token (for "" the end token); `first` is
    the index of the first one that carries bytes of the choice; `append` is what a win adds."""

    ids: list[int]
    first: int
    append: list[int]


@dataclasses.dataclass(frozen=True)
class Task:
    """A select below a path that ends at the border, with the prompt's bytes after it."""

    path: list[int]
    rest: bytes
    choices: list[Choice]
    prefix: list[int] = dataclasses.field(default_factory=list)

    def wire(self) -> dict[str, Any]:
        return {
            "choices": [dataclasses.asdict(choice) for choice in self.choices],
            "rest": list(self.rest),
            "prefix": self.prefix,
        }


class Formula:
    """§4, word for word, over a transformers model."""

    def __init__(self, model: Any, token_bytes: Sequence[bytes]) -> None:
        self._model = model
        self._token_bytes = token_bytes
        self._rows: dict[tuple[int, ...], torch.Tensor] = {}
        self._compatible: dict[bytes, list[int]] = {}

    def after(self, path: Sequence[int], ids: Sequence[int]) -> torch.Tensor:
        """The distribution after `path + ids`, from one pass per path that isn't known yet."""
        whole = (*path, *ids)
        if whole not in self._rows:
            for end, row in enumerate(hf_logprobs(self._model, whole), start=1):
                self._rows.setdefault(whole[:end], row)
        return self._rows[whole]

    def values(self, path: Sequence[int], ids: Sequence[int]) -> list[float]:
        """The log-probability of each of `ids`; without a path the first has none, and counts 0."""
        return [
            float(self.after(path, ids[:i])[token]) if path or i else 0.0
            for i, token in enumerate(ids)
        ]

    def log_rest(self, task: Task) -> float:
        """Log of the probability, at the border, of tokens that are compatible with the rest."""
        if not task.rest:
            return 0.0
        if task.rest not in self._compatible:
            self._compatible[task.rest] = [
                token
                for token, data in enumerate(self._token_bytes)
                if data and (data.startswith(task.rest) or task.rest.startswith(data))
            ]
        row = self.after(task.path, [])[self._compatible[task.rest]]
        return float(row.double().logsumexp(0))

    def entries(self, task: Task) -> list[list[float]]:
        rows = []
        for choice in task.choices:
            values = self.values(task.path, choice.ids)
            cut = choice.first + 1
            rows.append([math.fsum(values[:cut]) - self.log_rest(task), *values[cut:]])
        return rows

    def alone(self, task: Task) -> list[list[float]]:
        """The same tokens with only the choice as prompt; a first one counts 0."""
        rows = [self.values(task.prefix, choice.ids[choice.first :]) for choice in task.choices]
        return [[0.0, *row[1:]] for row in rows]

    def scores(self, task: Task, method: str) -> list[float]:
        """What the rule maximises; for greedy_token_selection 1 for the choice that it takes."""
        entries = self.entries(task)
        if method == "token_length_normalized":
            return [_mean(row) for row in entries]
        if method == UNCONDITIONAL:
            return [
                _mean([e - a for e, a in zip(row, base, strict=True)])
                for row, base in zip(entries, self.alone(task), strict=True)
            ]
        if method == "greedy_token_selection":
            return _walk(entries)
        return [
            math.fsum(row) if (ending := self._ending(task, choice)) is None else ending
            for row, choice in zip(entries, task.choices, strict=True)
        ]

    def _ending(self, task: Task, choice: Choice) -> float | None:
        """Where a longer choice begins with this one: writing it, and then none of those."""
        size = len(choice.append)
        longer = {
            other.append[size]
            for other in task.choices
            if len(other.append) > size and other.append[:size] == choice.append
        }
        if not longer:
            return None
        behind = self.after(task.path, choice.append)
        mass = math.fsum(math.exp(float(behind[token])) for token in longer)
        written = math.fsum(self.values(task.path, choice.append)) - self.log_rest(task)
        return written + math.log1p(-mass)


def _mean(row: Sequence[float]) -> float:
    return sum(row) / len(row)


def _walk(entries: Sequence[Sequence[float]]) -> list[float]:
    alive = list(range(len(entries)))
    for column in range(max(map(len, entries))):
        here = {
            i: entries[i][column] if column < len(entries[i]) else _mean(entries[i]) for i in alive
        }
        alive = [i for i in alive if here[i] == max(here.values())]
    return [float(i == alive[0]) for i in range(len(entries))]


# Tasks


def byte_task(path: bytes, rest: bytes, choices: Sequence[bytes], prefix: Sequence[int]) -> Task:
    """On the byte tokenizer, whose own borders leave no rest, one is made by hand."""
    return Task(
        list(path),
        rest,
        [Choice([*rest, *(choice or [258])], len(rest), [*rest, *choice]) for choice in choices],
        list(prefix),
    )


BYTE_TASKS = [
    byte_task(b"Is it so? A:", b"", [b" yes", b" no", b" not now"], []),
    byte_task(b"Is it so? A", b": ", [b"yes", b"no", b"yes, of course", b"y", b""], [97]),
    byte_task(b"one", b" and", [b"", b" two", b" two and three"], []),
    byte_task(b"x", b"", [b"", b"a", b"b", b"ab"], [1, 2]),
]

TEXT_TASKS = [
    ("Q: Is the sky blue on a clear day?\nA: ", ["yes", "no", "yes, it is", "maybe not", ""]),
    ("The capital of Fr", ["ance is Paris", "ance", "iesland is Leeuwarden"]),
    ("One and one are", [" two", " two, of course", " three", " eleven"]),
]


def text_task(hf_tokenizer: Any, token_bytes: Sequence[bytes], prompt: str, choices: Any) -> Task:
    """The border from transformers' own tokenizer."""
    alone: list[int] = hf_tokenizer(prompt).input_ids
    whole = [hf_tokenizer(prompt + choice).input_ids for choice in choices]
    common = len(alone)
    while any(ids[:common] != alone[:common] for ids in whole):
        common -= 1
    rest = b"".join(token_bytes[token] for token in alone[common:])
    found = []
    for choice, ids in zip(choices, whole, strict=True):
        own, written, first = ids[common:], b"", 0
        if not choice:
            found.append(Choice([*own, hf_tokenizer.eos_token_id], len(own), own))
            continue
        while len(written + token_bytes[own[first]]) <= len(rest):
            written += token_bytes[own[first]]
            first += 1
        found.append(Choice(own, first, own))
    return Task(alone[:common], rest, found)


@dataclasses.dataclass(frozen=True)
class Bed:
    """A model with its tasks, and how near its scores must be."""

    pair: Any
    formula: Formula
    tasks: list[Task]
    near: float


def hf_bytes(hf_tokenizer: Any) -> list[bytes]:
    """Each token's bytes, by GPT-2's table of printable bytes; special tokens have none."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in printable]
    table.update({chr(256 + i): byte for i, byte in enumerate(others)})
    special = set(hf_tokenizer.all_special_ids) | set(hf_tokenizer.added_tokens_decoder)
    names = hf_tokenizer.convert_ids_to_tokens(list(range(len(hf_tokenizer))))
    return [
        b"" if token in special else bytes(table[char] for char in name)
        for token, name in enumerate(names)
    ]


@pytest.fixture(scope="module")
def tiny_bed(tiny: Any) -> Bed:
    token_bytes = [bytes([byte]) for byte in range(256)] + [b""] * 3
    return Bed(tiny, Formula(tiny.hf, token_bytes), BYTE_TASKS, 1e-9)


@pytest.fixture(scope="module")
def builtin_bed(builtin: Any) -> Bed:
    from transformers import AutoTokenizer

    hf_tokenizer = AutoTokenizer.from_pretrained(builtin.directory)
    token_bytes = hf_bytes(hf_tokenizer)
    tasks = [text_task(hf_tokenizer, token_bytes, *texts) for texts in TEXT_TASKS]
    assert [task.rest for task in tasks] == [b" ", b" Fr", b""]
    for task, (prompt, choices) in zip(tasks, TEXT_TASKS, strict=True):
        ours = border(builtin.tokenizer, [(prompt, "text")], choices, empty_path=True)
        assert (ours.prompt_ids, ours.rest) == (task.path, task.rest)
        assert [Choice(b.ids, b.first, b.append) for b in ours.branches] == task.choices
    return Bed(builtin, Formula(builtin.hf, token_bytes), tasks, 1e-4)


@pytest.fixture(params=["tiny_bed", pytest.param("builtin_bed", marks=pytest.mark.model)])
def bed(request: pytest.FixtureRequest) -> Bed:
    found: Bed = request.getfixturevalue(request.param)
    return found


def check(bed: Bed, task: Task, method: str, outcome: dict[str, Any]) -> None:
    near = {"abs": bed.near, "rel": 0}
    for got, want in zip(outcome["entries"], bed.formula.entries(task), strict=True):
        assert got == pytest.approx(want, **near)
    if method == UNCONDITIONAL:
        for got, want in zip(outcome["unconditional"], bed.formula.alone(task), strict=True):
            assert got == pytest.approx(want, **near)
    scores = bed.formula.scores(task, method)
    if method != "greedy_token_selection":
        assert outcome["scores"] == pytest.approx(scores, **near)
    if method == "exact_likelihood":
        total = math.fsum(math.exp(score) for score in scores)
        chances = [math.exp(score) / total for score in scores]
        assert outcome["probabilities"] == pytest.approx(chances, abs=10 * bed.near)
    assert scores[outcome["index"]] == max(scores)
    assert outcome["append"] == task.choices[outcome["index"]].append


def submit(bench: ModelBench, task: Task, method: str) -> int:
    context = bench.open(task.path)
    call = score(bench, context, task.wire(), method)
    bench.close(context)
    return call


@pytest.mark.parametrize(("chunk_tokens", "page_size"), [(64, 16), (3, 1)])
def test_cold_then_warm(
    bench: Callable[..., ModelBench], bed: Bed, chunk_tokens: int, page_size: int
) -> None:
    for task in bed.tasks:
        one = bench(bed.pair, chunk_tokens=chunk_tokens, page_size=page_size, pool_tokens=1024)
        for method in (*METHODS, *METHODS):
            call = submit(one, task, method)
            one.run()
            check(bed, task, method, one.done[call]["results"][0])
        assert one.engine.stats()["recomputed_tokens"] == 0


def test_all_at_once_beside_generations(bench: Callable[..., ModelBench], bed: Bed) -> None:
    one = bench(bed.pair, chunk_tokens=32, pool_tokens=4096)
    asked = []
    for task in bed.tasks:
        one.generate(one.open(task.path), max_tokens=4, temperature=1.0)
        asked += [(task, method, submit(one, task, method)) for method in METHODS]
    one.run()
    for task, method, call in asked:
        check(bed, task, method, one.done[call]["results"][0])


def test_in_a_pool_smaller_than_the_trie(bench: Callable[..., ModelBench], bed: Bed) -> None:
    for task in bed.tasks:
        longest = max(len(choice.ids) for choice in task.choices)
        pages = -(-(len(task.path) + longest) // 4) + 1
        one = bench(bed.pair, chunk_tokens=16, page_size=4, pool_tokens=4 * pages)
        for method in METHODS:
            call = submit(one, task, method)
            one.run()
            check(bed, task, method, one.done[call]["results"][0])
