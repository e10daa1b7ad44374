from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

import ramet.lang as rm

Load = Callable[[str], ModuleType]


def test_every_question_is_answered_in_order_over_one_prefix(
    load: Load, tiny: rm.Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    few_shot = load("few_shot")
    few_shot.main([])
    out, err = capsys.readouterr()
    asked = [line for line in out.split("\n") if any(q in line for q in few_shot.QUESTIONS)]
    assert [line.split("?")[0] + "?" for line in asked] == few_shot.QUESTIONS
    assert "12/12" in err
    stats = tiny.stats()
    prefix = len("".join(f"Q: {q}\nA: {a}\n\n" for q, a in few_shot.EXAMPLES))
    assert stats["calls"] == 12
    assert stats["cached_tokens"] >= 11 * prefix


def test_own_questions(load: Load, tiny: rm.Runtime, capsys: pytest.CaptureFixture[str]) -> None:
    load("few_shot").main(["--question", "One?", "--question", "Two?", "--quiet"])
    out, err = capsys.readouterr()
    assert out.startswith("One?  ")
    assert "\nTwo?  " in out
    assert "2/2" not in err
    assert tiny.stats()["calls"] == 2


@pytest.mark.parametrize("name", ["few_shot", "self_consistency"])
def test_help(load: Load, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        load(name).main(["--help"])
    assert end.value.code == 0
    assert "usage" in capsys.readouterr().out
