from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import ramet.lang as rm

Load = Callable[[str], ModuleType]


def test_every_question_is_answered_by_one_of_its_choices(
    load: Load, tiny: rm.Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    program = load("multiple_choice")
    quiz = json.loads(program.QUIZ.read_text(encoding="utf-8"))
    assert len(quiz) == len({one["question"] for one in quiz}) == 20
    assert all(one["answer"] in one["choices"] and len(one["choices"]) == 4 for one in quiz)

    program.main([])
    out, err = capsys.readouterr()
    *lines, total = out.rstrip("\n").split("\n")
    assert "20/20" in err
    right = 0
    for one, line in zip(quiz, lines, strict=True):
        assert line.startswith(one["question"])
        answer = re.split(r" +\d+\.\d\d ahead", line.removeprefix(one["question"]))[0].strip()
        assert answer in one["choices"]
        assert line.endswith("right") == (answer == one["answer"])
        right += answer == one["answer"]
    assert total == f"{right} of 20 right ({right / 20:.0%})"
    stats = tiny.stats()
    assert stats["calls"] == 20
    assert stats["cached_tokens"] >= 19 * len(program.EXAMPLES)


@pytest.mark.parametrize("number", range(4))
def test_every_method_chooses(load: Load, tiny: rm.Runtime, number: int) -> None:
    program = load("multiple_choice")
    method = program.METHODS[number]
    state = program.choose.run(question="Which?", choices=["a", "bc", "b"], method=method)
    scores = state.meta("answer")["scores"]
    assert state["answer"] == [" a", " bc", " b"][scores.index(max(scores))]


def test_own_quiz(
    load: Load, tiny: rm.Runtime, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "quiz.json"
    file.write_text('[{"question": "One?", "choices": ["a", "b"], "answer": "a"}]')
    load("multiple_choice").main(["--quiz", str(file), "--quiet"])
    out, err = capsys.readouterr()
    assert re.fullmatch(r"One\? .*\n[01] of 1 right \(\d+%\)\n", out)
    assert "1/1" not in err


def test_help(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        load("multiple_choice").main(["--help"])
    assert end.value.code == 0
    assert "--method" in capsys.readouterr().out
