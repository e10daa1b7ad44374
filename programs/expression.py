"""A grammar: sums in words become expressions, which are worked out from their parse trees.

    ramet run programs/expression.py
    python programs/expression.py --question "Three boxes of four eggs, and two more."

`lark=` takes a grammar in Lark's syntax. Whatever the model writes is an expression of it, however
small the model is, and `state.value` gives the expression's tree: nothing is parsed twice, and no
`eval` sees what a model wrote.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from fractions import Fraction
from operator import add, mul, sub, truediv
from typing import Any

import ramet.lang as rm

GRAMMAR = r"""
start: sum
?sum: product
    | sum " + " product -> add
    | sum " - " product -> sub
?product: atom
    | product " * " atom -> mul
    | product " / " atom -> div
?atom: NUMBER -> number
    | "(" sum ")"
NUMBER: /[0-9]{1,6}/
"""
OPERATORS: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "div": truediv,
}
EXAMPLES = [
    ("Two cats and three dogs: how many animals?", "2 + 3"),
    ("Six bags of ten apples, four of them eaten.", "6 * 10 - 4"),
    ("Half of the sum of twelve and eight.", "(12 + 8) / 2"),
    ("Twenty coins, shared by four people.", "20 / 4"),
]
QUESTIONS = [
    "Five rows of seven chairs.",
    "Ten birds, and three fly away.",
    "Four boxes of six eggs, and two more eggs.",
    "A third of the sum of nine and six.",
]


@rm.function
def translate(s: rm.ProgramState, question: str) -> None:
    """Sets `expression`."""
    for example, expression in EXAMPLES:
        s += f"Text: {example}\nExpression: {expression}\n\n"
    # An expression could always go on: the stop may come wherever it is a whole one.
    s += f"Text: {question}\nExpression: "
    s += rm.gen("expression", lark=GRAMMAR, stop="\n", max_tokens=24)


def result(tree: Any) -> Fraction:
    """What an expression comes to."""
    if tree.data == "number":
        return Fraction(str(tree.children[0]))
    values = [result(child) for child in tree.children]
    return OPERATORS[tree.data](*values) if len(values) == 2 else values[0]


def main(argv: Sequence[str] | None = None) -> None:
    """Translate the texts and print expressions and results."""
    parser = argparse.ArgumentParser(description="Work out sums that are told in words.")
    parser.add_argument("--question", action="append", metavar="TEXT", help="may be repeated")
    options = parser.parse_args(argv)
    questions = options.question or QUESTIONS
    states = translate.run_batch([{"question": q} for q in questions], temperature=0)
    for question, state in zip(questions, states, strict=True):
        try:
            print(f"{question}\n  {state['expression']} = {result(state.value('expression'))}")
        except (rm.ProgramError, ZeroDivisionError) as error:  # Cut short, or no number.
            print(f"{question}\n  {state['expression']}: {error}")


if __name__ == "__main__":
    main()
