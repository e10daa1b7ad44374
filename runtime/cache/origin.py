"""Origin: which call asked for a token first; and runs, which say so along an edge.

An edge holds tokens of several calls, as decoded ones extend it in place and nodes merge. Each
list of runs is (number of consecutive tokens, whose they are); it grows with the calls, not with
the tokens.
"""

from __future__ import annotations

import dataclasses

from ramet.runtime.counters import Tally


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """One call site on one branch of one program instance; plain names, and whom to charge.

    Its calls share one object, which lives as long as tokens refer to it.
    """

    site: str
    """"file:line" in the program."""
    program: str
    """The program's name."""
    program_id: int
    """Number of the program instance."""
    branch: str
    """Branch path, such as "0.3"; "" is the root."""
    salt: str | None = None
    """The namespace that it computes in: those of another one are not told of it."""
    account: Tally = dataclasses.field(default_factory=Tally)
    """On which its calls are booked."""


Run = tuple[int, Origin | None]
"""(number of consecutive tokens, whose they are; None: nobody's yet)."""


def names(who: Origin | None) -> dict[str, str | int | None]:
    """An origin in reports: "call_site", "program", "program_id" and "branch", None of nobody."""
    return {
        "call_site": who.site if who else None,
        "program": who.program if who else None,
        "program_id": who.program_id if who else None,
        "branch": who.branch if who else None,
    }


def append_run(runs: list[Run], count: int, who: Origin | None) -> None:
    """Append, joining with the last one if it is the same origin's."""
    if runs and runs[-1][1] is who:
        runs[-1] = (runs[-1][0] + count, who)
    elif count:
        runs.append((count, who))


def split_runs(runs: list[Run], count: int) -> tuple[list[Run], list[Run]]:
    """The runs of the first `count` tokens, and the rest; either may be short."""
    head: list[Run] = []
    tail: list[Run] = []
    for length, who in runs:
        here = min(length, count)
        if here:
            head.append((here, who))
        if here < length:
            tail.append((length - here, who))
        count -= here
    return head, tail


def join_runs(head: list[Run], length: int, tail: list[Run]) -> list[Run]:
    """`tail` behind `head`, which stands for `length` tokens and may be short."""
    joined = list(head)
    if tail:
        append_run(joined, length - sum(count for count, _ in head), None)
        for count, who in tail:
            append_run(joined, count, who)
    return joined


def paint_runs(runs: list[Run], low: int, high: int, who: Origin | None) -> list[Run]:
    """The runs with the tokens at `[low, high)` given to `who`."""
    head, rest = split_runs(runs, low)
    painted = join_runs(head, low, [(high - low, who)])
    for count, other in split_runs(rest, high - low)[1]:
        append_run(painted, count, other)
    return painted


def runs_between(runs: list[Run], low: int, high: int) -> list[Run]:
    """The runs of the tokens at `[low, high)`; where the list is short, nobody's are left out."""
    return split_runs(split_runs(runs, low)[1], high - low)[0]


def origin_at(runs: list[Run], index: int) -> Origin | None:
    """Whose the token at `index` is."""
    found = runs_between(runs, index, index + 1)
    return found[0][1] if found else None
