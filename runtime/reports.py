"""Reports: what calls report of their samples, and of their prompts' log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ramet.runtime.room import EngineRoom
from ramet.runtime.sampling.arithmetic import Logits
from ramet.runtime.sampling.rows import Sampled, SampleRow
from ramet.runtime.schedule.sequence import Generation


class Reports:
    """Writes down samples; reads log-probabilities, and names the tokens they belong to."""

    def __init__(self, room: EngineRoom) -> None:
        self._room = room

    def of_chosen(
        self,
        logits: Logits,
        asked: Sequence[SampleRow],
        drawn: Sequence[Sampled],
        chosen: Sequence[Sampled],
    ) -> list[Sampled]:
        """`chosen`, where each token that isn't the one that was drawn has its own
        log-probability, if any is wanted."""
        found = list(chosen)
        for index, (row, was, now) in enumerate(zip(asked, drawn, chosen, strict=True)):
            if now.token != was.token and row.params.return_logprob:
                values = self._room.arithmetic.token_logprobs(logits[[row.row]], [now.token])
                found[index] = now._replace(logprob=values[0])
        return found

    def of_prompt(self, sequence: Generation) -> dict[str, Any]:
        """Those of the prompt's tokens from `logprob_start_len` on, read off stored states.

        The first token of a path has none (null). At most one chunk of logits exists at a time.
        """
        room, params = self._room, sequence.params
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
        report: dict[str, Any] = {"input_token_logprobs": self.named(values, ids[start:])}
        if params.top_logprobs_num:
            report["input_top_logprobs"] = [t and self.pairs(t) for t in tops]
        return report

    def of_chunk(self, sequence: Generation, text: str) -> dict[str, Any]:
        """The event of a stream's next text, with the tokens since the last one."""
        call, start = sequence.call, sequence.sent
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
            event["logprobs"] = self.named(sequence.token_logprobs[start:], ids)
        return event

    def of_sample(self, sequence: Generation, pool_exhausted: bool) -> dict[str, Any]:
        """The result of a sample that is over; `pool_exhausted`: because it outgrew the pool."""
        call, output = sequence.call, sequence.output
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
            if (closes := sequence.guide.closes) is not None:
                result["constraint"]["closes"] = closes
            if unenforced := sequence.guide.unenforced:
                result["constraint"]["unenforced"] = list(unenforced)
        if call.params.return_logprob:
            result["output_token_logprobs"] = self.named(
                sequence.token_logprobs, sequence.output_ids
            )
            if call.params.top_logprobs_num:
                result["output_top_logprobs"] = [self.pairs(top) for top in sequence.top_logprobs]
        if call.prompt_logprobs is not None:
            result.update(call.prompt_logprobs)
        return result

    def named(self, values: Sequence[float | None], ids: Sequence[int]) -> list[list[Any]]:
        """Values beside their tokens, as reports have them: (value, id, text)."""
        name = self._room.token_text
        return [[value, token, name(token)] for value, token in zip(values, ids, strict=True)]

    def pairs(self, top: Sequence[tuple[float, int]]) -> list[list[Any]]:
        """The likeliest tokens of one position, in the same form."""
        return self.named([value for value, _ in top], [token for _, token in top])
