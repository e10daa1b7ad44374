"""Selections: starts `score` operations and turns their logits into a choice.

The choices are a trie of ordinary planned edges under the border (language.md's `select`): each is
computed once, chunked like any prefill, and scored from the stored hidden states of its tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from ramet.runtime.cache.node import Node
from ramet.runtime.cache.prefix import describe_prefix
from ramet.runtime.errors import InvalidArgument, RametError
from ramet.runtime.room import EngineRoom
from ramet.runtime.sampling.border import compatible_tokens
from ramet.runtime.sampling.scoring import decide, ending_score, longer_tokens
from ramet.runtime.sampling.streams import uniform
from ramet.runtime.sampling.trie import ChoiceTrie
from ramet.runtime.schedule.call import ScoreCall
from ramet.runtime.schedule.context import Context
from ramet.runtime.schedule.sequence import Branch


class Selections:
    """All `score` calls in flight."""

    def __init__(self, room: EngineRoom) -> None:
        self._room = room
        self._allowed: dict[bytes, list[int]] = {}

    def start(self, context: Context, op: dict[str, Any]) -> ScoreCall:
        """Plan the choices' edges and queue them. Raises RametError before any compute."""
        room = self._room
        node = context.node
        assert node is not None
        if not node.end:
            raise InvalidArgument("the context is empty: it needs at least one token")
        choices = op["choices"]
        ids = [choice["ids"] for choice in choices]
        room.check_fits(node.end + max(map(len, ids)) - 1, "the context with its longest choice")
        call = ScoreCall(
            id=op["call"],
            place=room.place(context, op, context.program.salt),
            method=op["method"],
            temperature=op["temperature"],
            key=op["key"],
            prompt_len=node.end,
            prefix=describe_prefix(room.tree, node, context.program.salt),
            choices=choices,
            rest=bytes(op["rest"]),
            submitted=room.clock(),
            conditional=ChoiceTrie(ids),
            unconditional=None,
        )
        scored = sum(len(i) - 1 + call.prompt_len for i in ids)
        self._plan(call, call.conditional, node, scored)
        if call.method == "unconditional_likelihood_normalized":
            alone = [choice["ids"][choice["first"] :] for choice in choices]
            call.unconditional = ChoiceTrie(alone, given=True)
            program = context.program
            root = room.tree.root(program.salt, private=not program.cache)
            base = room.tree.extend(root, op["prefix"])
            self._plan(call, call.unconditional, base, 0)
            room.tree.release(base)
        room.begin(call.place.origin, scored, call.charged)
        for branch in call.branches:
            room.scheduler.add(branch)
        return call

    def collect(self, ready: Sequence[Branch]) -> list[ScoreCall]:
        """Score the positions that ready branches bring; returns the calls that are done."""
        asked: list[tuple[ScoreCall, ChoiceTrie, int, list[int]]] = []
        slots: list[int] = []
        done: list[ScoreCall] = []
        seen: set[tuple[int, int]] = set()
        for branch in ready:
            places = [
                (offset, position)
                for offset, position in enumerate(branch.positions)
                if branch.trie.unscored(position) and (id(branch.trie), position) not in seen
            ]
            seen.update((id(branch.trie), position) for _, position in places)
            slots += self._room.slots_of(
                branch.node, [branch.border - 1 + offset for offset, _ in places]
            )
            for _, position in places:
                asked.append((branch.call, branch.trie, position, branch.trie.unscored(position)))
        self._score(asked, slots)
        for branch in ready:
            self._room.scheduler.finish(branch)
            branch.call.left -= 1
            if not branch.call.left:
                done.append(branch.call)
        return done

    def abort(self, call: ScoreCall, error: RametError) -> None:
        """End a call with an error: its branches leave the scheduler."""
        call.error = error
        for branch in call.branches:
            self._room.scheduler.finish(branch)

    def result(self, call: ScoreCall) -> dict[str, Any]:
        """The `done` event of a call whose branches are all scored; moves its context."""
        room = self._room
        entries = [
            _entries(call.conditional.values(index), choice["first"], call.log_rest)
            for index, choice in enumerate(call.choices)
        ]
        alone = None
        if call.unconditional is not None:
            alone = [call.unconditional.values(index) for index in range(len(call.choices))]
        decision = decide(
            call.method,
            entries,
            alone,
            self._endings(call) if call.method == "exact_likelihood" else None,
            call.temperature,
            uniform(call.key, 0),
        )
        append = call.choices[decision.index]["append"]
        context = call.context
        assert context.node is not None
        context.node = room.tree.extend(context.node, append)
        outcome = {
            "index": decision.index,
            "scores": decision.scores,
            "entries": entries,
            "unconditional": alone,
            "probabilities": decision.probabilities,
            "append": append,
        }
        meta = {
            "prompt_tokens": call.prompt_len,
            "cached_tokens": call.prefix["cached"],
            "computed_tokens": call.charged,
        }
        return {"ev": "done", "call": call.id, "results": [outcome], "meta": meta}

    # Inside

    @cached_property
    def _token_table(self) -> list[bytes]:
        tokenizer = self._room.tokenizer
        return [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]

    def _compatible(self, rest: bytes) -> list[int]:
        """`compatible_tokens` of the last few rests: a program's selects often share theirs."""
        if rest not in self._allowed:
            while len(self._allowed) >= 64:
                del self._allowed[next(iter(self._allowed))]
            self._allowed[rest] = compatible_tokens(rest, self._token_table)
        return self._allowed[rest]

    def _plan(self, call: ScoreCall, trie: ChoiceTrie, base: Node, prompt_tokens: int) -> None:
        """One branch per maximal path of the trie, on planned edges below `base`."""
        tree, program = self._room.tree, call.context.program
        tails: list[list[int]] = []
        before = call.charged
        for ids, positions in trie.branches():
            if not any(trie.unscored(position) for position in positions):
                continue
            node = tree.extend(tree.fork(base), ids)
            call.charged += tree.demand(node, call.place.origin)
            branch = Branch(
                node,
                program.number,
                program.priority,
                next(self._room.arrivals),
                call=call,
                trie=trie,
                border=base.end,
                positions=positions,
            )
            call.branches.append(branch)
            call.left += 1
            tails.append(ids)
        self._room.log(call, base, prompt_tokens, call.charged - before, tails)

    def _score(
        self, asked: Sequence[tuple[ScoreCall, ChoiceTrie, int, list[int]]], slots: Sequence[int]
    ) -> None:
        """Fill the tries, one chunk of logits at a time."""
        size = self._room.scheduler.chunk_tokens
        for low in range(0, len(asked), size):
            part = asked[low : low + size]
            logits = self._room.logits(slots[low : low + size])
            values = self._room.arithmetic.pair_logprobs(
                logits, [tokens for _, _, _, tokens in part]
            )
            for row, ((call, trie, position, tokens), found) in enumerate(
                zip(part, values, strict=True)
            ):
                trie.put(position, tokens, found)
                if position == 0 and trie is call.conditional and call.rest:
                    allowed = self._compatible(call.rest)
                    masses = self._room.arithmetic.log_masses(logits[row : row + 1], [allowed])
                    call.log_rest = masses[0]

    @staticmethod
    def _endings(call: ScoreCall) -> list[float | None]:
        """What ending at each choice adds to its score: something only if a longer one exists."""
        appends = [choice["append"] for choice in call.choices]
        endings: list[float | None] = []
        for choice, longer in zip(call.choices, longer_tokens(appends), strict=True):
            if not longer:
                endings.append(None)
                continue
            here = call.conditional.logprobs[call.conditional.position_of(choice["append"])]
            mass = min(math.fsum(math.exp(here[token]) for token in longer), 1.0)
            ended = len(choice["ids"]) > len(choice["append"])
            log_mass = math.log(mass) if mass else -math.inf
            endings.append(ending_score(log_mass, here[choice["ids"][-1]] if ended else None))
        return endings


def _entries(logprobs: Sequence[float], first: int, log_rest: float) -> list[float]:
    """Token log-probabilities → entries: the first joins the prompt's rest, given that rest."""
    return [math.fsum(logprobs[: first + 1]) - log_rest, *logprobs[first + 1 :]]
