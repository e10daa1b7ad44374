"""`select` on a completions endpoint that reports the log-probabilities of a text it was given.

Each choice is sent behind the prompt with `echo` and `logprobs`; the tokens that come back say how
likely it was. Which tokens count follows the language's rule of the border, with one difference:
where the end of the prompt is tokenised together with a choice, an endpoint doesn't tell how
likely the other ways to write that end were, so the first entry isn't divided by them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ramet.runtime.errors import UnsupportedFeature
from ramet.runtime.sampling.scoring import Decision, decide, ending_score, longer_tokens

MAX_PROMPTS = 64
"""Most texts in one request."""
MAX_CHARACTERS = 200_000
"""Most characters in one request of several texts."""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """The tokens of one text."""

    tokens: list[str]
    logprobs: list[float | None]
    """Per token; None for one that nothing stands before."""
    begins: list[int]
    """Where each token begins, in characters; a last entry is the text's length."""


@dataclasses.dataclass(frozen=True, slots=True)
class Scored:
    """The entries of one choice, and the tokens and texts behind them."""

    entries: list[float]
    tokens: list[str]
    """One per entry; of a token that begins in the prompt, only what the choice has of it."""
    below: list[str]
    """All tokens from the border on."""
    below_logprobs: list[float | None]


def body_of(model: str, texts: Sequence[str]) -> dict[str, Any]:
    """The request that has texts scored. Endpoints generate at least one token."""
    return {
        "model": model,
        "prompt": list(texts),
        "max_tokens": 1,
        "temperature": 0,
        "echo": True,
        "logprobs": 1,
    }


def batches_of(texts: Sequence[str]) -> list[list[str]]:
    """Texts in groups that one request each can hold."""
    groups: list[list[str]] = []
    size = 0
    for text in texts:
        full = groups and (len(groups[-1]) >= MAX_PROMPTS or size + len(text) > MAX_CHARACTERS)
        if not groups or full:
            groups.append([])
            size = 0
        groups[-1].append(text)
        size += len(text)
    return groups


def rows_of(answer: Mapping[str, Any], texts: Sequence[str], backend: str) -> list[Row]:
    """The rows of an answer, in the order of `texts`; raises UnsupportedFeature if the endpoint
    didn't report them."""
    rows: list[Row | None] = [None] * len(texts)
    choices = answer.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        index = choice.get("index", 0) if isinstance(choice, Mapping) else None
        if isinstance(index, int) and 0 <= index < len(texts):
            rows[index] = _row(choice.get("logprobs"), texts[index])
    if any(row is None for row in rows):
        raise UnsupportedFeature(
            f"select: {backend} doesn't report the log-probabilities of a text that it is given "
            "(`echo` with `logprobs`)"
        )
    return [row for row in rows if row is not None]


def score(rows: Sequence[Row], prompt: str, backend: str) -> list[Scored]:
    """The entries of each choice; `rows` are those of the prompt with each choice behind it."""
    border = 0
    shortest = min(len(row.tokens) for row in rows)
    first = rows[0]
    while (
        border < shortest
        and first.begins[border] < len(prompt)
        and first.begins[border + 1] <= len(prompt)
        and all(row.tokens[border] == first.tokens[border] for row in rows)
    ):
        border += 1
    return [_score(row, border, len(prompt), backend) for row in rows]


def choose(
    method: str,
    scored: Sequence[Scored],
    alone: Sequence[Row] | None,
    temperature: float,
    uniform: float,
    backend: str,
) -> tuple[Decision, list[list[float | None]] | None]:
    """The choice by one of the language's rules, and the unconditional log-probabilities.

    `alone` are the rows of the choices without the prompt, for the rule that needs them.
    """
    unconditional = None
    if alone is not None:
        unconditional = [_alone(s, row, backend) for s, row in zip(scored, alone, strict=True)]
    ending = _endings(scored) if method == "exact_likelihood" else None
    entries = [s.entries for s in scored]
    return decide(method, entries, unconditional, ending, temperature, uniform), unconditional


def _row(found: Any, text: str) -> Row | None:
    """The tokens of `text` among those reported; None if they don't show it.

    Behind them may be the one that was generated, before them a BOS that is written out.
    """
    if not isinstance(found, Mapping):
        return None
    tokens, logprobs = found.get("tokens"), found.get("token_logprobs")
    if not isinstance(tokens, list) or not isinstance(logprobs, list):
        return None
    if len(tokens) != len(logprobs) or not all(isinstance(token, str) for token in tokens):
        return None
    for skip in (0, 1):
        for end in (len(tokens) - 1, len(tokens)):
            own = tokens[skip:end]
            if "".join(own) == text:
                begins = [0]
                for token in own:
                    begins.append(begins[-1] + len(token))
                return Row(own, [_number(lp) for lp in logprobs[skip:end]], begins)
    return _row_by_offset(tokens, logprobs, found.get("text_offset"), text)


def _row_by_offset(
    tokens: list[str], logprobs: list[Any], offsets: object, text: str
) -> Row | None:
    """The same for tokens that don't join to the text, since they hold parts of characters."""
    if not isinstance(offsets, list) or len(offsets) != len(tokens) or offsets[:1] != [0]:
        return None
    if not all(isinstance(at, int) for at in offsets) or offsets != sorted(offsets):
        return None
    num = sum(1 for at in offsets if at < len(text))
    begins = [*offsets[:num], len(text)]
    for token, begin, end in zip(tokens, begins, begins[1:], strict=False):
        if text[begin:end] != token and not ("\ufffd" in token or token.startswith("bytes:")):
            return None
    return Row(tokens[:num], [_number(lp) for lp in logprobs[:num]], begins)


def _score(row: Row, border: int, prompt_len: int, backend: str) -> Scored:
    # A token with a part of a character may have no length; it belongs to the character's place.
    first = next(
        i
        for i in range(border, len(row.tokens))
        if row.begins[i + 1] > prompt_len or row.begins[i] == prompt_len
    )
    known = [lp for lp in row.logprobs[border:] if lp is not None]
    if len(known) != len(row.tokens) - border:
        raise UnsupportedFeature(
            f"select: {backend} doesn't report how likely the first token of a text is, so a "
            "select needs a prompt of a token at least before its choices"
        )
    head = first + 1 - border
    whole = "".join(row.tokens)
    exact = len(whole) == row.begins[-1]
    texts = [
        whole[max(row.begins[i], prompt_len) : row.begins[i + 1]] if exact else row.tokens[i]
        for i in range(first, len(row.tokens))
    ]
    return Scored(
        [math.fsum(known[:head]), *known[head:]],
        texts,
        row.tokens[border:],
        row.logprobs[border:],
    )


def _alone(scored: Scored, row: Row, backend: str) -> list[float | None]:
    """What the choice's tokens have without the prompt; the first one has nothing before it."""
    if row.tokens[1:] != scored.tokens[1:] or len(row.tokens) != len(scored.tokens):
        raise UnsupportedFeature(
            "choices_method=unconditional_likelihood_normalized: the model of "
            f"{backend} writes the choice {''.join(scored.tokens)!r} with other tokens when it "
            "stands alone; choose another method, or words without a space before them"
        )
    return [None, *row.logprobs[1:]]


def _endings(scored: Sequence[Scored]) -> list[float | None]:
    """What ending adds, for choices whose tokens others go on from."""
    numbers: dict[str, int] = {}
    paths = [[numbers.setdefault(token, len(numbers)) for token in s.below] for s in scored]
    ends: list[float | None] = []
    for own, longer in zip(paths, longer_tokens(paths), strict=True):
        # Each longer choice says how likely its next token was right here.
        total = 0.0
        for token in longer:
            at = next(i for i, path in enumerate(paths) if path[: len(own) + 1] == [*own, token])
            logprob = scored[at].below_logprobs[len(own)]
            total += math.exp(logprob) if logprob is not None else 0.0
        ends.append(ending_score(math.log(total)) if longer and total > 0 else None)
    return ends


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
