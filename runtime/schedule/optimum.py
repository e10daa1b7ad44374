"""Optimum: what the calls of a trace must at least compute, from their logged token ids alone.

Pure and offline: it shares nothing with the engine's tree or its counters, so it can judge both.
Zheng et al. 2024 (SGLang), theorem 3.1: with room for everything, each edge of the radix tree of
all paths is computed once. Outputs count: a decided token is cache for the prompts that follow.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Iterable, Sequence
from typing import TypeAlias

Ids: TypeAlias = "array[int]"
"""Token ids, four bytes each."""

_PROMPT = 1
"""Mark bit: some call's prompt or scored choice has the token."""
_DECODED = 2
"""Mark bit: some call sampled the token and went on from it."""
_WITH = {mark: bytes(m | mark for m in range(256)) for mark in (_PROMPT, _DECODED)}


@dataclasses.dataclass(slots=True)
class LoggedCall:
    """One call of a trace, as token ids."""

    namespace: int
    """Calls of different ones never share."""
    prompt: Ids
    """The path that it starts from."""
    tails: list[Ids]
    """Of a scored one: the paths below the prompt that are computed to score its choices."""
    prompt_tokens: int
    """What `stats()` counts as its prompt: a path for each sample or choice."""
    charged_tokens: int = 0
    """How many the engine charged to it; the optimum doesn't look at it."""
    decoded: list[Ids] = dataclasses.field(default_factory=list)
    """What its samples went on from: their outputs, without a last token that ended one."""

    @property
    def num_ids(self) -> int:
        """Token ids that it holds."""
        return len(self.prompt) + sum(map(len, self.tails)) + sum(map(len, self.decoded))


@dataclasses.dataclass(frozen=True, slots=True)
class Optimum:
    """The least that any order and any cache could have computed for some calls."""

    calls: int = 0
    prompt_tokens: int = 0
    """Prompt tokens that they asked for, shared ones each time."""
    edge_tokens: int = 0
    """Of their distinct prompt tokens, those that no call decodes: some call must pay for each."""
    computed_tokens: int = 0
    """All distinct tokens, decoded ones included: the sum of the edges of the radix tree."""

    @property
    def hit_rate(self) -> float:
        """The highest possible `cached_tokens / prompt_tokens`; 0 without a prompt."""
        if not self.prompt_tokens:
            return 0.0
        return max(1.0 - self.edge_tokens / self.prompt_tokens, 0.0)


class _Edge:
    """Tokens between two branchings, with a byte of marks each."""

    __slots__ = ("children", "marks", "tokens")

    def __init__(self, tokens: Ids, marks: bytearray) -> None:
        self.tokens = tokens
        self.marks = marks
        self.children: dict[int, _Edge] = {}


class PathTree:
    """A growing radix tree of logged paths that counts its distinct tokens."""

    def __init__(self) -> None:
        self._roots: dict[int, _Edge] = {}
        self._calls = 0
        self._prompt_tokens = 0
        self._counts = [0, 0, 0, 0]
        """Distinct tokens by their marks."""
        self._forgotten = 0

    @property
    def num_tokens(self) -> int:
        """Distinct tokens that it holds."""
        return sum(self._counts) - self._forgotten

    @property
    def optimum(self) -> Optimum:
        """Of what has been added so far."""
        demanded = self._counts[1:]
        return Optimum(self._calls, self._prompt_tokens, self._counts[_PROMPT], sum(demanded))

    def add_prompt(self, call: LoggedCall) -> None:
        """Add what a call needs before it samples."""
        self._calls += 1
        self._prompt_tokens += call.prompt_tokens
        self._add(call.namespace, call.prompt, 0, _PROMPT)
        for tail in call.tails:
            self._add(call.namespace, call.prompt + tail, len(call.prompt), _PROMPT)

    def add_decoded(self, call: LoggedCall) -> None:
        """Add what a call sampled and went on from."""
        for ids in call.decoded:
            self._add(call.namespace, call.prompt + ids, len(call.prompt), _DECODED)

    def forget(self, namespace: int) -> None:
        """Drop the paths of a namespace that nobody will come to again; they stay counted."""
        root = self._roots.pop(namespace, None)
        edges = [] if root is None else [root]
        while edges:
            edge = edges.pop()
            self._forgotten += len(edge.tokens)
            edges += edge.children.values()

    def _add(self, namespace: int, ids: Ids, start: int, mark: int) -> None:
        """Put in a path, and mark its tokens from index `start` on."""
        edge = self._roots.get(namespace)
        if edge is None:
            edge = self._roots[namespace] = _Edge(array("I"), bytearray())
        done = 0
        while done < len(ids):
            child = edge.children.get(ids[done])
            if child is None:
                self._append(edge, ids[done:], max(start - done, 0), mark)
                return
            same = _common(child.tokens, ids, done)
            if start < done + same:
                self._mark(child, max(start - done, 0), same, mark)
            if same < len(child.tokens) and done + same < len(ids):
                _split(child, same)
            edge = child
            done += same

    def _append(self, edge: _Edge, ids: Ids, unmarked: int, mark: int) -> None:
        """Put new tokens below an edge."""
        marks = bytearray(unmarked) + bytes([mark]) * (len(ids) - unmarked)
        self._counts[0] += unmarked
        self._counts[mark] += len(ids) - unmarked
        if edge.tokens and not edge.children:
            edge.tokens += ids
            edge.marks += marks
        else:
            edge.children[ids[0]] = _Edge(ids, marks)

    def _mark(self, edge: _Edge, low: int, high: int, mark: int) -> None:
        before = edge.marks[low:high]
        after = before.translate(_WITH[mark])
        if before == after:
            return
        for value in range(4):
            self._counts[value] += after.count(value) - before.count(value)
        edge.marks[low:high] = after


def optimum(calls: Iterable[LoggedCall]) -> Optimum:
    """The least that any order and any cache could have computed for `calls`."""
    tree = PathTree()
    for call in calls:
        tree.add_prompt(call)
        tree.add_decoded(call)
    return tree.optimum


def as_ids(ids: Sequence[int]) -> Ids:
    """Token ids as they are logged."""
    return array("I", ids)


def _common(tokens: Ids, ids: Ids, start: int) -> int:
    """How many of an edge's tokens `ids` has from index `start` on; at least one."""
    top = min(len(tokens), len(ids) - start)
    if tokens[:top] == ids[start : start + top]:
        return top
    low = 1
    while low < top - 1:  # they agree in the first `low`, and not in the first `top`
        middle = (low + top) // 2
        if tokens[low:middle] == ids[start + low : start + middle]:
            low = middle
        else:
            top = middle
    return low


def _split(edge: _Edge, count: int) -> None:
    """Cut an edge after `count` tokens; the rest becomes its only child."""
    rest = _Edge(edge.tokens[count:], edge.marks[count:])
    rest.children = edge.children
    edge.children = {rest.tokens[0]: rest}
    edge.tokens = edge.tokens[:count]
    edge.marks = edge.marks[:count]
