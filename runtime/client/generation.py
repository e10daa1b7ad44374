"""A generation as its caller sees it: what its `done` event means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ramet.runtime.client.call import CallResult
from ramet.runtime.client.token_path import TokenPath
from ramet.runtime.grammar.spec import Constraint


def generation_result(event: Mapping[str, Any], prompt: TokenPath) -> CallResult:
    """From the engine's `done` event of a generation on `prompt`."""
    results = event["results"]
    first = results[0]
    return CallResult(
        texts=[result["text"] for result in results],
        entered=[*first["output_token_ids"][: first["kept"]], *first["tail"]],
        describe=lambda: _metas(event, prompt.ids()),
    )


def _metas(event: Mapping[str, Any], prompt_ids: list[int]) -> list[dict[str, Any]]:
    return [
        {
            "prompt_token_ids": prompt_ids,
            "output_token_ids": result["output_token_ids"],
            "finish_reason": result["finish_reason"],
            "matched": result["matched"],
            **event["meta"],
            "completion_tokens": result["completion_tokens"],
            **({"pool_exhausted": True} if result.get("pool_exhausted") else {}),
            **({"constraint": _constraint(result)} if "constraint" in result else {}),
            **_logprobs(result),
        }
        for result in event["results"]
    ]


def _constraint(result: Mapping[str, Any]) -> dict[str, Any]:
    """Which constraint was enforced; where something of it was not, what the text violates."""
    report = dict(result["constraint"])
    if report.get("unenforced") and report["complete"]:
        from ramet.runtime.grammar.front_ends import violations

        fields = ("kind", "text", "strict", "whitespace")
        order = Constraint(**{name: report[name] for name in fields if name in report})
        report["violations"] = violations(order, result["text"])
    return report


def _logprobs(result: Mapping[str, Any]) -> dict[str, Any]:
    """The log-probabilities that the call asked for, entries as (logprob, id, text)."""
    found: dict[str, Any] = {}
    for name in ("output_token_logprobs", "input_token_logprobs"):
        if (entries := result.get(name)) is not None:
            found[name] = _tuples(entries)
    if "output_token_logprobs" in found:
        found["output_token_logprobs_length"] = len(found["output_token_logprobs"])
    for name in ("output_top_logprobs", "input_top_logprobs"):
        if (positions := result.get(name)) is not None:
            found[name] = [None if row is None else _tuples(row) for row in positions]
    return found


def _tuples(entries: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    return [tuple(entry) for entry in entries]
