"""The simulator decides what the real engine decides. Needs torch."""

import pytest

from ramet.runtime.simulation.check import Prediction, check_times, decisions, shrink
from ramet.runtime.simulation.cost_model import PRESETS
from ramet.runtime.simulation.graph_writer import GraphWriter
from ramet.runtime.simulation.tokens import run
from ramet.runtime.simulation.walker import Arrival
from ramet.runtime.simulation.workloads import _turns


def small_programs() -> list[Arrival]:
    """Forks with several samples, tools and a shared beginning, coming one after the other."""
    g = GraphWriter("forks")
    g.text(run(1, 40), g.arg())
    children = g.fork(3)
    thoughts = [g.gen(16, samples=2, branch=child) for child in children]
    g.join(children)
    g.text(thoughts[1])
    g.gen(16)
    graph = g.graph()
    arrivals = []
    for number in range(6):
        at = number * 0.02
        arrivals.append(Arrival(at, graph, (run(100 + number, 9), 5, 7, 3, 3, 8, 2, 6)))
        args = (run(1, 40), run(200 + number, 5), 6, 0.05, run(300 + number, 12), 4)
        arrivals.append(Arrival(at, _turns("agent", 2, 16), args, priority=number % 2))
    return arrivals


@pytest.mark.parametrize("policy", ["program", "dfs", "fcfs"])
@pytest.mark.parametrize("pool_tokens", [256, 4096])
def test_the_steps_are_the_real_engines_steps(policy: str, pool_tokens: int) -> None:
    real, simulated = decisions(
        small_programs(),
        PRESETS["llama-8b-h100"],
        policy=policy,
        pool_tokens=pool_tokens,
        page_size=4,
        chunk_tokens=48,
        max_running=8,
    )
    assert len(real) > 20
    assert simulated == real


def test_errors_are_relative_to_the_measurement() -> None:
    assert Prediction("x", "wall", 12.0, 10.0).error == pytest.approx(0.2)


def test_times_are_fitted_and_predicted() -> None:
    """On `tiny`: that it runs; how exact it is, is for the command to say."""
    costs, found = check_times("tiny", {"known": small_programs()}, {"asked": small_programs()[:4]})
    for cost in costs:
        assert min(cost.prices) >= 0
        assert max(cost.prices) > 0
    assert [prediction.clock for prediction in found] == ["wall", "processor"]
    for prediction in found:
        assert prediction.predicted > 0
        assert prediction.measured > 0


def test_programs_are_shrunk_but_share_what_they_shared() -> None:
    args = (run(1, 80), run(2, 3), 20, 1.5)
    (small,) = shrink([Arrival(2.0, small_programs()[1].graph, args)], 4)
    assert small.args == (run(1, 20), run(2, 1), 5, 1.5)
    assert small.at == 2.0
