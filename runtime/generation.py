"""Generations: starts `generate` operations; turns their logits into tokens, text and results."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from ramet.runtime.cache.node import DECODE, Node
from ramet.runtime.cache.prefix import describe_prefix
from ramet.runtime.errors import GrammarError, InvalidArgument, RametError
from ramet.runtime.grammar.compiler import Compiler
from ramet.runtime.grammar.guide import Guide
from ramet.runtime.grammar.vocabulary import Vocabulary
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
        self._grammars = Compiler(Vocabulary(room.tokenizer, room.runner.vocab_size))
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
        guides = self._guides(params)
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
        self._queue(call, node, op["keys"], guides)
        room.tree.release(node)
        return call

    def _queue(
        self, call: GenerateCall, node: Node, keys: Sequence[int], guides: Sequence[Guide | None]
    ) -> None:
        """Queue a call's samples, each with a reference of its own to the prompt's path."""
        room, params, program = self._room, call.params, call.context.program
        limit = room.max_context - call.prompt_len
        if params.max_new_tokens != "context":
            limit = min(limit, int(params.max_new_tokens))
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
            sequence.quiet_tokens = text.quiet_tokens if bare else 0
            call.samples.append(sequence)
            room.scheduler.add(sequence)

    def collect(
        self, ready: Sequence[Generation], last_slots: list[int] | None = None
    ) -> list[GenerateCall]:
        """Sample one token for each ready sequence; returns the calls that are done.

        `last_slots`: those of the last tokens of their paths, if no two have the same.
        """
        done: list[GenerateCall] = []
        others = [sequence for sequence in ready if not sequence.bare]
        guided = [sequence for sequence in others if sequence.guide is not None]
        masks = self._masks(guided, done) if guided else {}
        alive = [sequence for sequence in ready if sequence.alive]
        if not alive:
            return done
        if last_slots is None or len(alive) < len(ready):
            rows = {node: row for row, node in enumerate({s.node: None for s in alive})}
            last_slots = [node.last_slot() for node in rows]
            where = [rows[sequence.node] for sequence in alive]
        else:
            where = list(range(len(alive)))
        for sequence in others:
            call = sequence.call
            if (
                sequence.alive
                and sequence.params.logprob_start_len is not None
                and call.prompt_logprobs is None
            ):
                call.prompt_logprobs = self._prompt_logprobs(sequence, sequence.params)
        logits = self._room.logits(last_slots)
        if all(map(_PLAIN, alive)):
            return self._record(alive, self._room.arithmetic.greedy(logits, where), done)
        for row, sequence in zip(where, alive, strict=True):
            asked = sequence.asked
            asked.row, asked.index = row, len(sequence.output_ids)
            if not sequence.quiet_tokens:
                asked.banned = sequence.output.banned if sequence.params.min_new_tokens else ()
                asked.mask = masks.get(sequence)
        asked_all = [sequence.asked for sequence in alive]
        return self._record(alive, self._room.arithmetic.sample(logits, asked_all), done)

    def _record(
        self, ready: Sequence[Generation], drawn: Sequence[Sampled], done: list[GenerateCall]
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
            over = {index for index in heard if not self._hear(ready[index], drawn[index], done)}
            going = [i for i, sequence in enumerate(ready) if sequence.alive and i not in over]
            ready, tokens = [ready[i] for i in going], [tokens[i] for i in going]
        tree = self._room.tree
        nodes = [sequence.node for sequence in ready]
        whose = [sequence.origin for sequence in ready]
        for index in tree.grow(nodes, tokens, whose):
            sequence, node, token = ready[index], nodes[index], tokens[index]
            sequence.rowless += token in node.children
            running, who = sequence.running, whose[index]
            sequence.node = tree.extend(node, [token], DECODE, running, who)
        return done

    def _hear(self, sequence: Generation, sampled: Sampled, done: list[GenerateCall]) -> bool:
        """Take a token of which more may come than its id; whether the sequence goes on."""
        call = sequence.call
        if sampled.error is not None and call.error is None:
            self.abort(call, sampled.error)
            done.append(call)
        if not sequence.alive:
            return False
        sequence.account.generated_tokens += 1
        push = sequence.output.push
        step = push(sampled.token) if sequence.bare else self._push(sequence, sampled)
        if step is not NOTHING:
            self._chunk(call, sequence, step.text)
        if step.finished is None:
            return True
        sequence.rowless += 1
        if self._end(call, sequence):
            done.append(call)
        return False

    def outgrown(self, sequence: Generation) -> list[GenerateCall]:
        """End a lone sequence whose path has outgrown the pool; returns its call if it is done."""
        call = sequence.call
        sequence.rowless += 1  # its last token was planned, but will never be run
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
            "computed_tokens": call.prefix["charged"] + decoded,
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

    def _guides(self, params: SamplingParams) -> Sequence[Guide | None]:
        """One per sample, None without a constraint; raises GrammarError."""
        if params.constraint is None:
            return [None] * params.n
        grammar = self._grammars.compile(params.constraint)
        start = grammar.matcher()
        return [Guide(grammar, params, start.copy()) for _ in range(params.n)]

    def _masks(
        self, ready: Sequence[Generation], done: list[GenerateCall]
    ) -> dict[Generation, bytes]:
        """What the constrained ones may sample; ends those that may sample nothing."""
        masks: dict[Generation, bytes] = {}
        for sequence in ready:
            guide, call = sequence.guide, sequence.call
            if guide is None or not sequence.alive:
                continue
            if guide.finished:  # The empty text was all there is.
                sequence.output.finish("stop")
                if self._end(call, sequence):
                    done.append(call)
                continue
            try:
                masks[sequence] = guide.mask(sequence.output.may_end)
            except GrammarError as error:
                self.abort(call, error)
                done.append(call)
        return masks

    # One sequence

    @staticmethod
    def _push(sequence: Generation, sampled: Sampled) -> Step:
        """Note one sampled token for penalties, reports, the constraint and the text."""
        token = sampled.token
        sequence.counts[token] = sequence.counts.get(token, 0) + 1
        if sampled.logprob is not None:
            sequence.token_logprobs.append(sampled.logprob)
            sequence.top_logprobs.append(sampled.top or [])
        guide = sequence.guide
        complete = guide is not None and guide.push(token, sequence.output.may_end)
        return sequence.output.push(token, complete)

    def _chunk(self, call: GenerateCall, sequence: Generation, text: str) -> None:
        """Send a stream's next text, with the tokens since the last one."""
        if not call.stream or not text:
            return
        start = sequence.sent
        ids = sequence.output_ids[start:]
        sequence.sent = len(sequence.output_ids)
        event = {
            "ev": "chunk",
            "call": call.id,
            "sample": sequence.sample,
            "text": text,
            "ids": ids,
            "completion_tokens": len(sequence.output_ids),
        }
        if call.params.return_logprob:
            event["logprobs"] = self._named(sequence.token_logprobs[start:], ids)
        self._room.emit(event)

    def _end(self, call: GenerateCall, sequence: Generation, pool_exhausted: bool = False) -> bool:
        output = sequence.output
        tail: list[int] = []
        if output.tail:
            tail = self._room.tokenizer.encode([(output.tail, "content")], continuation=True)
        result: dict[str, Any] = {
            "text": output.text,
            "output_token_ids": sequence.output_ids,
            "finish_reason": output.finished,
            "matched": output.matched,
            "kept": output.kept,
            "tail": tail,
            "completion_tokens": len(sequence.output_ids),
        }
        if pool_exhausted:
            result["pool_exhausted"] = True
        if (constraint := call.params.constraint) is not None and sequence.guide is not None:
            whole = output.finished != "length" or sequence.guide.complete
            result["constraint"] = {**constraint.to_wire(), "complete": whole}
        if call.params.return_logprob:
            result["output_token_logprobs"] = self._named(
                sequence.token_logprobs, sequence.output_ids
            )
            if call.params.top_logprobs_num:
                result["output_top_logprobs"] = [self._pairs(top) for top in sequence.top_logprobs]
        if call.prompt_logprobs is not None:
            result.update(call.prompt_logprobs)
        call.results[sequence.sample] = result
        if sequence.node.private and not sequence.sample:
            call.kept = self._room.tree.fork(sequence.node)
        self._room.scheduler.finish(sequence)
        return len(call.results) == len(call.samples)

    # Log-probabilities

    def _prompt_logprobs(self, sequence: Generation, params: SamplingParams) -> dict[str, Any]:
        """Those of the prompt's tokens from `logprob_start_len` on, read off stored states.

        The first token of a path has none (null). At most one chunk of logits exists at a time.
        """
        room = self._room
        ids = sequence.node.path_ids()[: sequence.prompt_len]
        start = params.logprob_start_len or 0
        values: list[float | None] = [None] if start == 0 else []
        tops: list[list[tuple[float, int]] | None] = [None] if start == 0 else []
        positions = range(max(start, 1) - 1, len(ids) - 1)
        slots = room.slots_of(sequence.node, positions)
        size = room.scheduler.chunk_tokens
        for low in range(0, len(slots), size):
            logits = room.logits(slots[low : low + size])
            targets = [ids[p + 1] for p in positions[low : low + size]]
            values += room.arithmetic.token_logprobs(logits, targets)
            if params.top_logprobs_num:
                tops += room.arithmetic.top_logprobs(
                    logits, [params.top_logprobs_num] * len(targets)
                )
        report: dict[str, Any] = {"input_token_logprobs": self._named(values, ids[start:])}
        if params.top_logprobs_num:
            report["input_top_logprobs"] = [t and self._pairs(t) for t in tops]
        return report

    def _named(self, values: Sequence[float | None], ids: Sequence[int]) -> list[list[Any]]:
        name = self._room.token_text
        return [[value, token, name(token)] for value, token in zip(values, ids, strict=True)]

    def _pairs(self, top: Sequence[tuple[float, int]]) -> list[list[Any]]:
        return self._named([value for value, _ in top], [token for _, token in top])
