"""Generative agents: people of a village who act and talk, hour by hour (Park et al. 2023,
arXiv:2304.03442), as an async program.

    ramet run programs/generative_agents.py
    python programs/generative_agents.py --hours 4 --temperature 1.0 --seed 7

All agents of an hour read the same world text and act at the same time: its tokens are computed
once for all of them, and only what happened in the last hour is new. An async body is a task of the
event loop, so thousands of agents need no thread each.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

import ramet.lang as rm

# The village, its people, and two hours of the day as examples.
WORLD = (Path(__file__).parent / "data" / "village.txt").read_text(encoding="utf-8")
FIRST_HOUR = 8
PEOPLE = ("Ada", "Ben", "Cleo")


@rm.function
async def live(s: rm.ProgramState, world: str, name: str) -> list[str]:
    """One hour of one person: what they do, whom they talk to, what they say."""
    # The world comes first and is the same for everybody, so it is shared; the name comes last.
    s += world + name + rm.gen("deed", stop=["\n", "."], max_tokens=24)
    s += f".\n{name} says to"
    # Nothing has been waited for yet. The choice is made among the other people of the village.
    s += rm.select("other", [f" {other}" for other in PEOPLE if other != name])
    s += ': "' + rm.gen("words", stop=['"', "\n"], max_tokens=24)
    # In an async body values are read with `await`; meanwhile the others go on.
    deed, words = await s.get("deed"), await s.get("words")
    return [f"{name}{deed}.", f'{name} says to{s["other"]}: "{words.strip()}"']


async def day(hours: int, temperature: float, seed: int) -> tuple[str, list[rm.ProgramState]]:
    """What happens in the village in so many hours, and the states of everybody."""
    world, everybody = WORLD, []
    for hour in range(FIRST_HOUR, FIRST_HOUR + hours):
        world += f"\n{hour}:00\n"
        people = [{"world": world, "name": name} for name in PEOPLE]
        # One seed per person and hour: the same seed gives the same day.
        seeds = [seed * 1000 + hour * 10 + number for number in range(len(PEOPLE))]
        states = await live.arun_batch(people, seed=seeds, temperature=temperature)
        # What a body returns is kept in its state.
        world += "".join(f"{line}\n" for state in states for line in state.ret_value)
        everybody += states
    return world.removeprefix(WORLD).strip(), everybody


def main(argv: Sequence[str] | None = None) -> None:
    """Live some hours and print what happened."""
    parser = argparse.ArgumentParser(description="Let the people of a village act and talk.")
    parser.add_argument("--hours", type=int, default=2, metavar="N", help="how long to watch (2)")
    parser.add_argument("--temperature", type=float, default=0.7, metavar="T", help="(0.7)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="repeatable day (0)")
    options = parser.parse_args(argv)

    story, states = asyncio.run(day(options.hours, options.temperature, options.seed))
    print(story)
    asked = sum(state.meta("deed")["prompt_tokens"] for state in states)
    cached = sum(state.meta("deed")["cached_tokens"] for state in states)
    print(f"\n{len(states)} agents read {asked:,} tokens of world; {cached:,} were shared.")


if __name__ == "__main__":
    main()
