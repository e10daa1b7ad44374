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


@pytest.mark.parametrize(
    "args",
    [
        "--calls 0",
        "--calls -5",
        "--calls many",
        "--calls 99999999999999",
        "--pool -1",
        "--pool 0",
        "--pool nan",
        "--pool inf",
        "--pool 1e300",
        "--pool 1.5",
        "--replicas 0",
        "--replicas 1000000",
        "--model tiny",
        "steps --pool 0.5",
        "steps --calls 0",
        "check --calls -5",
        "check --policy lpm",
    ],
)
def test_a_wrong_argument_is_refused_by_name(args: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        simulate.main(args.split())
    assert end.value.code == 2
    name = next(word for word in args.split() if word.startswith("--"))
    assert name in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "what"),
    [
        ("--page-size 0", "page_size=0"),
        ("--chunk-tokens -5", "chunk_tokens=-5"),
        ("--max-running 0", "max_running=0"),
        ("--max-overtakes 0", "max_overtakes=0"),
        ("--target-step-ms nan", "target_step_ms=nan"),
        ("--target-step-ms -3", "target_step_ms=-3.0"),
        ("--target-step-ms 0", "target_step_ms=0.0"),
        ("--policy lpm --max-overtakes 5", "max_overtakes=5"),
        ("--router round_robin", "router=round_robin"),
        ("--pool 1e-9 --calls 10", "pool=1e-09: 0 slots"),
        ("--pool 32", "pool=32: 32 slots are no page of page_size=64"),
    ],
)
def test_what_makes_no_sense_together_is_refused(
    args: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate.main(args.split()) == 2
    assert what in capsys.readouterr().err


def test_refused_calls_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate.main(["--calls", "20", "--policy", "fcfs", "--pool", "128"]) == 0
    heads, line = capsys.readouterr().out.splitlines()[:2]
    refused = heads.index("refused") + len("refused")
    assert line[:refused].endswith(" 20")
