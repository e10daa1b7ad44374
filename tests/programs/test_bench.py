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


def test_help(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        load("bench").main(["--help"])
    assert end.value.code == 0
    assert "frontend" in capsys.readouterr().out
