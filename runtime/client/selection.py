"""A selection as its caller sees it: what is sent for it, and what its `done` event means."""

from __future__ import annotations

import codecs
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ramet.runtime.client.call import CallResult
from ramet.runtime.client.token_path import TokenPath
from ramet.runtime.sampling.border import Border, Branch, border
from ramet.runtime.tokenizer import Piece, Tokenizer


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """Choices with their border."""

    choices: list[str]
    border: Border
    prefix: list[int]
    """What the tokenizer puts before a choice that is a prompt of its own: BOS or nothing."""

    @classmethod
    def plan(
        cls,
        tokenizer: Tokenizer,
        pending: Sequence[Piece],
        choices: Sequence[str],
        *,
        empty_path: bool,
    ) -> Selection:
        """Find the border; raises InvalidArgument for choices that can't be scored."""
        found = border(tokenizer, pending, choices, empty_path=empty_path)
        bos = tokenizer.bos_id
        prefix = [bos] if tokenizer.adds_bos and bos is not None else []
        return cls(list(choices), found, prefix)

    def to_wire(self) -> dict[str, Any]:
        """The part of the `score` operation that says what is scored, as plain data."""
        return {
            "choices": [branch.to_wire() for branch in self.border.branches],
            "rest": list(self.border.rest),
            "prefix": self.prefix,
        }

    def result(self, event: Mapping[str, Any], prompt: TokenPath) -> CallResult:
        """From the engine's `done` event, for a border that stands at the end of `prompt`."""
        result = event["results"][0]
        index: int = result["index"]
        return CallResult(
            texts=[self.choices[index]],
            entered=list(result["append"]),
            describe=lambda: [self._meta(event, prompt.ids())],
            index=index,
        )

    def _meta(self, event: Mapping[str, Any], prompt_ids: list[int]) -> dict[str, Any]:
        result = event["results"][0]
        scores = [_number(score) for score in result["scores"]]
        rows = zip(self.choices, self.border.branches, result["entries"], scores, strict=True)
        alone = result.get("unconditional")
        choices: list[dict[str, Any]] = [
            {
                "text": choice,
                "token_ids": branch.ids,
                "tokens": _texts(branch),
                "logprobs": [_number(entry) for entry in entries],
                "score": score,
            }
            for choice, branch, entries, score in rows
        ]
        for choice, logprobs in zip(choices, alone or (), strict=False):
            choice["unconditional_logprobs"] = logprobs
        return {
            "prompt_token_ids": prompt_ids,
            **event["meta"],
            "index": result["index"],
            "choices": choices,
            "input_token_logprobs": [_rows(choice) for choice in choices],
            "scores": scores,
            "normalized_prompt_logprobs": [_mean(choice["logprobs"]) for choice in choices],
            "probabilities": result["probabilities"],
        }


def _mean(logprobs: Sequence[float]) -> float:
    return sum(logprobs) / len(logprobs)


def _rows(choice: Mapping[str, Any]) -> list[tuple[float, int, str]]:
    """A choice's tokens as generations report theirs: (log-probability, id, text)."""
    ids = choice["token_ids"][-len(choice["logprobs"]) :]
    return list(zip(choice["logprobs"], ids, choice["tokens"], strict=True))


def _number(value: float | None) -> float:
    # JSON has no infinities: a choice that the model can't write crosses as null.
    return -math.inf if value is None else value


def _texts(branch: Branch) -> list[str]:
    """The entries as text; a character shows at the entry that completes it, so they join."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    return [decoder.decode(data) for data in branch.entry_bytes]
