"""Multiple choice: twenty questions, four answers each, scored instead of generated.

    ramet run programs/multiple_choice.py
    python programs/multiple_choice.py --method greedy_token_selection

`select` asks the model for no text: it adds up how likely each choice is after the prompt and takes
the best, so an answer is always one of the choices. The worked examples are computed once for all
questions, and a question once for all of its choices.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import ramet.lang as rm

QUIZ = Path(__file__).parent / "data" / "quiz.json"

# What an answer looks like: one of the choices, word for word.
EXAMPLES = """\
Question: Which of these do you wear on your feet?
Answer: shoes

Question: Who bakes bread?
Answer: a baker

Question: What is the capital of France?
Answer: Paris

"""

# "Best" can mean several things, see `ramet.lang.select`. The first is the default.
METHODS = [
    "token_length_normalized",
    "greedy_token_selection",
    "unconditional_likelihood_normalized",
    "exact_likelihood",
]


@rm.function
def choose(s: rm.ProgramState, question: str, choices: list[str], method: str) -> None:
    """Pick one of the choices; sets `answer`."""
    s += EXAMPLES + f"Question: {question}\nAnswer:"
    # The space belongs to the choice: models write a word together with the space before it.
    s += rm.select("answer", [" " + choice for choice in choices], choices_method=method)


def main(argv: Sequence[str] | None = None) -> None:
    """Take the quiz and print the answers and how many are right."""
    parser = argparse.ArgumentParser(description="Answer a quiz by choosing the likeliest answer.")
    parser.add_argument("--quiz", type=Path, default=QUIZ, metavar="FILE", help="a JSON list")
    parser.add_argument("--method", choices=METHODS, default=METHODS[0], help="how to choose")
    parser.add_argument("--quiet", action="store_true", help="show no progress bar")
    options = parser.parse_args(argv)

    quiz = json.loads(options.quiz.read_text(encoding="utf-8"))
    items = [
        {"question": one["question"], "choices": one["choices"], "method": options.method}
        for one in quiz
    ]
    states = choose.run_batch(items, progress_bar=not options.quiet)
    right = 0
    for one, state in zip(quiz, states, strict=True):
        answer = state["answer"].strip()
        right += answer == one["answer"]
        mark = "right" if answer == one["answer"] else f"wrong: {one['answer']}"
        # `meta` has every choice's score. How far the best is ahead says how sure the model is.
        best, second, *_ = sorted(state.meta("answer")["scores"], reverse=True)
        print(f"{one['question']:<60} {answer:<12} {best - second:5.2f} ahead  {mark}")
    print(f"{right} of {len(quiz)} right ({right / len(quiz):.0%})")


if __name__ == "__main__":
    main()
