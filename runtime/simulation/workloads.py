"""Workloads: programs as request graphs, and when they come; deterministic from a seed.

Lengths follow what the papers' traces look like, in round numbers: few-shot answers are short,
agents pause for tools, chats pause for people.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable, Iterator
from typing import Any

from ramet.runtime.graph import Graph
from ramet.runtime.simulation.graph_writer import GraphWriter
from ramet.runtime.simulation.tokens import run
from ramet.runtime.simulation.walker import Arrival


def _about(rng: random.Random, mean: float, low: int = 1) -> int:
    """A length with a long tail, of that mean."""
    return max(round(rng.lognormvariate(0.0, 0.5) * mean / 1.133), low)


def _fresh(rng: random.Random, length: int) -> str:
    """A run that nobody else has."""
    return run(rng.getrandbits(40), length)


def few_shot(seed: int, calls: int) -> Iterator[Arrival]:
    """A batch that is there at once: 40 tasks with an 800-token prompt each, a question of 60,
    an answer of a few; questions of all tasks are mixed."""
    rng = random.Random(seed)
    g = GraphWriter("few_shot")
    g.text(g.arg(), g.arg())
    g.gen(16)
    graph = g.graph()
    for _ in range(calls):
        task = run(1000 + rng.randrange(40), 800)
        yield Arrival(0.0, graph, (task, _fresh(rng, _about(rng, 60, 10)), _about(rng, 4)))


TREE_CALLS = 22
"""Calls of one program of `tree_of_thought`."""


def tree_of_thought(seed: int, calls: int) -> Iterator[Arrival]:
    """Problems below one 600-token instruction: three thoughts, from each three more, each judged,
    then an answer; 22 calls a program. All are there at once."""
    rng = random.Random(seed)
    g = GraphWriter("tree_of_thought")
    g.text(run(2000, 600), g.arg())
    found = []
    thoughts = g.fork(3)
    for thought in thoughts:
        g.text(run(2100 + thought, 8), branch=thought)
        g.gen(128, branch=thought)
        steps = g.fork(3, branch=thought)
        for step in steps:
            g.text(run(2200 + step, 8), branch=step)
            found.append(g.gen(128, branch=step))
            g.text(run(2300, 30), branch=step)
            g.gen(8, branch=step)
        g.join(steps, branch=thought)
    g.join(thoughts)
    g.text(run(2400, 20), found[0])
    g.gen(256)
    graph = g.graph()
    for _ in range(-(-calls // TREE_CALLS)):
        args: list[Any] = [_fresh(rng, _about(rng, 120, 20))]
        for _ in thoughts:
            args.append(_about(rng, 48))
            for _ in range(3):
                args += [_about(rng, 48), _about(rng, 2)]
        yield Arrival(0.0, graph, (*args, _about(rng, 80)))


@functools.lru_cache(maxsize=64)
def _turns(name: str, turns: int, limit: int) -> Graph:
    """Generations with a pause after each but the last: what it is told goes on from there. All are
    one loop, so they have one call site."""
    g = GraphWriter(name)
    g.text(g.arg(), g.arg())
    for _ in range(turns - 1):
        g.text(g.pause(g.gen(limit, site=f"{name}:loop")))
    g.gen(limit, site=f"{name}:loop")
    return g.graph()


TOOL_SECONDS = (0.05, 0.1, 0.5, 0.7, 1.0, 2.0, 10.0, 20.0)
"""How long the tool of each kind of agent takes on average, with an exponential distribution: from
looking something up to running tests or drawing a picture."""


def agents(seed: int, calls: int) -> Iterator[Arrival]:
    """Eight kinds of agents, each with a 1,200-token prompt and a tool of its own: up to a dozen
    times a step of 40 tokens, the tool and what it answers. Ten come a second."""
    rng = random.Random(seed)
    at = 0.0
    while calls > 0:
        at += rng.expovariate(10.0)
        turns = rng.randint(4, 12)
        calls -= turns
        kind = rng.randrange(len(TOOL_SECONDS))
        args: list[Any] = [run(3000 + kind, 1200), _fresh(rng, _about(rng, 80, 10))]
        for _ in range(turns - 1):
            pause = rng.expovariate(1.0 / TOOL_SECONDS[kind])
            args += [_about(rng, 40), pause, _fresh(rng, _about(rng, 120, 10))]
        yield Arrival(at, _turns(f"agent{kind}", turns, 512), (*args, _about(rng, 100)))


def chats(seed: int, calls: int) -> Iterator[Arrival]:
    """Sessions below one 200-token system prompt: up to ten turns of 60 tokens, replies of 120,
    with people who think for some twenty seconds. Six come a second."""
    rng = random.Random(seed)
    at = 0.0
    while calls > 0:
        at += rng.expovariate(6.0)
        turns = rng.randint(2, 10)
        calls -= turns
        args: list[Any] = [run(4000, 200), _fresh(rng, _about(rng, 60, 5))]
        for _ in range(turns - 1):
            args += [_about(rng, 120), rng.uniform(5.0, 35.0), _fresh(rng, _about(rng, 60, 5))]
        yield Arrival(at, _turns("chat", turns, 512), (*args, _about(rng, 120)))


def summaries(seed: int, calls: int) -> Iterator[Arrival]:
    """Documents of some 1,500 tokens that nobody shares, outputs of 200; four come a second."""
    rng = random.Random(seed)
    g = GraphWriter("summary")
    g.text(g.arg())
    g.gen(1024)
    graph = g.graph()
    at = 0.0
    for _ in range(calls):
        at += rng.expovariate(4.0)
        yield Arrival(at, graph, (_fresh(rng, _about(rng, 1500, 100)), _about(rng, 200)))


def mixed(seed: int, calls: int) -> Iterator[Arrival]:
    """Four tenants that share nothing, with batches, trees, agents and chats; the last two have
    the higher priority."""
    parts: list[Arrival] = []
    for number, (make, share) in enumerate(
        ((few_shot, 0.4), (tree_of_thought, 0.2), (agents, 0.2), (chats, 0.2))
    ):
        for tenant in range(4):
            count = max(round(calls * share / 4), 1)
            parts += [
                dataclasses.replace(a, salt=f"tenant{tenant}", priority=int(number >= 2))
                for a in make(seed * 16 + number * 4 + tenant, count)
            ]
    parts.sort(key=lambda arrival: arrival.at)
    yield from parts


WORKLOADS: dict[str, Callable[[int, int], Iterator[Arrival]]] = {
    "few_shot": few_shot,
    "tree_of_thought": tree_of_thought,
    "agents": agents,
    "chats": chats,
    "mixed": mixed,
    "summaries": summaries,
}
"""By name: (seed, number of calls) → programs in order of arrival."""
