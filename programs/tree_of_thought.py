"""Tree of thoughts: propose, evaluate, expand the best (Yao et al. 2023, arXiv:2305.10601).

    ramet run programs/tree_of_thought.py
    python programs/tree_of_thought.py --mood sad --seed 3 --start "The old clock had stopped."

A story is written sentence by sentence towards a mood. At each level every kept story is forked
into several next sentences at a temperature, each new story is evaluated, and all but the best few
are dropped. A fork of a fork of a fork shares every sentence above it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import ramet.lang as rm

STORIES = (Path(__file__).parent / "data" / "stories.txt").read_text(encoding="utf-8")
START = "A small dog sat alone at the railway station."
MOODS = ["happy", "sad"]


class Thought(NamedTuple):
    value: float  # How likely the model ends this story in the wanted mood.
    path: list[str]
    state: rm.ProgramState


@rm.function
def write(s: rm.ProgramState, start: str, mood: str, depth: int, proposals: int, keep: int) -> None:
    """Sets `levels`: per level, all proposals as (value, sentences), the best first."""
    s += STORIES + start
    kept, levels = [Thought(0.0, [], s)], []
    for _ in range(depth):
        # Propose: all forks of all kept stories are written at the same time.
        stories = [(old.path, fork) for old in kept for fork in old.state.fork(proposals)]
        for _, story in stories:
            story += rm.gen("sentence", max_tokens=28, min_tokens=4, stop=[".", "\n"]) + "."
        # Evaluate, in a fork of the story, so that the verdict's text isn't part of the story.
        verdicts = [story.fork()[0] for _, story in stories]
        for verdict in verdicts:
            verdict += " In the end, everyone was very"
            # The probability of each choice, which no other rule of `select` gives.
            choices = [" " + mood for mood in MOODS]
            verdict += rm.select("end", choices, choices_method=rm.exact_likelihood)
        # Prune: reading the verdicts waits for them, and then only the best go on.
        thoughts = [
            Thought(
                verdict.meta("end")["probabilities"][MOODS.index(mood)],
                [*path, story["sentence"].strip() + "."],
                story,
            )
            for (path, story), verdict in zip(stories, verdicts, strict=True)
        ]
        thoughts.sort(key=lambda thought: thought.value, reverse=True)
        levels.append([(thought.value, thought.path) for thought in thoughts])
        kept = thoughts[:keep]
        for branch in [*verdicts, *(thought.state for thought in thoughts[keep:])]:
            branch.cancel()  # A dropped branch takes no more calls and holds no memory.
    s["levels"] = levels


def main(argv: Sequence[str] | None = None) -> None:
    """Write a story and print the tree and its best path."""
    parser = argparse.ArgumentParser(description="Write a story by searching a tree of sentences.")
    parser.add_argument("--start", default=START, metavar="TEXT", help="the first sentence")
    parser.add_argument("--mood", choices=MOODS, default="happy", help="how it should end (happy)")
    parser.add_argument("--depth", type=int, default=3, metavar="N", help="sentences (3)")
    parser.add_argument("--proposals", type=int, default=4, metavar="N", help="per story (4)")
    parser.add_argument("--keep", type=int, default=2, metavar="N", help="per level (2)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="repeatable story (1)")
    options = vars(parser.parse_args(argv))

    state = write.run(**options, temperature=0.8, top_p=0.9)
    for number, level in enumerate(state["levels"], 1):
        print(f"Sentence {number}")
        for place, (value, path) in enumerate(level):
            print(f"  {value:4.0%}  {'kept' if place < options['keep'] else '    '}  {path[-1]}")
    print(f"\n{options['start']} {' '.join(state['levels'][-1][0][1])}")


if __name__ == "__main__":
    main()
