"""What a workload is: programs as data, which every system executes in its own way.

A program is a list of steps, and a step a dict (so that it crosses to another interpreter as JSON):

- `{"text": …}` is appended;
- `{"gen": name, "max_tokens": …, "temperature": …, "n": …, "schema": …}` generates exactly that
  many tokens, or a JSON document of that schema (`free_tokens` tokens of free text on a system
  without constraints); with n above 1 the first sample goes on;
- `{"select": name, "choices": […]}` appends the choice whose tokens are the likeliest on average;
- `{"read": True}` waits for every value that the branch has so far;
- `{"fork": [steps, …], "append": …}` runs branches side by side, and appends their texts in the end
  if it is to.

Names are unique in a program.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

Step = dict[str, Any]
Steps = list[Step]

DOCUMENT_TOKENS = 26
"""About what a document of the workloads has."""
READ: Step = {"read": True}


class Names:
    """The names of a program's calls, in the order of writing."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def gen(
        self, max_tokens: int, temperature: float = 0.0, n: int = 1, schema: Any = None
    ) -> Step:
        """A call that generates."""
        step: Step = {"gen": f"v{next(self._numbers)}", "max_tokens": max_tokens}
        step |= {"temperature": temperature, "n": n, "schema": schema}
        return step if schema is None else {**step, "free_tokens": DOCUMENT_TOKENS}

    def select(self, choices: list[str]) -> Step:
        """A call that picks."""
        return {"select": f"v{next(self._numbers)}", "choices": choices}


def text(content: str) -> Step:
    """A text."""
    return {"text": content}


def fork(*branches: Steps, append: bool = False) -> Step:
    """Branches."""
    return {"fork": list(branches), "append": append}


@dataclasses.dataclass(frozen=True)
class Workload:
    """Programs that run together, for one round."""

    name: str
    about: str
    """What it is, in one line."""
    programs: list[Steps]


def name_of(step: Step) -> str:
    """The name of a call."""
    return str(step.get("gen") or step["select"])


def calls_of(steps: Steps, clean: bool = True) -> Iterator[tuple[Step, bool]]:
    """Each call of a program, and whether its prompt is the same on every system: nothing on its
    path was generated or picked."""
    for step in steps:
        if "gen" in step or "select" in step:
            yield step, clean
            clean = False
        elif "fork" in step:
            for branch in step["fork"]:
                for found in calls_of(branch, clean):
                    yield found
                    clean = clean and not step["append"]
