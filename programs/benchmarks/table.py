"""What was measured, as rows, ratios, JSON, Markdown and a picture."""

from __future__ import annotations

import dataclasses
import json
import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.checking import AGREEMENT, ENOUGH
from benchmarks.systems import cores

OURS = "ramet"
EXTENSIONS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8", "asimd")
"""Instruction sets that make a difference, as Linux names them."""


@dataclasses.dataclass
class Measured:
    """One system on one workload, over the rounds."""

    workload: str
    system: str
    version: str
    seconds: list[float] = dataclasses.field(default_factory=list)
    tokens: list[int] = dataclasses.field(default_factory=list)
    """Generated ones."""
    faults: list[str] = dataclasses.field(default_factory=list)
    """What wasn't as asked for."""
    same: int = 0
    comparable: int = 0
    """Of so many calls, so many agree with ramet's (for ramet: with the best agreeing peer's)."""

    @property
    def agrees(self) -> bool:
        """Whether the outputs agree as far as they are expected to."""
        return self.comparable < ENOUGH or self.same >= AGREEMENT * self.comparable

    def row(self) -> dict[str, Any]:
        """As the JSON file has it: medians."""
        seconds, tokens = statistics.median(self.seconds), statistics.median_low(self.tokens)
        return {
            "workload": self.workload,
            "system": self.system,
            "version": self.version,
            "seconds": round(seconds, 4),
            "generated_tokens": tokens,
            "tokens_per_s": round(tokens / seconds, 2),
            "correct": not self.faults and self.agrees,
        }


def ratio(ours: Measured, other: Measured) -> float:
    """How much longer the other takes: the median of the ratios within each round."""
    return statistics.median(b / a for a, b in zip(ours.seconds, other.seconds, strict=True))


def rounded(number: float) -> float:
    """To four significant digits, so that nothing above 0 becomes 0."""
    return float(f"{number:.4g}")


def hardware() -> dict[str, Any]:
    """The class of this machine; nothing that names it."""
    flags: set[str] = set()
    name = platform.processor() or platform.machine()
    gib = None
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        for line in lines:
            key, _, value = line.partition(":")
            if key.strip() in ("flags", "Features"):
                flags = set(value.split())
            if key.strip() == "model name":
                name = value.strip()
        memory = Path("/proc/meminfo").read_text(encoding="utf-8").split()
        gib = round(int(memory[1]) / 2**20)
    except (OSError, ValueError, IndexError):
        pass  # Another system than Linux tells less.
    found = [extension for extension in EXTENSIONS if extension in flags]
    return {"cpu": name, "cores": cores(), "instruction_sets": found, "memory_gib": gib}


def report(
    measured: Sequence[Measured], settings: Mapping[str, str], quick: bool, rounds: int
) -> dict[str, Any]:
    """Everything that is known of a run, for the JSON file."""
    ours = {one.workload: one for one in measured if one.system == OURS}
    ratios: dict[str, dict[str, float]] = {}
    notes = []
    for one in measured:
        where = f"{one.workload}, {one.system}"
        notes += [f"{where}: {fault}" for fault in one.faults]
        if not one.agrees:
            notes.append(f"{where}: only {one.same} of {one.comparable} calls begin alike")
        if one.system != OURS:
            of_system = ratios.setdefault(one.system, {})
            of_system[one.workload] = rounded(ratio(ours[one.workload], one))
    agreement = {
        system: [
            sum(one.same for one in measured if one.system == system),
            sum(one.comparable for one in measured if one.system == system),
        ]
        for system in ratios
    }
    means = {system: statistics.geometric_mean(found.values()) for system, found in ratios.items()}
    return {
        "hardware": hardware(),
        "quick": quick,
        "rounds": rounds,
        "settings": dict(settings),
        "rows": [one.row() for one in measured],
        "ratios": ratios,
        "geometric_means": {system: rounded(mean) for system, mean in means.items()},
        "agreement": agreement,
        "notes": notes,
    }


def line(measured: Sequence[Measured]) -> str:
    """One workload in one line; ramet is the first."""
    cells = [f"{measured[0].workload:17}"]
    for one in measured:
        row = one.row()
        cell = f"{one.system} {row['seconds']:.2f} s"
        if row["generated_tokens"]:
            cell += f", {row['tokens_per_s']:.0f} tok/s"
        if one is not measured[0]:
            cell += f", {ratio(measured[0], one):.2f} ×"
        cells.append(cell + ("" if row["correct"] else " (!)"))
    return "  ".join(f"{cell:36}" if place else cell for place, cell in enumerate(cells)).rstrip()


def summary(found: Mapping[str, Any]) -> list[str]:
    """What is said at the end."""
    lines = []
    for system, mean in found["geometric_means"].items():
        ratios = found["ratios"][system]
        least = min(ratios, key=ratios.__getitem__)
        same, total = found["agreement"][system]
        lines.append(
            f"{system}: ramet is {mean:.2f} × as fast in geometric mean of {len(ratios)}, least "
            f"{ratios[least]:.2f} × ({least}); {same} of {total} greedy calls begin or pick alike"
        )
    return lines + [f"(!) {note}" for note in found["notes"]]


def markdown(found: Mapping[str, Any]) -> str:
    """The tables of `BENCHMARKS.md` from what the JSON file holds."""
    machine = found["hardware"]
    rows: dict[str, dict[str, Any]] = {}
    versions: dict[str, str] = {}
    for row in found["rows"]:
        rows.setdefault(row["workload"], {})[row["system"]] = row
        versions[row["system"]] = row["version"]
    sizes = "`--quick` sizes" if found["quick"] else "full sizes"
    sets = ", ".join(machine["instruction_sets"])
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores ({sets}); {sizes}, medians of "
        f"{found['rounds']} round(s). Seconds, and in brackets how many times ramet's.",
        "",
        "| workload | generated tokens | " + " | ".join(versions.values()) + " |",
        "|---|---" + "|---" * len(versions) + "|",
    ]
    for workload, of_system in rows.items():
        cells = [workload, str(of_system[OURS]["generated_tokens"])]
        for system in versions:
            row = of_system.get(system)
            if row is None:
                cells.append("–")
                continue
            cell = f"{row['seconds']:.2f}"
            if system != OURS:
                cell += f" ({found['ratios'][system][workload]:.2f} ×)"
            cells.append(cell if row["correct"] else f"{cell} ¹")
        lines.append("| " + " | ".join(cells) + " |")
    if found["geometric_means"]:
        means = [f"**{found['geometric_means'].get(system, 1):.2f} ×**" for system in versions]
        lines.append("| **geometric mean** | | " + " | ".join(means) + " |")
    lines.append("")
    for system, (same, total) in found["agreement"].items():
        lines.append(f"- {same} of {total} greedy calls begin or pick alike on ramet and {system}.")
    lines += [f"- {system}: {text}." for system, text in found["settings"].items()]
    lines += [f"- ¹ {note}." for note in found["notes"]]
    return "\n".join(lines) + "\n"


def picture(found: Mapping[str, Any], path: Path) -> None:
    """Bars of the ratios: how many times ramet's time each peer takes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    systems = list(found["ratios"])
    workloads = list(dict.fromkeys(row["workload"] for row in found["rows"]))
    figure, axes = pyplot.subplots(figsize=(1.0 + 0.9 * len(workloads), 4.5))
    width = 0.8 / max(1, len(systems))
    for place, system in enumerate(systems):
        ratios = found["ratios"][system]
        there = [number for number, workload in enumerate(workloads) if workload in ratios]
        bars = axes.bar(
            [number - 0.4 + width * (place + 0.5) for number in there],
            [ratios[workloads[number]] for number in there],
            width,
            label=f"{system}, mean {found['geometric_means'][system]:.1f} ×",
        )
        axes.bar_label(bars, fmt="%.1f", fontsize=7)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_ylabel("time of the peer / time of ramet")
    axes.set_xticks(range(len(workloads)), workloads, rotation=40, ha="right")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def write(found: Mapping[str, Any], path: Path) -> None:
    """The JSON file."""
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
