"""ReAct: think, use a tool, read what it says (Yao et al. 2022, arXiv:2210.03629).

    ramet run programs/react_agent.py
    python programs/react_agent.py --question "How many legs do 12 crabs have?"

Each round is Thought, Action, Observation. The model writes the thought, `select` picks the tool,
so that it is always one that exists, the model writes its input, and the observation is what the
real tool says. A question's text only ever grows, so each round computes only what it adds.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Callable, Sequence
from operator import add, mul, sub, truediv
from pathlib import Path

import ramet.lang as rm

DATA = Path(__file__).parent / "data"
ANIMALS = json.loads((DATA / "animals.json").read_text(encoding="utf-8"))
EXAMPLES = (DATA / "react_examples.txt").read_text(encoding="utf-8")
QUESTIONS = [
    "What is 345 + 678?",
    "What does the panda eat?",
    "How many legs do 9 ants have?",
    "Where does the camel live?",
    "What does the unicorn eat?",
]
OPERATORS: dict[type[ast.AST], Callable[[float, float], float]] = dict(
    zip((ast.Add, ast.Sub, ast.Mult, ast.Div), (add, sub, mul, truediv), strict=True)
)


def calculate(text: str) -> str:
    """Work out an expression of numbers and + - * /. Never `eval` what a model wrote."""

    def value(node: ast.AST) -> float:
        if isinstance(node, ast.BinOp):  # An operator that isn't there is a KeyError.
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        return float(ast.literal_eval(node))

    try:
        return f"{value(ast.parse(text.strip(), mode='eval').body):.12g}"
    except (ValueError, TypeError, LookupError, SyntaxError, ArithmeticError, RecursionError):
        return "This cannot be calculated."


def look_up(text: str) -> str:
    """What the knowledge base says of an animal."""
    return str(ANIMALS.get(text.strip().lower(), f"Nothing is known about the {text.strip()}."))


TOOLS = {"Calculate": calculate, "Lookup": look_up}


@rm.function
def agent(s: rm.ProgramState, question: str, max_rounds: int) -> None:
    """Work on a question; sets `result`, None if it took too many rounds."""
    s += EXAMPLES + f"Question: {question}\n"
    s["result"] = None
    for _ in range(max_rounds):
        s += "Thought:" + rm.gen("thought", stop=[".", "\n"], max_tokens=32) + ".\nAction:"
        s += rm.select("tool", [" Calculate", " Lookup", " Finish"])
        s += "[" + rm.gen("input", stop=["]", "\n"], max_tokens=32) + "]\n"
        tool = s["tool"].strip()  # Reading waits: only now is the round over.
        if tool == "Finish":
            s["result"] = s["input"]
            return
        s += f"Observation: {TOOLS[tool](s['input'])}\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Answer the questions and print every round."""
    parser = argparse.ArgumentParser(description="Answer questions with a calculator and facts.")
    parser.add_argument("--question", action="append", metavar="TEXT", help="may be repeated")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="at most (5)")
    options = parser.parse_args(argv)
    items = [{"question": q, "max_rounds": options.rounds} for q in options.question or QUESTIONS]
    for state in agent.run_batch(items, temperature=0):
        print(state.text().removeprefix(EXAMPLES), end="")
        print(f"=> {state['result'] or 'gave up'}\n")


if __name__ == "__main__":
    main()
