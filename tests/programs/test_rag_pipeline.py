from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

import ramet.lang as rm

Load = Callable[[str], ModuleType]


PASSAGES = ["The cat sleeps on the mat.", "A dog barks.", "The cat and the dog eat fish."]


@pytest.mark.parametrize(
    ("query", "order"),
    [
        ("Who eats fish?", [2, 0, 1]),
        ("Who barks at the dog?", [1, 2, 0]),
        ("DOG", [1, 2, 0]),
        ("nothing matches", [0, 1, 2]),
        ("", [0, 1, 2]),
    ],
)
def test_rare_words_and_short_passages_count_more(load: Load, query: str, order: list[int]) -> None:
    assert load("rag_pipeline").search(PASSAGES, query) == [PASSAGES[i] for i in order]


def test_tries_go_down_the_ranking_until_one_is_fine(load: Load, tiny: rm.Runtime) -> None:
    program = load("rag_pipeline")
    options = {"passages": PASSAGES, "question": "Who barks?"}
    nothing = program.answer.run(**options, tries=2, fit=0.0)
    assert nothing["answer"] is None
    assert [entry[0] for entry in nothing["log"]] == program.search(PASSAGES, "Who barks?")[:2]
    assert [entry[3] for entry in nothing["log"]] == ["unfit", "unfit"]
    everything = program.answer.run(**options, tries=3, fit=-99.0)
    for passage, fit, reply, verdict in everything["log"]:
        assert fit < 0
        own = set(program.words(reply)) <= set(program.words(passage + " a at in of on the"))
        assert verdict == ("fine" if own else "invented")
    # A failed try leaves nothing in the text.
    assert everything.text() == program.EXAMPLES


def test_the_first_fine_answer_is_taken(
    load: Load, tiny: rm.Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    gen = rm.gen
    # Whatever it is asked, the model says "d", which is a word of the second passage only.
    monkeypatch.setattr(rm, "gen", lambda name, **rest: gen(name, 1, logit_bias={100: 100}))
    passages = ["Who barks at d.", "Who barks at night."]
    state = load("rag_pipeline").answer.run(
        passages=passages[::-1], question="Who barks at night?", tries=2, fit=-99.0
    )
    assert [entry[3] for entry in state["log"]] == ["invented", "fine"]
    assert state["answer"] == "d"


def test_questions_run_as_a_batch(
    load: Load, tiny: rm.Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    program = load("rag_pipeline")
    program.main(["--question", "One?", "--question", "Two?", "--tries", "2", "--fit", "0"])
    out = capsys.readouterr().out
    assert [line for line in out.split("\n") if not line.startswith(" ")] == ["One?", "Two?", ""]
    assert out.count("  => not found\n") == 2
    assert out.count(" unfit ") == 4
    assert tiny.stats()["calls"] == 8


def test_help(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        load("rag_pipeline").main(["--help"])
    assert end.value.code == 0
    assert "--tries" in capsys.readouterr().out
