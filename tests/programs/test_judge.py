from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType

import pytest

import ramet.lang as rm

Load = Callable[[str], ModuleType]


def test_answers_are_written_scored_and_ranked(
    load: Load, tiny: rm.Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    program = load("judge")
    program.main(["--seed", "3"])
    question, names, *rows, best = capsys.readouterr().out.rstrip("\n").split("\n")
    assert question == program.QUESTION
    assert names.split() == ["relevant", "kind", "helpful", "sensible", "total"]
    assert len(rows) == len(program.WRITERS)
    assert best.startswith("Best: ")
    for row, start in zip(rows, program.WRITERS.values(), strict=True):
        assert len(re.findall(r" \d+%", row.split(start)[0])) == 5
        assert start in row
    assert tiny.stats()["calls"] == 4 + 4 * 4


def test_scores_depend_on_the_answer_alone(load: Load, tiny: rm.Runtime) -> None:
    program = load("judge")
    answers = ["One.", "Two three.", "Four."]
    scores = program.judge.run(question="How?", answers=answers)["scores"]
    turned = program.judge.run(question="How?", answers=answers[::-1])["scores"]
    assert scores == turned[::-1]
    assert all(0 <= value <= 1 for row in scores for value in row.values())
    assert scores[0] != scores[1]


def test_written_answers_repeat_with_a_seed(load: Load, tiny: rm.Runtime) -> None:
    write = load("judge").write
    first, again, other = (write.run(question="How?", seed=seed)["answers"] for seed in (1, 1, 2))
    assert first == again != other


def test_own_answers(load: Load, tiny: rm.Runtime, capsys: pytest.CaptureFixture[str]) -> None:
    load("judge").main(["--question", "How?", "--answer", "One.", "--answer", "Two."])
    out = capsys.readouterr().out
    assert re.search(r"%  One\.\n .*%  Two\.\nBest: (One|Two)\.\n$", out)
    assert tiny.stats()["calls"] == 8


def test_help(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        load("judge").main(["--help"])
    assert end.value.code == 0
    assert "--answer" in capsys.readouterr().out
