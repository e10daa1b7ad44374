from pathlib import Path

import pytest

from ramet.runtime.schedule import simulate


def test_help_explains_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        simulate.main(["--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert "--picture" in text
    assert "recomputed" in text


def test_policies_and_pools_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--workload", "agents", "--calls", "40", "--policy", "dfs", "fcfs"]
    assert simulate.main([*args, "--pool", "0.5", "65536"]) == 0
    text = capsys.readouterr().out
    assert "distinct tokens" in text
    for name in ("dfs, pool 0.5", "fcfs, pool 0.5", "dfs, pool 65536", "fcfs, pool 65536"):
        assert name in text


def test_replicas_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--calls", "30", "--policy", "program", "--pool", "65536", "--replicas", "1", "2"]
    assert simulate.main([*args, "--router", "round_robin", "longest_prefix"]) == 0
    text = capsys.readouterr().out
    assert "2 x round_robin" in text
    assert "2 x longest_prefix" in text


def test_without_matplotlib_a_picture_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    args = ["--calls", "10", "--policy", "fcfs", "--pool", "65536"]
    assert simulate.main([*args, "--picture", str(tmp_path / "a.png")]) == 2
    assert "ramet[plot]" in capsys.readouterr().err
