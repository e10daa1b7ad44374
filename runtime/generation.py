"""Generations: starts `generate` operations; turns their logits into tokens, text and results."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from ramet.runtime.cache.node import DECODE, Node, last_ids
from ramet.runtime.cache.prefix import describe_prefix
from ramet.runtime.constrained import Constrained, wanted
from ramet.runtime.errors import InvalidArgument, RametError
from ramet.runtime.grammar.guide import Guide
from ramet.runtime.grammar.jump import CONTEXT_TOKENS
from ramet.runtime.reports import Reports
from ramet.runtime.request import SamplingParams
from ramet.runtime.room import EngineRoom
from ramet.runtime.sampling.output import NOTHING, Step, TextOutput
from ramet.runtime.sampling.rows import Sampled, always_greedy, only_tokens
from ramet.runtime.sampling.stops import StopSet
from ramet.runtime.schedule.call import GenerateCall
from ramet.runtime.schedule.context import Context
from ramet.runtime.schedule.sequence import Generation

_PLAIN = attrgetter("plain")


class Generations:
    """All `generate` calls in flight."""

    def __init__(self, room: EngineRoom) -> None:
        self._room = room
        self._reports = Reports(room)
        self._constrained = Constrained(room.tokenizer, room.runner.vocab_size)
        self._loud = frozenset((*room.tokenizer.eos_ids, -1))
        """What may end any sequence: the model's end ids, and what is drawn with an error."""

    def start(self, context: Context, op: dict[str, Any]) -> GenerateCall:
        """Plan the prompt and queue the samples. Raises RametError before any compute."""
        room = self._room
        node = context.node
        assert node is not None
        params = SamplingParams.from_wire(op["params"])
        params.check_vocabulary(room.runner.vocab_size)
        length = node.end
        if not length:
            raise InvalidArgument("the prompt is empty: it needs at least one token")
        room.check_fits(length, "the prompt", new_tokens=1)
        start = params.logprob_start_len
        if start is not None and start > length:
            raise InvalidArgument(f"logprob_start_len={start}: the prompt has {length} tokens")
        limit = room.max_context - length
        if params.max_new_tokens != "context":
            limit = min(limit, int(params.max_new_tokens))
        guides = self._constrained.guides(params, limit)
        salt = context.program.salt if params.cache_salt is None else params.cache_salt
        node = self._path(context, params, salt)
        place = room.place(context, op, salt)
        call = GenerateCall(
            op["call"],
            place,
            params,
            bool(op.get("stream")),
            length,
            describe_prefix(room.tree, node, salt),
            room.clock(),
        )
        charged = room.tree.demand(node, place.origin)
        room.begin(place.origin, params.n * length, charged)
        room.log(call, node, params.n * length, charged)
        self._queue(call, node, op["keys"], guides, limit)
        room.tree.release(node)
        return call

    def _queue(
        self,
        call: GenerateCall,
        node: Node,
        keys: Sequence[int],
        guides: Sequence[Guide | None],
        limit: int,
    ) -> None:
        """Queue a call's samples, each with a reference of its own to the prompt's path."""
        room, params, program = self._room, call.params, call.context.program
        stops = StopSet(params.stop)
        penalised = params.repetition_penalty != 1.0
        prompt_ids = frozenset(node.path_ids()) if penalised else None
        bare = params.constraint is None and only_tokens(params)
        plain = bare and not params.min_new_tokens and always_greedy(params)
        for index, (key, guide) in enumerate(zip(keys, guides, strict=True)):
            text = TextOutput(
                room.tokenizer.token_bytes,
                params,
                room.tokenizer.eos_ids,
                limit=limit,
                stops=stops,
                may_cut=guide.may_cut if guide else None,
                streams=call.stream,
            )
            sequence = Generation(
                room.tree.fork(node),
                program.number,
                program.priority if params.priority is None else params.priority,
                next(room.arrivals),
                call=call,
                params=params,
                sample=index,
                key=key,
                limit=limit,
                output=text,
                prompt_ids=prompt_ids,
            )
            sequence.guide = guide
            sequence.bare, sequence.plain = bare, plain
            sequence.drawable = bare and not (params.min_new_tokens or params.logit_bias)
            sequence.quiet_tokens = text.quiet_tokens if bare else 0
            call.samples.append(sequence)
            room.scheduler.add(sequence)

    def collect(
        self,
        ready: Sequence[Generation],
        last_slots: list[int] | None = None,
        idle: bool = False,
    ) -> list[GenerateCall]:
        """Sample one token for each ready sequence; returns the calls that are done.

        `last_slots`: those of the last tokens of their paths, if no two have the same. `idle`:
        nothing else is to be done in this step.
        """
        done: list[GenerateCall] = []
        masks: dict[Generation, bytes] = {}
        going = [sequence for sequence in ready if sequence.alive]
        others = [sequence for sequence in going if not sequence.bare]
        if any(sequence.guide is not None for sequence in others):
            masks = self._masks(going, done, idle)
            going = [s for s in going if s.alive and (s.guide is None or s in masks)]
            others = [sequence for sequence in going if not sequence.bare]
        if not going:
            return done
        if last_slots is None or len(going) < len(ready):
            rows = {node: row for row, node in enumerate({s.node: None for s in going})}
            last_slots = [node.last_slot() for node in rows]
            where = [rows[sequence.node] for sequence in going]
        else:
            where = list(range(len(going)))
        for sequence in others:
            call = sequence.call
            if sequence.params.logprob_start_len is not None and call.prompt_logprobs is None:
                call.prompt_logprobs = self._reports.of_prompt(sequence)
        if all(map(_PLAIN, going)):
            return self._record(going, self._room.greedy(last_slots, where), done)
        logits = self._room.logits(last_slots, wanted(going, masks))
        for row, sequence in zip(where, going, strict=True):
            asked = sequence.asked
            asked.row, asked.index = row, len(sequence.output_ids)
            if not sequence.quiet_tokens:
                asked.banned = sequence.output.banned if sequence.params.min_new_tokens else ()
                asked.mask = masks.get(sequence)
        asked_all = [sequence.asked for sequence in going]
        drawn = self._room.arithmetic.sample(logits, asked_all)
        if masks:
            chosen = self._constrained.take(going, drawn)
            drawn = self._reports.of_chosen(logits, asked_all, drawn, chosen)
        return self._record(going, drawn, done)

    def take(
        self, ready: Sequence[Generation], drawn: Sequence[Sampled], expected: frozenset[Generation]
    ) -> list[GenerateCall]:
        """As `collect`, of tokens that are drawn already; those of `expected` stand in the tree."""
        going = [index for index, sequence in enumerate(ready) if sequence.alive]
        some = [ready[index] for index in going]
        return self._record(some, [drawn[index] for index in going], [], expected)

    def _record(
        self,
        ready: Sequence[Generation],
        drawn: Sequence[Sampled],
        done: list[GenerateCall],
        expected: frozenset[Generation] = frozenset(),
    ) -> list[GenerateCall]:
        """Take what was drawn for each sequence; returns the calls that are done, too."""
        loud = self._loud
        tokens = [sampled.token for sampled in drawn]
        heard: list[int] = []
        for index, (sequence, token) in enumerate(zip(ready, tokens, strict=True)):
            ids = sequence.output_ids
            if len(ids) >= sequence.quiet_tokens or token in loud:
                heard.append(index)
            else:
                ids.append(token)
                sequence.account.generated_tokens += 1
        if heard:
            over = {
                index
                for index in heard
                if not self._hear(ready[index], drawn[index], done, ready[index] in expected)
            }
            going = [i for i, sequence in enumerate(ready) if sequence.alive and i not in over]
            ready, tokens = [ready[i] for i in going], [tokens[i] for i in going]
        if expected:
            going = [i for i, sequence in enumerate(ready) if sequence not in expected]
            ready, tokens = [ready[i] for i in going], [tokens[i] for i in going]
        tree = self._room.tree
        nodes = [sequence.node for sequence in ready]
        whose = [sequence.origin for sequence in ready]
        for index in tree.grow(nodes, tokens, whose):
            sequence, node, token = ready[index], nodes[index], tokens[index]
            sequence.rowless += token in node.children
            running, who = sequence.running, whose[index]
            sequence.node = tree.extend(node, [token], DECODE, running, who)
        if heard:
            self._jump_all([s for s in ready if s.guide is not None], done)
        return done

    def _hear(
        self, sequence: Generation, sampled: Sampled, done: list[GenerateCall], has_row: bool
    ) -> bool:
        """Take a token of which more may come than its id, and which may have a row already;
        whether the sequence goes on."""
        call = sequence.call
        if sampled.error is not None and call.error is None:
            self.abort(call, sampled.error)
            done.append(call)
        if not sequence.alive:
            return False
        if sequence.output.finished is not None:  # Its constraint ended it, without the token.
            sequence.unplanned = 0
            if self._end(call, sequence):
                done.append(call)
            return False
        sequence.account.generated_tokens += 1
        push = sequence.output.push
        step = push(sampled.token) if sequence.bare else self._push(sequence, sampled)
        if step is not NOTHING:
            self._chunk(call, sequence, step.text)
        if step.finished is None:
            return True
        sequence.rowless += not has_row
        if self._end(call, sequence):
            done.append(call)
        return False

    def outgrown(self, sequence: Generation) -> list[GenerateCall]:
        """End a lone sequence whose path has outgrown the pool; returns its call if it is done."""
        call = sequence.call
        # Its last tokens were planned, but will never be run.
        for node in sequence.node.missing():
            planned = node.marks[node.computed :]
            sampled = sum(mark & DECODE > 0 for mark in planned)
            sequence.rowless += sampled
            sequence.call.forced -= len(planned) - sampled
        step = sequence.output.finish("length")
        self._chunk(call, sequence, step.text)
        return [call] if self._end(call, sequence, pool_exhausted=True) else []

    def abort(self, call: GenerateCall, error: RametError) -> None:
        """End a call with an error: its samples leave the scheduler."""
        call.error = error
        for sequence in call.samples:
            self._room.scheduler.finish(sequence)
        self._let_go(call)

    def result(self, call: GenerateCall) -> dict[str, Any]:
        """The `done` event of a call whose samples have all ended; moves its context."""
        room = self._room
        context = call.context
        assert context.node is not None
        results = [call.results[index] for index in range(len(call.samples))]
        first = results[0]
        context.node = room.tree.extend(
            context.node, first["output_token_ids"][: first["kept"]] + first["tail"]
        )
        self._let_go(call)
        decoded = sum(len(s.output_ids) - s.rowless for s in call.samples)
        meta = {
            "prompt_tokens": call.prompt_len,
            "cached_tokens": call.prefix["cached"],
            "computed_tokens": call.prefix["charged"] + call.forced + decoded,
        }
        return {"ev": "done", "call": call.id, "results": results, "meta": meta}

    def _let_go(self, call: GenerateCall) -> None:
        if call.kept is not None:
            self._room.tree.release(call.kept)
            call.kept = None

    def _path(self, context: Context, params: SamplingParams, salt: str | None) -> Node:
        """A reference to the prompt's path: the context's own, or where the call wants to share."""
        tree, program = self._room.tree, context.program
        assert context.node is not None
        cache = program.cache if params.cache is None else params.cache
        if cache == program.cache and (salt == program.salt or not cache):
            return tree.fork(context.node)
        return tree.extend(tree.root(salt, private=not cache), context.node.path_ids())

    # Constraints

    def _masks(
        self, ready: Sequence[Generation], done: list[GenerateCall], idle: bool
    ) -> dict[Generation, bytes]:
        """What the constrained ones may sample in this step; those that are over are ended."""
        found = self._constrained.masks(ready, self._jump, idle)
        for sequence in found.ended:
            if self._end(sequence.call, sequence):
                done.append(sequence.call)
        for sequence, error in found.failed:
            if sequence.call.error is None:
                self.abort(sequence.call, error)
                done.append(sequence.call)
        return found.masks

    def _jump_all(self, sequences: Sequence[Generation], done: list[GenerateCall]) -> None:
        for sequence in sequences:
            ended = self._jump(sequence) and sequence.output.finished is not None
            if ended and self._end(sequence.call, sequence):
                done.append(sequence.call)

    def _jump(self, sequence: Generation) -> bool:
        """Take the text that its constraint forces where a sequence stands, as planned edges;
        whether there was any."""
        guide, node, output = sequence.guide, sequence.node, sequence.output
        if guide is None:
            return False
        before = len(sequence.output_ids)
        tokens = guide.forced(last_ids(node, CONTEXT_TOKENS), sequence.limit - before)
        if not tokens:
            return False
        parts: list[str] = []
        for token in tokens:
            sequence.rowless += 1
            guide.take(token, output.may_end)
            step = self._write(sequence, token)
            parts.append(step.text)
            if step.finished is not None:
                # Nothing comes after the token that was sampled last, either.
                sequence.rowless += before > 0
                sequence.unplanned = len(sequence.output_ids) - before + (before > 0)
                break
        self._chunk(sequence.call, sequence, "".join(parts))
        if output.finished is None:
            tree, origin = self._room.tree, sequence.call.place.origin
            sequence.node = tree.extend(node, tokens, running=sequence.running, who=origin)
            sequence.call.forced += tree.demand(sequence.node, origin)
        return True

    # One sequence

    @staticmethod
    def _push(sequence: Generation, sampled: Sampled) -> Step:
        """Note one sampled token, and its reports."""
        if sampled.logprob is not None:
            sequence.token_logprobs.append(sampled.logprob)
            sequence.top_logprobs.append(sampled.top or [])
        return Generations._write(sequence, sampled.token)

    @staticmethod
    def _write(sequence: Generation, token: int) -> Step:
        """Note one token, which the guide has taken, for penalties and the text."""
        sequence.counts[token] = sequence.counts.get(token, 0) + 1
        guide = sequence.guide
        return sequence.output.push(token, guide is not None and guide.finished)

    def _chunk(self, call: GenerateCall, sequence: Generation, text: str) -> None:
        """Send a stream's next text, with the tokens since the last one."""
        if call.stream and text:
            self._room.emit(self._reports.of_chunk(sequence, text))

    def _end(self, call: GenerateCall, sequence: Generation, pool_exhausted: bool = False) -> bool:
        call.results[sequence.sample] = self._reports.of_sample(sequence, pool_exhausted)
        if sequence.node.private and not sequence.sample:
            call.kept = self._room.tree.fork(sequence.node)
        self._room.scheduler.finish(sequence)
        return len(call.results) == len(call.samples)
