from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

Load = Callable[[str], ModuleType]


def test_the_frontend_table_has_both_kinds(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    load("bench").main(["frontend", "--runs", "2", "--rounds", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["turning", "the", "interpreted", "compiled"]
    assert all("µs a call" in line for line in lines)


def test_the_scheduler_table_has_steps_that_decode_and_steps_that_admit(
    load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--rounds", "1", "--rows", "1", "3", "--waiting", "5", "40"]
    load("bench").main(["scheduler", *arguments])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if "× the goal" in line] == ["1", "3", "1", "3"]
    assert [line.split()[0] for line in lines if " waiting" in line] == ["5", "40"] * 4
    assert sum("fitted" in line for line in lines) == 2
    assert all("µs" in line for line in lines[1:] if line.startswith(" "))


def test_a_line_is_fitted_through_points(load: Load) -> None:
    fixed, slope = load("benchmarks/inner").line([(n, 20.0 + 3.0 * n) for n in (1, 16, 64, 256)])
    assert fixed == pytest.approx(20.0)
    assert slope == pytest.approx(3.0)


def test_help(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        load("bench").main(["--help"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert "frontend" in out
    assert "scheduler" in out
