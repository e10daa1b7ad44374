"""The rules of `select`: from the choices' log-probabilities to the chosen one.

A choice's *entries* are the log-probabilities of the tokens that carry its bytes (`border` says
which); how they are computed is the engine's affair. Everything here is arithmetic on floats.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from ramet.runtime.errors import BackendError, InvalidArgument

METHODS = (
    "token_length_normalized",
    "greedy_token_selection",
    "unconditional_likelihood_normalized",
    "exact_likelihood",
)
"""The names of the rules."""


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of a `select`."""

    index: int
    """The chosen one; of equals the first."""
    scores: list[float]
    """Per choice; unless a temperature made it a draw, the chosen one has the largest."""
    probabilities: list[float] | None
    """`exact_likelihood` only: per choice, adding up to 1 (at temperature 1)."""


def check_method(method: str, temperature: float = 0.0) -> None:
    """Raise InvalidArgument unless `method` is a rule's name and can use `temperature`.

    Only `exact_likelihood` has a distribution to draw from; the other rules need temperature 0.
    """
    if method not in METHODS:
        raise InvalidArgument(f"choices_method={method!r}: must be one of {', '.join(METHODS)}")
    number = isinstance(temperature, (int, float)) and not isinstance(temperature, bool)
    if not number or not 0 <= temperature < math.inf:
        raise InvalidArgument(f"temperature={temperature!r}: must be a finite number of at least 0")
    if temperature > 0 and method != "exact_likelihood":
        raise InvalidArgument(
            f"temperature={temperature!r}: only choices_method=exact_likelihood can sample a "
            f"choice; with {method} it must be 0"
        )


def decide(
    method: str,
    entries: Sequence[Sequence[float]],
    unconditional: Sequence[Sequence[float | None]] | None = None,
    ending: Sequence[float | None] | None = None,
    temperature: float = 0.0,
    uniform: float = 0.0,
) -> Decision:
    """Apply one rule to the choices' `entries`, at least one each.

    - `token_length_normalized`: the largest mean entry.
    - `greedy_token_selection`: walk the entry columns from the left, keeping the choices whose
      entry is the column's largest; short rows are padded with their own mean; the first survivor
      wins. A score is the number of columns survived.
    - `unconditional_likelihood_normalized`: the largest mean of entry minus `unconditional`, the
      same token's log-probability with the choice's tokens alone as prompt; the first of each
      (which has no prompt) counts 0, and so does None.
    - `exact_likelihood`: the sum of the entries plus `ending` (`ending_score`; None is 0): the
      log-probability that the model writes this choice and not a longer one. Softmax gives the
      probabilities; with `temperature` above 0 the choice is drawn from softmax(scores /
      temperature) with `uniform` in [0, 1).

    Raises InvalidArgument for what `check_method` refuses, ValueError for lists that don't fit
    each other, and BackendError for NaN.
    """
    check_method(method, temperature)
    _check_entries(entries, unconditional, ending)
    if method == "greedy_token_selection":
        scores = _columns_survived(entries)
    elif method == "unconditional_likelihood_normalized":
        if unconditional is None:
            raise ValueError("unconditional_likelihood_normalized needs `unconditional`")
        scores = [_gain(row, base) for row, base in zip(entries, unconditional, strict=True)]
    elif method == "exact_likelihood":
        ends = ending or [None] * len(entries)
        scores = [math.fsum(row) + (end or 0.0) for row, end in zip(entries, ends, strict=True)]
        index = _largest(scores) if temperature == 0 else _draw(scores, temperature, uniform)
        return Decision(index, scores, _softmax(scores, 1.0))
    else:
        scores = [_mean(row) for row in entries]
    return Decision(_largest(scores), scores, None)


def longer_tokens(appends: Sequence[Sequence[int]]) -> list[list[int]]:
    """Per choice, the tokens with which longer choices go on where it ends, each once, sorted.

    `appends` are the choices' ids below the border, without any end id (`Branch.append`). Empty
    for a choice whose ids are no proper prefix of another's. One pass over the sorted choices.
    """
    found: list[set[int]] = [set() for _ in appends]
    order = sorted(range(len(appends)), key=lambda i: tuple(appends[i]))
    above: list[int] = []  # choices whose ids are prefixes of the current one's, shortest first
    for i in order:
        ids = appends[i]
        while above and list(ids[: len(appends[above[-1]])]) != list(appends[above[-1]]):
            above.pop()
        for j in above:
            if len(appends[j]) < len(ids):
                found[j].add(ids[len(appends[j])])
        above.append(i)
    return [sorted(tokens) for tokens in found]


def ending_score(longer_logprob: float, end_logprob: float | None = None) -> float:
    """What ending at a choice adds to its entries' sum, for `exact_likelihood`.

    `longer_logprob` is the log of the total probability of its `longer_tokens`, at its last token;
    the result is log(1 - that). The choice "" has the end token's log-probability as part of its
    entry: pass it as `end_logprob`, and it is taken out again.
    """
    left = -math.expm1(min(longer_logprob, 0.0))
    stop = math.log(left) if left > 0 else -math.inf
    return stop if end_logprob is None else stop - end_logprob


def _check_entries(
    entries: Sequence[Sequence[float]],
    unconditional: Sequence[Sequence[float | None]] | None,
    ending: Sequence[float | None] | None,
) -> None:
    if not entries or not all(entries):
        raise ValueError("entries: every choice needs at least one, and there must be a choice")
    if unconditional is not None and [len(r) for r in unconditional] != [len(r) for r in entries]:
        raise ValueError("unconditional: must have the shape of entries")
    if ending is not None and len(ending) != len(entries):
        raise ValueError("ending: must have one value per choice")
    if any(math.isnan(value) for row in entries for value in row):
        raise BackendError("a choice's log-probability is NaN: the model's logits are unusable")


def _mean(row: Sequence[float]) -> float:
    return math.fsum(row) / len(row)


def _gain(row: Sequence[float], base: Sequence[float | None]) -> float:
    """The mean of entry minus base; an impossible entry stays -inf, whatever its base."""
    rest = [e - (b or 0.0) if e > -math.inf else e for e, b in zip(row[1:], base[1:], strict=True)]
    return _mean([row[0], *rest])


def _largest(values: Sequence[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)


def _columns_survived(entries: Sequence[Sequence[float]]) -> list[float]:
    means = [_mean(row) for row in entries]
    survived = [0.0] * len(entries)
    alive = list(range(len(entries)))
    for column in range(max(len(row) for row in entries)):
        values = {i: entries[i][column] if column < len(entries[i]) else means[i] for i in alive}
        best = max(values.values())
        alive = [i for i in alive if values[i] == best]
        for i in alive:
            survived[i] += 1
        if len(alive) == 1:
            break
    return survived


def _softmax(scores: Sequence[float], temperature: float) -> list[float]:
    best = max(scores)
    if best == -math.inf:
        return [1 / len(scores)] * len(scores)
    weights = [math.exp((score - best) / temperature) for score in scores]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def _draw(scores: Sequence[float], temperature: float, uniform: float) -> int:
    probabilities = _softmax(scores, temperature)
    reached = 0.0
    for index, probability in enumerate(probabilities):
        reached += probability
        if reached > uniform:
            return index
    # Rounding can leave the sum just under the draw: the last one that has any probability.
    return max(i for i, probability in enumerate(probabilities) if probability > 0)
