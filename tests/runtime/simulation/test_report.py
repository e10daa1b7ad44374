import sys
from pathlib import Path

import pytest

from ramet.runtime.errors import BackendError, InvalidArgument
from ramet.runtime.simulation.cost_model import PRESETS
from ramet.runtime.simulation.report import (
    align,
    check_picture,
    hit_ratio,
    picture,
    quantile,
    seconds,
    table,
)
from ramet.runtime.simulation.simulation import Outcome, simulate
from ramet.runtime.simulation.workloads import WORKLOADS


@pytest.fixture(scope="module")
def rows() -> list[tuple[str, Outcome]]:
    arrivals = list(WORKLOADS["few_shot"](1, 40))
    cost = PRESETS["llama-8b-h100"]
    return [(p, simulate(arrivals, cost, pool_tokens=65_536, policy=p)) for p in ("dfs", "fcfs")]


def test_quantiles() -> None:
    values = [float(n) for n in range(1, 101)]
    assert (quantile(values, 0.5), quantile(values, 0.99), quantile(values, 1)) == (50, 99, 100)
    assert (quantile([3.0], 0.5), quantile([], 0.5)) == (3.0, 0.0)


def test_times_have_a_fitting_unit() -> None:
    assert [seconds(t) for t in (0.00123, 1.5, 1234.6)] == ["1.2 ms", "1.50 s", "1,235 s"]


def test_the_table_has_a_line_for_each(rows: list[tuple[str, Outcome]]) -> None:
    heads, *lines = table(rows).splitlines()
    assert "hit rate" in heads
    assert [line.split()[0] for line in lines] == ["dfs", "fcfs"]
    assert all("100.0%" in line for line in lines)  # Everything fits.
    assert align([["a", "bb"], ["ccc", "d"]]) == "a    bb\nccc   d"


def test_recomputed_tokens_are_misses() -> None:
    stats = {"prompt_tokens": 100, "edge_tokens": 20, "recomputed_tokens": 40}
    assert hit_ratio({**stats, "optimum_hit_rate": 0.8}) == pytest.approx(0.5)
    assert hit_ratio({**stats, "optimum_hit_rate": 0.0}) == 1.0


def test_a_picture_needs_matplotlib_and_says_so(
    rows: list[tuple[str, Outcome]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(BackendError, match=r"pip install 'ramet\[plot\]'"):
        picture(rows, tmp_path / "a.png", "title")


def test_a_picture_is_written(rows: list[tuple[str, Outcome]], tmp_path: Path) -> None:
    picture(rows, tmp_path / "a.png", "title")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["a.nosuch", "a", "nowhere/a.png"])
def test_a_picture_that_cannot_be_written_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="picture="):
        check_picture(tmp_path / name)
