"""Few-shot question answering: a dozen questions, one shared prefix.

    ramet run programs/few_shot.py
    python programs/few_shot.py --question "What is the capital of Norway?"

The examples are the same for every question, so the runtime computes them once: the first question
to arrive pays for them, the others find them there. `ramet run` reports how much was reused.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import ramet.lang as rm

# What the model sees before each question: it shows the form of an answer, one short line.
EXAMPLES = [
    ("Which planet is known as the Red Planet?", "Mars"),
    ("How many legs does a spider have?", "8"),
    ("What is the opposite of hot?", "cold"),
    ("Who wrote Romeo and Juliet?", "William Shakespeare"),
    ("In which season do leaves fall from the trees?", "autumn"),
    ("What is the capital of France?", "Paris"),
]

QUESTIONS = [
    "What is the capital of Italy?",
    "Which is the largest ocean?",
    "How many days are in a week?",
    "What is the opposite of up?",
    "Who painted the Mona Lisa?",
    "What do bees make?",
    "What is the capital of Japan?",
    "Which gas do plants take in from the air?",
    "How many sides does a triangle have?",
    "In which country are the pyramids of Giza?",
    "What is the frozen form of water?",
    "Which animal is called man's best friend?",
]


@rm.function
def answer(s: rm.ProgramState, question: str) -> None:
    """Answer one question after the examples."""
    for example, reply in EXAMPLES:
        s += f"Q: {example}\nA: {reply}\n\n"
    # Text is only noted until a call needs it: all of the above and this line are one prompt.
    # No space stands after "A:", since the model's first token brings its own.
    s += f"Q: {question}\nA:" + rm.gen("answer", stop="\n", max_tokens=24)


def main(argv: Sequence[str] | None = None) -> None:
    """Answer the questions and print them in order."""
    parser = argparse.ArgumentParser(description="Answer questions over a shared few-shot prefix.")
    parser.add_argument(
        "--question", action="append", metavar="TEXT", help="ask this instead (may be repeated)"
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress bar")
    options = parser.parse_args(argv)

    questions = options.question or QUESTIONS
    # All questions run at once, in one batch on the engine; results keep their order.
    # Sampling arguments given here hold for every `gen` that doesn't say otherwise.
    states = answer.run_batch(
        [{"question": question} for question in questions],
        temperature=0,  # Always the likeliest token.
        progress_bar=not options.quiet,
    )
    width = max(len(question) for question in questions)
    for question, state in zip(questions, states, strict=True):
        print(f"{question:<{width}}  {state['answer'].strip()}")


if __name__ == "__main__":
    main()
