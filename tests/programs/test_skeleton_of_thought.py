from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType

import pytest

import ramet.lang as rm

Load = Callable[[str], ModuleType]


def test_points_stand_behind_each_other(load: Load, tiny: rm.Runtime) -> None:
    program = load("skeleton_of_thought")
    state = program.answer.run(question="How?", points=3, seed=2)
    titles = state["points"]
    assert 1 <= len(titles) <= 3
    parts = re.split(r"(?:^|\n\n)(?=\d\. )", state["answer"].removesuffix("\n\n"))[1:]
    assert [part.split(":")[0] for part in parts] == [
        f"{number}. {title}".split(":")[0] for number, title in enumerate(titles, 1)
    ]
    assert state.text().endswith("\n\n" + state["answer"])
    assert tiny.stats()["calls"] == 1 + len(titles)
    again = program.answer.run(question="How?", points=3, seed=2)
    assert again["answer"] == state["answer"]


def test_an_empty_outline_is_no_error(
    load: Load, tiny: rm.Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    program = load("skeleton_of_thought")
    state = program.answer.run(question="How?", points=1, logit_bias={10: 100})  # Newlines.
    assert state["points"] == []
    assert state["answer"] == ""
    program.main(["--points", "2", "--question", "Why?"])
    assert capsys.readouterr().out.startswith("Why?\nOutline: ")


def test_help(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        load("skeleton_of_thought").main(["--help"])
    assert end.value.code == 0
    assert "--points" in capsys.readouterr().out
