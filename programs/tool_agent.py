"""Tools: an agent whose calls are part of its text, with arguments that have types.

    ramet run programs/tool_agent.py
    python programs/tool_agent.py --question "How much is 12 times 12?"

The model writes freely until `<tool=`. From there on `structural_tags=` lets it write only the name
of a tool that exists and arguments of that tool's type; the text ends after one call. What
`state.value` gives is what it said and the arguments, as an instance. (A model that was trained to
call tools has its own spelling for `begin` and `end`.)
"""

import argparse
import json
from collections.abc import Sequence
from operator import add, mul, sub
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

import ramet.lang as rm

DATA = Path(__file__).parent / "data"
ANIMALS = json.loads((DATA / "animals.json").read_text(encoding="utf-8"))
EXAMPLES = (DATA / "tool_examples.txt").read_text(encoding="utf-8")
QUESTIONS = ["How much is 345 + 678?", "What does the panda eat?", "How much is 9 times 6?"]
OPERATORS = {"+": add, "-": sub, "*": mul}


class Calculate(BaseModel):
    left: float
    operator: Literal["+", "-", "*"]
    right: float

    def run(self) -> str:
        return f"{OPERATORS[self.operator](self.left, self.right):g}"


class LookUp(BaseModel):
    animal: Literal[tuple(ANIMALS)]  # type: ignore[valid-type]

    def run(self) -> str:
        return str(ANIMALS[self.animal])


def tag(name: str, tool: type[BaseModel]) -> dict[str, Any]:
    content = {"type": "json_schema", "json_schema": tool}
    return {"begin": f"<tool={name}>", "content": content, "end": "</tool>"}


LINE = {
    "type": "triggered_tags",
    "triggers": ["<tool="],
    "tags": [tag("calculate", Calculate), tag("look_up", LookUp)],
    "stop_after_first": True,
}


@rm.function
def agent(s: rm.ProgramState, question: str, max_rounds: int) -> None:
    """Work on a question; sets `result`, None if it took too many rounds."""
    s += EXAMPLES + f"Question: {question}\n"
    s["result"] = None
    for _ in range(max_rounds):
        s += rm.gen("line", structural_tags={"format": LINE}, stop="\n", max_tokens=96)
        # It ends with a call, or at the newline: texts, and pairs of a begin and its content.
        pieces = s.value("line")
        if not pieces or isinstance(pieces[-1], str):
            s["result"] = s["line"].strip()
            return
        s += f" -> {pieces[-1].value.run()}\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Answer the questions and print every round."""
    parser = argparse.ArgumentParser(description="Answer questions with tools.")
    parser.add_argument("--question", action="append", metavar="TEXT", help="may be repeated")
    options = parser.parse_args(argv)
    items = [{"question": q, "max_rounds": 4} for q in options.question or QUESTIONS]
    for state in agent.run_batch(items, temperature=0, return_exceptions=True):
        if isinstance(state, rm.ProgramError):  # A call was cut in the middle.
            print(f"=> gave up: {state}\n")
        else:
            print(f"{state.text().removeprefix(EXAMPLES)}=> {state['result'] or 'gave up'}\n")


if __name__ == "__main__":
    main()
