"""A judge: branch into criteria, score each, merge (Saha et al. 2023, arXiv:2310.15123).

    ramet run programs/judge.py
    python programs/judge.py --question "How do I sleep better?" --answer "..." --answer "..."

The answers come from the model playing several people, or from you. Each is a fork and each
criterion a fork of that: an answer is computed once, and all scores are asked for at the same time.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import ramet.lang as rm

QUESTION = "How can I stay healthy?"
OTHERS = ["When does the train leave?", "Why are you so angry?", "What have you seen?"]

WRITERS = {  # Who answers, and how the answer begins, which sets its tone.
    "a doctor": "You should",
    "a rude man": "Go away, you idiot,",
    "a salesman": "Buy our new",
    "a dreamer": "Yesterday I saw",
}


@rm.function
def write(s: rm.ProgramState, question: str) -> None:
    """Sets `answers`: one of each writer."""
    forks = s.fork(len(WRITERS))
    for fork, (writer, start) in zip(forks, WRITERS.items(), strict=True):
        fork += f'Someone asked {writer}: "{question}" The reply was: "'
        with fork.var_scope("answers"):  # The start and what follows are the value together.
            fork += start + rm.gen("rest", stop=['"', "\n", "."], max_tokens=32) + "."
    forks.join()  # Gathers `answers` of the forks into a list of that name.


@rm.function
def judge(s: rm.ProgramState, question: str, answers: list[str]) -> None:
    """Sets `scores`: for each answer a dict of criterion to a number from 0 to 1."""
    # Asked "Is this kind, yes or no?", a small model says the same whatever it is shown. How it
    # would go on after an answer tells more. The first choice of each is the good one.
    criteria = {
        "relevant": ("\nThe question was:", [question, *OTHERS]),
        "kind": (" said the stranger in a voice that was", ["kind", "angry"]),
        "helpful": ("\nThe speaker wants to", ["help", "sell"]),
        "sensible": ("\nThis is", ["good advice", "bad advice"]),
    }
    forks = s.fork(len(answers))
    forks += [f'"{answer}"' for answer in answers]
    for fork in forks:
        # Branch: no criterion sees another's verdict. The join makes `score` a list, in order.
        branches = fork.fork(len(criteria))
        branches += [
            ask + rm.select("score", [" " + c for c in choices], choices_method=rm.exact_likelihood)
            for ask, choices in criteria.values()
        ]
        branches.join()
    # Solve: everything has been asked for; reading waits for it.
    metas = [zip(criteria, fork.meta("score"), strict=True) for fork in forks]
    s["scores"] = [{name: meta["probabilities"][0] for name, meta in row} for row in metas]


def main(argv: Sequence[str] | None = None) -> None:
    """Judge the answers and print the scores and the verdict."""
    parser = argparse.ArgumentParser(description="Score answers by several criteria.")
    parser.add_argument("--question", default=QUESTION, metavar="TEXT", help="what was asked")
    parser.add_argument("--answer", action="append", metavar="TEXT", help="two or more to judge")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="repeatable answers (0)")
    options = parser.parse_args(argv)

    question, answers = options.question, options.answer
    if not answers:
        answers = write.run(question=question, seed=options.seed, temperature=0.7)["answers"]
    scores = judge.run(question=question, answers=answers)["scores"]
    # Merge: the product, as one criterion can't make up for another.
    totals = [math.prod(row.values()) for row in scores]
    print(f"{question}\n  {'  '.join(scores[0])}  total")
    for answer, row, total in zip(answers, scores, totals, strict=True):
        cells = "  ".join(f"{value:{len(name)}.0%}" for name, value in row.items())
        print(f"  {cells}  {total:5.0%}  {answer}")
    print(f"Best: {answers[totals.index(max(totals))]}")


if __name__ == "__main__":
    main()
