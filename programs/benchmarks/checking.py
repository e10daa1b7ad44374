"""Whether the outputs of a run are what was asked for, and how far two systems agree."""

from __future__ import annotations

import json
import re
from typing import Any

from benchmarks.calls import Workload, calls_of, name_of
from benchmarks.systems import Answer, Outcome

AGREEMENT = 0.5
"""Least share of comparable calls that begin with the same token, or pick the same: weights are
quantised in different ways, but most tokens are not close."""
ENOUGH = 4
"""Comparable calls that there must be, for that to be judged."""


def faults(workload: Workload, outcome: Outcome, constraints: bool) -> list[str]:
    """What isn't as asked: numbers of tokens, documents, choices. At most one line a kind."""
    found: dict[str, str] = {}
    for number, (steps, results) in enumerate(zip(workload.programs, outcome.results, strict=True)):
        for step, _ in calls_of(steps):
            where = f"program {number}, {name_of(step)}"
            answer = results.get(name_of(step))
            if answer is None:
                found.setdefault("lost", f"{where}: no answer")
            elif fault := _fault(step, answer, constraints):
                found.setdefault(fault.split(":")[0], f"{where}: {fault}")
    return list(found.values())


def _fault(step: dict[str, Any], answer: Answer, constraints: bool) -> str | None:
    if "select" in step:
        known = answer.picked in step["choices"]
        return None if known else f"picked: {answer.picked!r} is none of {step['choices']}"
    if len(answer.num_tokens) != step["n"]:
        return f"samples: {len(answer.num_tokens)} of {step['n']}"
    if step["schema"] is None:
        wrong = [count for count in answer.num_tokens if count != step["max_tokens"]]
        return f"tokens: {wrong[0]}, not {step['max_tokens']}" if wrong else None
    if not constraints:
        return "document: free text, since it has no constraints"
    wrong_texts = [text for text in answer.texts if not valid(text, step["schema"])]
    return f"document: {wrong_texts[0]!r}" if wrong_texts else None


def valid(text: str, schema: dict[str, Any]) -> bool:
    """Whether a text is a document of a schema with the few keywords that the workloads have."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    properties = schema["properties"]
    return (
        isinstance(found, dict)
        and found.keys() == set(schema["required"])
        and all(_fits(found[name], properties[name]) for name in properties)
    )


def _fits(value: object, schema: dict[str, Any]) -> bool:
    if "enum" in schema:
        return value in schema["enum"]
    if schema["type"] == "integer":
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and schema["minimum"] <= value <= schema["maximum"]  # type: ignore[operator]
    return (
        isinstance(value, str)
        and len(value) <= schema.get("maxLength", len(value))
        and re.search(schema.get("pattern", ""), value) is not None
    )


def agreement(workload: Workload, one: Outcome, other: Outcome) -> tuple[int, int]:
    """How many greedy calls with equal prompts begin alike or pick the same, and of how many."""
    same = total = 0
    for steps, first, second in zip(workload.programs, one.results, other.results, strict=True):
        for step, clean in calls_of(steps):
            if not clean or step.get("temperature") or step.get("schema"):
                continue
            a, b = first[name_of(step)], second[name_of(step)]
            total += 1
            if "select" in step:
                same += a.picked == b.picked
            elif None in (a.first[0], b.first[0]):
                same += a.texts[0][:3] == b.texts[0][:3]
            else:
                same += a.first[0] == b.first[0]
    return same, total
