from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import ramet.lang as rm

Load = Callable[[str], ModuleType]


def test_parts_and_questions_are_shared(load: Load, tiny: rm.Runtime) -> None:
    program = load("document_qa")
    parts, questions = ["Tea is hot. " * 9, "Snow is cold. " * 9, "Air."], ["What is hot?", "Why?"]
    state = program.ask.run(parts=parts, questions=questions, keep=2, temperature=0)
    assert len(state["answers"]) == len(state["notes"]) == 2
    for answer, notes in zip(state["answers"], state["notes"], strict=True):
        assert [note.part for note in sorted(notes, key=lambda note: note.part)] == [0, 1, 2]
        fits = [note.fit for note in notes]
        assert fits == sorted(fits, reverse=True)
        assert all(fit < 0 for fit in fits)
        assert answer.strip() in [note.text for note in notes[:2]]
    stats = tiny.stats()
    assert stats["calls"] == 2 * 2 * 3 + 2
    # Each part once, and once more where two of them stand together.
    assert stats["edge_tokens"] <= len(program.EXAMPLES) + 3 * len("".join(parts)) + 12 * 50
    again = program.ask.run(parts=parts, questions=questions, keep=2, temperature=0)
    for before, after in zip(state["notes"], again["notes"], strict=True):
        assert [(n.part, n.text) for n in before] == [(n.part, n.text) for n in after]
        # What else is in a step's matrix products moves a float32 score in its last digits.
        assert [n.fit for n in before] == pytest.approx([n.fit for n in after], abs=1e-4)


def test_the_document_is_read_in_paragraphs(
    load: Load, tiny: rm.Runtime, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("One\nline.\n\nTwo.\n\n\n\nThree.\n")
    load("document_qa").main(["--file", str(file), "--question", "What?", "--keep", "3"])
    first, second, *notes = capsys.readouterr().out.rstrip("\n").split("\n")
    assert first == "What?"
    assert second.startswith("  => ")
    found = [re.match(r"     part (\d), fit -\d+\.\d\d: ", note) for note in notes]
    assert sorted(match[1] for match in found if match) == ["1", "2", "3"]


def test_help(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        load("document_qa").main(["--help"])
    assert end.value.code == 0
    assert "--keep" in capsys.readouterr().out
