"""Questions about a document: ask every part of it (map), answer from the best parts (reduce).

    ramet run programs/document_qa.py
    python programs/document_qa.py --file notes.txt --question "When was the roof repaired?"

Each paragraph is a fork, and each question a fork of that: what they share is computed once.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import ramet.lang as rm

DATA = Path(__file__).parent / "data"
DOCUMENT = DATA / "lighthouse.txt"
EXAMPLES = (DATA / "qa_examples.txt").read_text(encoding="utf-8")
QUESTIONS = [
    "How many steps does the tower have?",
    "Who was the first keeper?",
    "What did the children burn?",
    "On which day is the museum open?",
]


class Note(NamedTuple):
    fit: float  # Mean log-probability of the question's tokens after the part.
    part: int
    text: str


@rm.function
def ask(s: rm.ProgramState, parts: list[str], questions: list[str], keep: int) -> None:
    """Sets `notes` (per question, the best part first) and `answers`."""
    s += EXAMPLES
    forks = s.fork(len(parts))
    forks += [f"Text: {part}\nQuestion:" for part in parts]

    # Map. A `select` of one choice says how likely that text is, and appends it: a part that
    # answers a question makes the question likely.
    asked = []
    for fork in forks:
        branches = fork.fork(len(questions))
        branches += [rm.select("asked", [" " + question]) for question in questions]
        branches += "\nAnswer:" + rm.gen("note", stop="\n", max_tokens=24)
        asked.append(branches)
    notes: list[list[Note]] = [[] for _ in questions]
    for part, branches in enumerate(asked):
        for branch, found in zip(branches, notes, strict=True):
            fit = branch.meta("asked")["scores"][0]
            found.append(Note(fit, part, branch["note"].strip()))

    # Reduce: score the best parts' notes as answers to all of those parts. With so small a model
    # that alone errs more often than the fit alone, so the two log-probabilities are added.
    forks = s.fork(len(questions))
    for fork, question, found in zip(forks, questions, notes, strict=True):
        found.sort(reverse=True)
        text = " ".join(parts[note.part] for note in found[:keep][::-1])
        fits = {" " + note.text: note.fit for note in found[:keep][::-1]}
        fork += f"Text: {text}\nQuestion: {question}\nAnswer:" + rm.select("best", list(fits))
        fork["fits"] = fits
    s["notes"], s["answers"] = notes, []
    for fork in forks:  # In a loop of its own, since reading waits: all are asked by now.
        pairs = zip(fork["fits"].items(), fork.meta("best")["scores"], strict=True)
        s["answers"].append(max((fit + score, text) for (text, fit), score in pairs)[1])


def main(argv: Sequence[str] | None = None) -> None:
    """Answer the questions and print where the answers come from."""
    parser = argparse.ArgumentParser(description="Answer questions about a text of paragraphs.")
    parser.add_argument("--file", type=Path, default=DOCUMENT, metavar="FILE", help="the text")
    parser.add_argument("--question", action="append", metavar="TEXT", help="may be repeated")
    parser.add_argument("--keep", type=int, default=2, metavar="N", help="parts to reduce (2)")
    options = parser.parse_args(argv)
    text = options.file.read_text(encoding="utf-8")
    parts = [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]
    questions = options.question or QUESTIONS
    state = ask.run(parts=parts, questions=questions, keep=options.keep, temperature=0)
    for question, answer, notes in zip(questions, state["answers"], state["notes"], strict=True):
        print(f"{question}\n  => {answer.strip()}")
        for note in notes[: options.keep]:
            print(f"     part {note.part + 1}, fit {note.fit:5.2f}: {note.text}")


if __name__ == "__main__":
    main()
