import itertools

import pytest

from ramet.runtime.graph import Gen
from ramet.runtime.simulation.workloads import TREE_CALLS, WORKLOADS


def calls(name: str, seed: int, count: int) -> int:
    return sum(
        isinstance(node, Gen) for a in WORKLOADS[name](seed, count) for node in a.graph.nodes
    )


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_seed_decides_everything(name: str) -> None:
    first, again, other = (
        [(a.at, a.args, a.salt, a.priority) for a in WORKLOADS[name](seed, 60)]
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("name", WORKLOADS)
def test_there_are_about_as_many_calls_as_asked_for_in_order_of_arrival(name: str) -> None:
    assert 500 <= calls(name, 3, 500) <= 500 + 16 * TREE_CALLS
    times = [a.at for a in WORKLOADS[name](3, 200)]
    assert all(a <= b for a, b in itertools.pairwise(times))


@pytest.mark.parametrize("name", WORKLOADS)
def test_arguments_fit_their_graphs(name: str) -> None:
    for arrival in WORKLOADS[name](4, 100):
        assert len(arrival.args) == len(arrival.graph.args)


def test_graphs_are_shared() -> None:
    graphs = {id(a.graph) for a in WORKLOADS["agents"](5, 2000)}
    assert len(graphs) <= 9 * 8


def test_tenants_have_a_salt_each() -> None:
    assert {a.salt for a in WORKLOADS["mixed"](6, 100)} == {f"tenant{i}" for i in range(4)}
