"""Tables of outcomes, as text and as a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ramet.runtime.errors import BackendError, InvalidArgument
from ramet.runtime.simulation.simulation import Outcome


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least that share of all doesn't exceed; 0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(-(-int(share * 1_000_000) * len(ordered) // 1_000_000) - 1, 0)]


def mean(values: Sequence[float]) -> float:
    """The mean; 0 of none."""
    return sum(values) / len(values) if values else 0.0


def seconds(value: float) -> str:
    """A time, in the unit that suits it."""
    if value >= 100:
        return f"{value:,.0f} s"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.1f} ms"


COLUMNS: dict[str, Callable[[Outcome], str]] = {
    "first token mean": lambda o: seconds(mean(o.first_token)),
    "p50": lambda o: seconds(quantile(o.first_token, 0.5)),
    "p99": lambda o: seconds(quantile(o.first_token, 0.99)),
    "gap mean": lambda o: seconds(mean(o.gaps)),
    "gap p50": lambda o: seconds(quantile(o.gaps, 0.5)),
    "gap p99": lambda o: seconds(quantile(o.gaps, 0.99)),
    "hit rate": lambda o: f"{hit_rate(o.stats):.1%}",
    "of optimum": lambda o: f"{hit_ratio(o.stats):.1%}",
    "once": lambda o: f"{computed_once(o.stats):.1%}",
    "recomputed": lambda o: f"{o.stats['recomputed_tokens']:,}",
    "refused": lambda o: f"{o.errors:,}",
    "retracted": lambda o: f"{o.stats['retractions']:,}",
    "makespan": lambda o: seconds(o.makespan),
}
"""Heading → what a row has there. "once": tokens that had to be computed over those that were;
"refused": calls that ended with an error, as those do that can never fit the pool."""


def hit_rate(stats: Mapping[str, Any]) -> float:
    """The share of prompt tokens that no row was run for.

    `stats()["hit_rate"]` is about what was there when a call came; here what was evicted while the
    call waited, and had to be computed again, is a miss as well.
    """
    prompt = stats["prompt_tokens"]
    missed = stats["edge_tokens"] + stats["recomputed_tokens"]
    return max(1.0 - missed / prompt, 0.0) if prompt else 0.0


def hit_ratio(stats: Mapping[str, Any]) -> float:
    """That rate over the optimum's; 1 where nothing could be shared."""
    best = stats["optimum_hit_rate"]
    return hit_rate(stats) / best if best else 1.0


def computed_once(stats: Mapping[str, Any]) -> float:
    """Tokens that had to be computed over those that were; 1 is the optimum."""
    computed = stats["computed_tokens"]
    return stats["optimum_tokens"] / computed if computed else 1.0


def table(rows: Sequence[tuple[str, Outcome]]) -> str:
    """One line for each outcome under a line of headings."""
    lines = [["", *COLUMNS]]
    for name, outcome in rows:
        if outcome.first_token:
            lines.append([name, *(show(outcome) for show in COLUMNS.values())])
        else:  # Nothing ran: there is nothing to say but how many were refused.
            cells = {"refused": COLUMNS["refused"](outcome)}
            lines.append([name, *(cells.get(heading, "-") for heading in COLUMNS)])
    return align(lines)


def align(lines: Sequence[Sequence[str]]) -> str:
    """Cells in columns: the first flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def check_picture(path: Path) -> None:
    """Raise BackendError without matplotlib, an optional extra, and InvalidArgument for a path at
    which no picture can be written."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BackendError("a picture needs matplotlib: pip install 'ramet[plot]'") from None
    kinds = Figure().canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in kinds:
        raise InvalidArgument(f"picture={path}: must end in one of .{', .'.join(sorted(kinds))}")
    if not path.parent.is_dir() or path.is_dir():
        raise InvalidArgument(f"picture={path}: must be a file in a folder that exists")


def picture(rows: Sequence[tuple[str, Outcome]], path: Path, title: str) -> None:
    """Write a chart: first tokens and gaps as distributions, and how near the optimum each came.

    Raises what `check_picture` does.
    """
    check_picture(path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 5), layout="constrained")
    figure.suptitle(title)
    first, gaps, bars = figure.subplots(1, 3)
    for name, outcome in rows:
        for axes, values in ((first, outcome.first_token), (gaps, outcome.gaps)):
            ordered = sorted(values)[:: max(len(values) // 2000, 1)]
            shares = [(index + 1) / len(ordered) for index in range(len(ordered))]
            axes.plot(ordered, shares, label=name)
    for axes, label in ((first, "seconds to first token"), (gaps, "seconds between tokens")):
        axes.set_xscale("symlog", linthresh=1e-3)
        axes.set_xlabel(label)
        axes.set_ylabel("share of all")
        axes.grid(alpha=0.3)
    figure.legend(*first.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    names = [name for name, _ in rows]
    bars.barh(names, [o.stats["optimum_hit_rate"] for _, o in rows], color="0.85", label="optimum")
    bars.barh(names, [hit_rate(o.stats) for _, o in rows], height=0.5, label="achieved")
    bars.set_xlabel("hit rate")
    bars.invert_yaxis()
    bars.legend(loc="lower left")
    figure.savefig(path, dpi=120)
