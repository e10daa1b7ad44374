"""Skeleton of thought: an outline first, then all points at once (Ning et al. 2023,
arXiv:2307.15337).

    ramet run programs/skeleton_of_thought.py
    python programs/skeleton_of_thought.py --question "How do I make friends?" --points 4

Written one word after the other, an answer of five points takes five times as long as one point.
Here the model writes a short outline, the state forks once per point, the forks write their points
side by side, and the join puts their texts behind each other.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

import ramet.lang as rm

# Two questions with an outline and a text for each point.
EXAMPLES = (Path(__file__).parent / "data" / "skeleton_examples.txt").read_text(encoding="utf-8")
QUESTION = "How do I grow tomatoes?"


@rm.function
def answer(s: rm.ProgramState, question: str, points: int) -> None:
    """Sets `points`, the outline, and `answer`, the whole text."""
    s += EXAMPLES + f"Question: {question}\nOutline:\n1."
    s += rm.gen("outline", stop="\n\n", max_tokens=16 * points)
    # Reading the outline waits for it: how often to fork depends on what it says.
    titles = [re.sub(r"^\d+\.", "", line).strip(" .") for line in s["outline"].split("\n")]
    s["points"] = titles = [title for title in titles if title][:points]
    s += "\n\n"

    with s.var_scope("answer"):  # Whatever is appended here becomes the variable `answer`.
        if titles:
            forks = s.fork(len(titles))
            # A function gets the number of its fork. None of them sees what the others write.
            forks += lambda number: f"{number + 1}. {titles[number]}:"
            forks += rm.gen("text", stop="\n", max_tokens=48) + "\n\n"
            # This mode appends the forks' texts to the state, in order. (The other one drops the
            # texts and gathers the forks' variables into lists.)
            forks.join("concate_and_append")


def main(argv: Sequence[str] | None = None) -> None:
    """Answer one question and print the outline and the answer."""
    parser = argparse.ArgumentParser(description="Answer by an outline and parallel points.")
    parser.add_argument("--question", default=QUESTION, metavar="TEXT", help="what to answer")
    parser.add_argument("--points", type=int, default=3, metavar="N", help="at most (3)")
    parser.add_argument("--temperature", type=float, default=0, metavar="T", help="(0)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="repeatable answer (0)")
    options = parser.parse_args(argv)

    state = answer.run(
        question=options.question,
        points=options.points,
        seed=options.seed,
        temperature=options.temperature,
    )
    print(options.question)
    print("Outline: " + "; ".join(state["points"]) + "\n")
    print(state["answer"].rstrip())


if __name__ == "__main__":
    main()
